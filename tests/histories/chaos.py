"""Trouble for a cluster of processes, one fault after the other, drawn from a seed: kill -9, SIGTERM, SIGSTOP, a new controller, moves.

`storage_faults.py` and `zookeeper_faults.py` have more.

At most one broker is away at a time, so that every partition of three replicas keeps two. A broker that comes back is waited for only as
long as it takes to register; that its replicas have caught up is not waited for, and the next fault may hit the broker they fetch from.

Right before a fault, or right after it, replicas of some partitions are told to move, or moves are cancelled. A move may override one that
is going on, and is waited for only at the end. One that is refused, because a broker or the controller is away, did not happen.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping

from klamm.tests.harness.members import Members
from klamm.tests.harness.waits import wait_for
from klamm.tests.moves.moving import MOVED_S, Moving, Targets

SETTINGS: dict[str, object] = {
    "zookeeper_session_timeout_ms": 1500,
    "replica_lag_time_max_ms": 3000,
    "replica_fetch_wait_max_ms": 200,
    "replica_fetch_backoff_ms": 200,
    "replica_socket_timeout_ms": 3000,
    "controller_socket_timeout_ms": 3000,
    "controlled_shutdown_max_retries": 3,
    "controlled_shutdown_retry_backoff_ms": 200,
    "log_retention_ms": -1,
}
"""Deaths and lags are noticed soon. `log_segment_bytes` may be set besides."""
AWAY_S = (0.3, 4.0)
"""How long a broker is away: less than a session, and longer."""
PAUSE_S = (0.2, 2.0)
"""Between two faults."""
HALF = 0.5


class Chaos:
    """Faults in `members`, for as long as `run` is told; `done` counts them."""

    def __init__(self, members: Members, seed: int, moving: Moving, more: Mapping[str, Fault] | None = None) -> None:
        """`moving` is the topic whose replicas move; its replication factor stays. `more` are faults besides the usual ones."""
        self.members, self.seed, self.moving = members, seed, moving
        self.done: Counter[str] = Counter()
        self.chance = random.Random(seed)
        self._factor = len(members.tree.assignment(moving.topic)[0])
        self._faults: dict[str, Fault] = {
            "kill -9": Chaos._kill,
            "stop": Chaos._stop,
            "pause": Chaos._pause,
            "new controller": Chaos._new_controller,
            **(more or {}),
        }

    def run(self, seconds: float) -> None:
        """Faults until the time is over; at the end every broker runs, no partition moves, and all replicas are in sync."""
        end = time.monotonic() + seconds
        names = list(self._faults)
        order: list[str] = []
        while time.monotonic() < end:
            if not order:  # each kind once before the first comes again: a short run has all of them
                order = self.chance.sample(names, len(names))
            name = order.pop()
            self.revive()
            if self.chance.random() < HALF:
                self._move()
            self._faults[name](self, self.chance.choice(sorted(self.members.brokers)))
            self.done[name] += 1
            if self.chance.random() < HALF:
                self._move()
                if self.chance.random() < HALF:
                    self._cancel()
            self.wait(*PAUSE_S)
        self.members.settled()
        wait_for(lambda: self.moving.moving() == {}, "all moves have ended", MOVED_S)
        self.members.in_sync([self.moving.topic])

    def wait(self, low: float, high: float) -> None:
        """As long as a fault lasts, or the pause after it; drawn."""
        time.sleep(self.chance.uniform(low, high))  # the length of a fault is what the fault is

    def revive(self) -> None:
        """Start the brokers that ended by themselves, which `done` counts."""
        for broker in self.members.brokers.values():
            if not broker.alive():
                self.done[f"broker {broker.id} ended by itself: {broker.tail().splitlines()[-1:]}"] += 1
                self.start(broker.id)

    def _kill(self, broker_id: int) -> None:
        self.members.brokers[broker_id].kill()
        self.wait(*AWAY_S)
        self.start(broker_id)

    def _stop(self, broker_id: int) -> None:
        self.members.brokers[broker_id].stop()
        self.wait(*AWAY_S)
        self.start(broker_id)

    def start(self, broker_id: int) -> None:
        """Start a broker that ended, once its former session is over."""
        tree, broker = self.members.tree, self.members.brokers[broker_id]
        wait_for(lambda: tree.exists(f"/brokers/ids/{broker_id}") is None, f"the old session of {broker_id} is over")
        broker.start()

    def _pause(self, broker_id: int) -> None:
        broker = self.members.brokers[broker_id]
        broker.freeze()
        try:
            self.wait(*AWAY_S)
        finally:
            broker.thaw()
        wait_for(lambda: self.members.tree.broker_epoch(broker_id) != -1 and broker.knows_itself(), f"{broker_id} is back")

    def _new_controller(self, broker_id: int) -> None:
        tree = self.members.tree
        epoch = tree.controller_epoch()
        tree.delete("/controller")
        wait_for(lambda: tree.controller() != -1 and tree.controller_epoch() > epoch, "another controller")

    def _move(self) -> None:
        """Some partitions go to other replicas."""
        ids = sorted(self.members.brokers)
        chosen = self.chance.sample(range(self.moving.partitions), self.chance.randint(1, self.moving.partitions))
        self._ask({p: self.chance.sample(ids, self._factor) for p in chosen}, "partitions moved")

    def _cancel(self) -> None:
        """Some partitions that are to move stay where they were."""
        self._ask({p: None for p in range(self.moving.partitions) if self.chance.random() < HALF}, "partitions cancelled")

    def _ask(self, targets: Targets, what: str) -> None:
        try:
            codes = self.moving.move_codes(targets) if targets else {}
        except (OSError, AssertionError):
            return  # there is no controller just now, or it has just lost its office
        self.done[what] += sum(code == 0 for code in codes.values())


Fault = Callable[[Chaos, int], None]
"""What happens to a broker, or because of it; at the end it is back."""
