"""Frames that no client would send, and what a broker of either kind responds to them, as text (`frames.recorded`).

    python -m klamm.tests.frames.recorded      # makes the file again with a real Kafka
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from klamm.tests.frames.drawing import drawn
from klamm.tests.frames.sending import NO_ANSWER, SETTINGS, Sender, made_ready
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.tree import Tree

FILE = Path(__file__).with_name("frames.recorded")
SEED, FRAMES = "recorded", 700
ANSWER_S = 5.0
_HEAD = re.compile(r"^(\d+) ", re.MULTILINE)


def told(sender: Sender, numbers: Iterable[int]) -> Iterator[str]:
    """Two lines for each frame: its number and what it is, then what came back."""
    for number in numbers:
        changed = drawn(f"{SEED} {number}")
        yield f"{number} {changed.api} v{changed.version} {changed.about!a}\n    {sender.outcome(changed)}\n"


def numbers() -> list[int]:
    """The frames of the file."""
    return [int(number) for number in _HEAD.findall(FILE.read_text(encoding="utf-8"))]


def main() -> None:
    """Write the file again, with a real Kafka; frames without an answer are left out."""
    from klamm.tests.reference.jars import jars
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    server = EmbeddedZooKeeper()
    tree = Tree(server.start(), "/frames")
    try:
        with tempfile.TemporaryDirectory() as folder:
            broker = KafkaBroker(jars(), tree, Path(folder), 0, **SETTINGS)
            try:
                lines = list(told(made_ready(broker, ANSWER_S), range(FRAMES)))
            finally:
                broker.kill()
    finally:
        tree.close()
        server.stop()
    FILE.write_text("".join(line for line in lines if not line.endswith(f" {NO_ANSWER}\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
