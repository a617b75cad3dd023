"""Frames that no client would send, to Apache Kafka and to Klamm at the same time.

    python -m klamm.tests.frames.random_frames --seed 7 --minutes 5
    python -m klamm.tests.frames.random_frames --seed 7 --minutes 5 --usual    # requests that are mostly obeyed
    python -m klamm.tests.frames.random_frames --seed 7 --minutes 5 --usual --set auto.create.topics.enable=true

A frame to which Apache Kafka has no answer is counted and no difference: it forgets the response to some requests, such as OffsetFetch of
no group. Both brokers restart after some frames, or when one of them stops answering.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from klamm.tests.frames.drawing import drawn
from klamm.tests.frames.knowing import made_knowing
from klamm.tests.frames.sending import NO_ANSWER, SETTINGS, Sender
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree

ANSWER_S = 1.5
SILENT = 3
"""After this many frames in a row without an answer, both brokers restart."""


@contextmanager
def both(zookeeper: str, folder: Path, name: str, settings: Mapping[str, str]) -> Iterator[list[Sender]]:
    """A broker of each kind on one ZooKeeper, Apache Kafka first. `settings` come on top of the usual ones."""
    from klamm.tests.reference.jars import jars

    trees = [Tree(zookeeper, f"/{name}-{kind}") for kind in ("kafka", "klamm")]
    folders = [folder / f"{name}-{kind}" for kind in ("kafka", "klamm")]
    for each in folders:
        each.mkdir()
    properties = {**SETTINGS, **settings}
    brokers = [KafkaBroker(jars(), trees[0], folders[0], 0, **properties), OwnedBroker(trees[1], folders[1], 0, **properties)]
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            yield list(pool.map(made_knowing, brokers, [ANSWER_S, ANSWER_S]))
    finally:
        for broker, tree in zip(brokers, trees, strict=True):
            broker.kill()
            tree.close()


def _property(text: str) -> tuple[str, str]:
    """`KEY=VALUE` as brokers of the tests take it."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.replace(".", "_"), value


def main() -> int:
    """Returns 1 if there is a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--usual", action="store_true", help="requests that are mostly obeyed, every other of them unchanged")
    parser.add_argument("--each", type=int, default=1500, help="frames until both brokers restart")
    parser.add_argument("--set", type=_property, action="append", default=[], metavar="KEY=VALUE", help="a property of both brokers")
    options = parser.parse_args()
    settings = dict(options.set)
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    end, number, outcomes, differences = time.monotonic() + 60 * options.minutes, 0, Counter[str](), 0
    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        while time.monotonic() < end:
            with both(zookeeper, Path(folder), f"frames-{number}", settings) as senders:
                first, silent = number, 0
                while time.monotonic() < end and number < first + options.each and silent < SILENT:
                    number += 1
                    changed = drawn(f"{options.seed} {number}", options.usual)
                    told = [pool.submit(sender.outcome, changed) for sender in senders]
                    kafka, klamm = (each.result() for each in told)
                    outcomes[kafka if kafka in ("closed", NO_ANSWER) else "answer"] += 1
                    silent = silent + 1 if NO_ANSWER in (kafka, klamm) else 0
                    if kafka not in (klamm, NO_ANSWER):
                        differences += 1
                        print(f"{number} {changed.api} v{changed.version} {changed.about}\n  {changed.frame.hex()}")
                        print(f"  kafka {kafka}\n  klamm {klamm}", flush=True)
                for sender in senders:
                    sender.close()
                    if not sender.broker.alive():
                        differences += 1
                        print(f"a broker ended after frame {number}: {sender.broker.tail()}", flush=True)
    server.stop()
    print(f"{number} frames: {dict(outcomes)}, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
