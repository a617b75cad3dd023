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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from klamm.tests.frames.both_kinds import Outcomes, both_kinds
from klamm.tests.permissions.drawing import drawn, drawn_with_frames
from klamm.tests.permissions.playing import Player, ready, settings

_ANSWER_S = {False: 8.0, True: 1.5}
"""How long to wait for a response, without and with frames that no client would send."""
MOST = 12
"""Differences of one round that are printed."""


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
    end, number, outcomes = time.monotonic() + 60 * options.minutes, 0, Outcomes()
    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    with (
        tempfile.TemporaryDirectory() as folder,
        both_kinds(
            zookeeper, Path(folder), "permissions",
            partial(settings, allows_everyone, not options.frames), partial(ready, answer_s=_ANSWER_S[options.frames]),
        ) as players,
        ThreadPoolExecutor(2) as pool,
    ):
        while time.monotonic() < end:
            number = number + 1 if options.only is None else options.only
            list(pool.map(Player.clear, players))
            shown = 0
            for step in (drawn_with_frames if options.frames else drawn)(f"{options.seed} {number}"):
                kafka, klamm = pool.map(Player.play, players, [step, step])
                differs = outcomes.differ(kafka, klamm)
                shown += differs
                if options.only is not None or (differs and shown <= MOST):
                    print(f"{'!' if differs else ' '} {options.seed} {number} {step}\n    kafka {kafka}")
                    print(f"    klamm {klamm}" if differs else "", flush=True)
            if options.only is not None or not all(player.broker.alive() for player in players):
                break
        outcomes.end(players, f"in round {number}")
    server.stop()
    print(f"{number} rounds, everyone allowed {allows_everyone}: {outcomes}")
    return 1 if outcomes.differences else 0


if __name__ == "__main__":
    sys.exit(main())
