"""Random ACLs and requests of users, to Apache Kafka and to Klamm at the same time.

    python -m klamm.tests.permissions.random_permissions --seed 7 --minutes 5
    python -m klamm.tests.permissions.random_permissions --seed 7 --only 31    # one round, with all its steps
    python -m klamm.tests.permissions.random_permissions --seed 7 --minutes 5 --frames    # users send frames that no client would send

A round begins without ACLs, so it can be played alone. The setting `allow.everyone.if.no.acl.found` is drawn from the seed. A request to
which Apache Kafka has no answer is counted and is not a difference.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from klamm.tests.frames.sending import NO_ANSWER
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.permissions.drawing import drawn, drawn_with_frames
from klamm.tests.permissions.playing import Player, ready, settings

_ANSWER_S = {False: 8.0, True: 1.5}
"""How long to wait for a response, without and with frames that no client would send."""
MOST = 12
"""Differences of one round that are printed."""


@contextmanager
def both(zookeeper: str, folder: Path, name: str, allows_everyone: bool, frames: bool) -> Iterator[list[Player]]:
    """A player for a broker of each kind on one ZooKeeper, Apache Kafka first."""
    from klamm.tests.reference.jars import jars

    trees = [Tree(zookeeper, f"/{name}-{kind}") for kind in ("kafka", "klamm")]
    folders = [folder / f"{name}-{kind}" for kind in ("kafka", "klamm")]
    brokers = [
        KafkaBroker(jars(), trees[0], folders[0], 0, **settings(allows_everyone, not frames)),
        OwnedBroker(trees[1], folders[1], 0, **settings(allows_everyone, not frames)),
    ]
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            yield list(pool.map(ready, brokers, [_ANSWER_S[frames]] * 2))
    finally:
        for broker, tree in zip(brokers, trees, strict=True):
            broker.kill()
            tree.close()


def main() -> int:
    """Returns 1 if there is a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--only", type=int, help="play this round alone, and print all its steps")
    parser.add_argument("--everyone", choices=("true", "false"), help="allow.everyone.if.no.acl.found, otherwise drawn")
    parser.add_argument("--frames", action="store_true", help="users send frames that no client would send; topics are not created then")
    options = parser.parse_args()
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    allows_everyone = random.Random(options.seed).random() < 0.4 if options.everyone is None else options.everyone == "true"
    end, number, outcomes, differences = time.monotonic() + 60 * options.minutes, 0, Counter[str](), 0
    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    with (
        tempfile.TemporaryDirectory() as folder,
        both(zookeeper, Path(folder), "permissions", allows_everyone, options.frames) as players,
        ThreadPoolExecutor(2) as pool,
    ):
        while time.monotonic() < end:
            number = number + 1 if options.only is None else options.only
            list(pool.map(Player.clear, players))
            shown = 0
            for step in (drawn_with_frames if options.frames else drawn)(f"{options.seed} {number}"):
                kafka, klamm = pool.map(Player.play, players, [step, step])
                outcomes[kafka if kafka in ("closed", NO_ANSWER) else "answer"] += 1
                differs = kafka not in (klamm, NO_ANSWER)
                differences += differs
                shown += differs
                if options.only is not None or (differs and shown <= MOST):
                    print(f"{'!' if differs else ' '} {options.seed} {number} {step}\n    kafka {kafka}")
                    print(f"    klamm {klamm}" if differs else "", flush=True)
            if options.only is not None or not all(player.broker.alive() for player in players):
                break
        for player in players:
            player.close()
            if not player.broker.alive():
                differences += 1
                print(f"a broker ended in round {number}: {player.broker.tail()}", flush=True)
    server.stop()
    print(f"{number} rounds, everyone allowed {allows_everyone}: {dict(outcomes)}, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
