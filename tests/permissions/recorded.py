"""Rounds of ACLs and of requests of users, and what a broker of either kind responds to them, as text (`everyone-*.recorded`).

    python -m klamm.tests.permissions.recorded      # makes the files again with a real Kafka
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from klamm.tests.frames.sending import NO_ANSWER
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.permissions.drawing import drawn
from klamm.tests.permissions.found import FOUND
from klamm.tests.permissions.playing import ready, settings
from klamm.tests.permissions.steps import Step

ROUNDS = 10
ANSWER_S = 20.0
ALLOWED, DENIED = "allowed", "denied"
"""What the broker does with resources without ACLs."""


def file_of(everyone: str) -> Path:
    return Path(__file__).with_name(f"everyone-{everyone}.recorded")


def rounds(everyone: str) -> Iterator[Sequence[Step]]:
    """The rounds of a file: the differences that were found, then random ones."""
    if everyone == DENIED:
        yield FOUND
    for number in range(ROUNDS):
        yield drawn(f"recorded {everyone} {number}")


def told(broker: OwnedBroker, everyone: str) -> Iterator[str]:
    """Start a broker and play the rounds to it: two lines for each step, its number and what it is, then what became of it."""
    player = ready(broker, ANSWER_S)
    try:
        for number, steps in enumerate(rounds(everyone)):
            player.clear()
            for index, step in enumerate(steps):
                yield f"{number}.{index} {step}\n    {player.play(step)}\n"
    finally:
        player.close()


def without_silence(steps: Iterable[str]) -> Iterator[str]:
    """The steps that were answered."""
    return (step for step in steps if not step.endswith(f" {NO_ANSWER}\n"))


def main() -> None:
    """Write the files again, with a real Kafka; steps without an answer are left out."""
    from klamm.tests.reference.jars import jars
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for everyone in (ALLOWED, DENIED):
                tree = Tree(zookeeper, f"/{everyone}")
                broker = KafkaBroker(jars(), tree, Path(folder, everyone), 0, **settings(everyone == ALLOWED))
                try:
                    file_of(everyone).write_text("".join(without_silence(told(broker, everyone))), encoding="utf-8")
                finally:
                    broker.kill()
                    tree.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
