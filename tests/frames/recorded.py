"""Frames that no client would send, and what a broker of either kind responds to them, as text (`frames.recorded`).

    python -m klamm.tests.frames.recorded      # makes the file again with a real Kafka
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from klamm.tests.frames.drawing import Changed, drawn
from klamm.tests.frames.knowing import made_knowing
from klamm.tests.frames.sending import NO_ANSWER, SETTINGS, Sender
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.tree import Tree

FILE = Path(__file__).with_name("frames.recorded")
SEED, FRAMES, USUAL_FRAMES = "recorded", 700, 300
ANSWER_S = 5.0
_HEAD = re.compile(r"^((?:usual )?\d+) ", re.MULTILINE)
_LATER = ("AlterConfigs", "IncrementalAlterConfigs", "DeleteTopics")
"""What these change shows some time later, so they are not recorded."""


def told(sender: Sender, names: Iterable[str]) -> Iterator[str]:
    """Two lines for each frame: its name and what it is, then what came back."""
    for name in names:
        changed = _drawn(name)
        yield f"{name} {changed.api} v{changed.version} {changed.about!a}\n    {sender.outcome(changed)}\n"


def _drawn(name: str) -> Changed:
    return drawn(f"{SEED} {name}", name.startswith("usual"))


def names() -> list[str]:
    """The frames of the file."""
    return _HEAD.findall(FILE.read_text(encoding="utf-8"))


def _drawn_names() -> list[str]:
    usual = [f"usual {number}" for number in range(USUAL_FRAMES)]
    return [*map(str, range(FRAMES)), *(name for name in usual if _drawn(name).api not in _LATER)]


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
                lines = list(told(made_knowing(broker, ANSWER_S), _drawn_names()))
            finally:
                broker.kill()
    finally:
        tree.close()
        server.stop()
    FILE.write_text("".join(line for line in lines if not line.endswith(f" {NO_ANSWER}\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
