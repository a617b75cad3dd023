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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from klamm.tests.frames.both_kinds import Outcomes, both_kinds
from klamm.tests.frames.drawing import drawn
from klamm.tests.frames.knowing import made_knowing
from klamm.tests.frames.sending import NO_ANSWER, SETTINGS, Sender

ANSWER_S = 1.5
SILENT = 3
"""After this many frames in a row without an answer, both brokers restart."""


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
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    end, number, outcomes = time.monotonic() + 60 * options.minutes, 0, Outcomes()
    properties, ready = {**SETTINGS, **dict(options.set)}, partial(made_knowing, answer_s=ANSWER_S)
    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        while time.monotonic() < end:
            with both_kinds(zookeeper, Path(folder), f"frames-{number}", lambda: properties, ready) as senders:
                first, silent = number, 0
                while time.monotonic() < end and number < first + options.each and silent < SILENT:
                    number += 1
                    changed = drawn(f"{options.seed} {number}", options.usual)
                    kafka, klamm = pool.map(Sender.outcome, senders, [changed, changed])
                    silent = silent + 1 if NO_ANSWER in (kafka, klamm) else 0
                    if outcomes.differ(kafka, klamm):
                        print(f"{number} {changed.api} v{changed.version} {changed.about}\n  {changed.frame.hex()}")
                        print(f"  kafka {kafka}\n  klamm {klamm}", flush=True)
                outcomes.end(senders, f"after frame {number}")
    server.stop()
    print(f"{number} frames: {outcomes}")
    return 1 if outcomes.differences else 0


if __name__ == "__main__":
    sys.exit(main())
