"""Throttles of one side alone, against the other kind of broker: a Klamm leader slows a real follower, a Klamm follower a real leader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness import requests
from klamm.tests.harness.members import Members
from klamm.tests.moves import throttled

pytestmark = [pytest.mark.slow, pytest.mark.reference]

RATE = 1 << 20


class OneSide(throttled.Throttled):
    """A move that only its leader, or only its follower throttles."""

    def limit(self, side: str, rate: int | None) -> None:
        """Bytes per second, None for no throttle."""
        broker_id = self.source if side == "leader" else self.target
        text = None if rate is None else str(rate)
        self._set(requests.TOPIC, throttled.TOPIC, f"{side}.replication.throttled.replicas", None if rate is None else "*", self.source)
        self._set(requests.BROKER, str(broker_id), f"{side}.replication.throttled.rate", text, broker_id)

    def _set(self, kind: int, name: str, config: str, value: str | None, to: int) -> None:
        (answer,) = self.cluster.ask(requests.set_configs(kind, name, {config: value}), 1, to).responses
        assert answer.error_code == 0, answer


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_the_other_kind_of_broker_is_slowed_by_the_one_that_throttles(new_members: Callable[..., Members], side: str) -> None:
    """Broker 2 leads, broker 3 follows; the one that throttles is a Klamm broker."""
    members = new_members(lambda _: throttled.SETTINGS)
    if side == "leader":
        members.klamm(2)
        members.kafka(3)
    else:
        members.kafka(2)
        members.klamm(3)
    move = OneSide(members, 2, 3, 40 * RATE)
    move.limit(side, RATE)
    move.move()
    move.settled(RATE)
    measured = move.measured()
    assert move.moving.moving().keys() == {0}
    move.limit(side, None)
    move.moving.moved({0: [3]})
    assert abs(measured - RATE) <= throttled.TOLERANCE * RATE, measured
