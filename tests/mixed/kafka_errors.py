"""Which errors real brokers log in the usual course of the mixed stories: `kafka_errors.txt`, recorded without Klamm.

A kind of error is its logger, the exception's class, and the begin of its text with numbers and names masked. `python -m
klamm.tests.mixed.kafka_errors [STORY...]` tells the stories to three real brokers and adds the kinds it meets to the file: many come from
races that a single telling need not show.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from klamm.tests.harness.kafka import KafkaBroker, LogLine, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.mixed import old_protocol_story
from klamm.tests.mixed.data_story import DataStory, dedicated, settings_of
from klamm.tests.mixed.hand_over import HandOver
from klamm.tests.mixed.tree_story import TreeStory
from klamm.tests.reference.jars import jars
from klamm.zk.embedded.server import EmbeddedZooKeeper

FILE = Path(__file__).with_name("kafka_errors.txt")
_SHOWN = 150
BROKEN = "java.lang.IllegalStateException"
"""What a real controller logs once it is broken for good, by losing its office while it was busy: never usual."""


def kind(line: LogLine) -> str:
    """One line of the file."""
    text = re.sub(r"for partition \[?\S+-\d+", "for partition T-N", line.text)
    text = re.sub(r"/[\w./-]+", "PATH", text)
    text = re.sub(r"\d+", "N", text)[:_SHOWN].rstrip()
    return " | ".join((line.logger, line.exception, text))


def usual() -> set[str]:
    """The kinds on record."""
    return set(FILE.read_text().splitlines())


def unusual(brokers: Iterable[KafkaBroker]) -> list[LogLine]:
    """Errors these brokers logged of kinds that are not on record."""
    known = usual()
    return [line for broker in brokers for line in broker.errors() if kind(line) not in known]


def interrupted(members: Members) -> None:
    """The office is lost in the middle of the work; ends when nobody stands for election any more, which happens to real brokers."""
    for number in range(20):
        members.tree.put_topic(f"t-{number}", {p: [p % 3, (p + 1) % 3] for p in range(9)})
        time.sleep(number * 0.003)
        epoch = members.tree.controller_epoch()
        members.tree.delete("/controller")
        wait_for(partial(_elected_after, members, epoch), "a controller", 10)


def _elected_after(members: Members, epoch: int) -> bool:
    return members.tree.controller_epoch() > epoch and members.tree.controller() != -1


STORIES: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[Members], object]]] = {
    "data": (settings_of, lambda members: DataStory(members, [1, 2]).tell()),
    "data-all": (lambda broker_id: settings_of(broker_id + 1), lambda members: DataStory(members, [1, 2, 0]).tell()),
    "hand-over": (dedicated, lambda members: HandOver(members, [1, 2]).tell(["kill", "delete", "kill"])),
    "tree": (lambda _: {}, lambda members: TreeStory(members).tell()),
    "2.6": (lambda _: {"inter_broker_protocol_version": "2.6"}, old_protocol_story.tell),
    "1.0": (lambda _: {"inter_broker_protocol_version": "1.0"}, old_protocol_story.tell),
    "interrupted": (lambda _: {}, interrupted),
}


def record(names: Sequence[str]) -> set[str]:
    """Tell these stories to real brokers; the kinds of errors they logged, also in a story that they did not survive."""
    zookeeper = EmbeddedZooKeeper()
    address, kinds = zookeeper.start(), set()
    try:
        for number, name in enumerate(names):
            settings, tell = STORIES[name]
            with tempfile.TemporaryDirectory() as folder:
                members = Members(jars(), Tree(address, f"/record-{number}"), Path(folder), settings)
                try:
                    members.kafka(0)
                    members.add_kafka(1, 2)
                    members.start(*() if name == "tree" else (1, 2))
                    print(f"{name}: {tell(members) or 'told'}"[:300], file=sys.stderr)
                except AssertionError as end:
                    print(f"{name}: not told to its end: {end}", file=sys.stderr)
                finally:
                    kinds |= {kind(line) for broker in members.real() for line in broker.errors() if line.exception != BROKEN}
                    members.close()
                    members.tree.close()
    finally:
        zookeeper.stop()
    return kinds


if __name__ == "__main__":
    known = usual() if FILE.exists() else set()
    found = known | record(sys.argv[1:] or list(STORIES))
    FILE.write_text("".join(f"{line}\n" for line in sorted(found)))
    print(f"{len(found)} kinds, {len(found - known)} of them new")
