"""Quotas of replication: the rate of a window of samples, who is throttled, and when a quota does anything at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from pathlib import Path

import pytest

from klamm.broker.replication_quotas import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    MOVES_RATE,
    ReplicationQuota,
    ReplicationQuotas,
    SampleWindow,
    throttled_partitions,
)
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.services import broker_config

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
S = 1000


def quota(bound: int | None = None, count: int = 11, **throttled: frozenset[int] | None) -> tuple[ReplicationQuota, DrivenClock]:
    clock = DrivenClock()
    made = ReplicationQuota(count, 1, clock)
    for topic, partitions in throttled.items():
        made.throttle(topic, partitions)
    made.limit(bound)
    return made, clock


def make(broker_id: int = 1, bound: int | None = 1000) -> ReplicationQuotas:
    config = broker_config(broker_id)
    rates = {} if bound is None else {name: str(bound) for name in (LEADER_RATE, FOLLOWER_RATE, MOVES_RATE)}
    config.apply_dynamic({}, rates)
    quotas = ReplicationQuotas(broker_id, config.get, DrivenClock())
    quotas.set_topic("t", {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"})
    quotas.set_rates()
    return quotas


# --- the window


def test_the_rate_is_that_of_at_least_one_sample() -> None:
    window = SampleWindow(11, S)
    assert window.rate(5 * S) == 0
    window.record(1000, 5 * S)
    assert window.rate(5 * S) == 1000
    assert window.rate(5 * S + 999) == 1000
    assert window.rate(7 * S) == 500


def test_bytes_count_until_the_window_is_over() -> None:
    window = SampleWindow(11, S)
    window.record(1000, 0)
    assert window.rate(10_999) == pytest.approx(1000 / 10.999)
    assert window.rate(11_000) == 0


def test_a_pause_is_made_up_for_as_far_as_the_window_reaches_back() -> None:
    window = SampleWindow(11, S)
    window.record(1, 0)
    window.record(9999, 10 * S)
    assert window.rate(10 * S) == 1000
    window.record(0, 11 * S)
    assert window.rate(11 * S) == pytest.approx(9999)  # what is older than the window makes the time no longer


def test_the_wait_is_until_the_rate_is_not_above_the_bound() -> None:
    window = SampleWindow(11, S)
    assert window.until(0, 0) == 0
    window.record(5000, 0)
    assert window.until(5000, 0) == 0
    assert window.until(1000, 0) == 5 * S
    assert window.until(1000, 3 * S) == 2 * S
    assert window.until(100, 0) == 11 * S
    assert window.until(0, S) == 10 * S


@pytest.mark.parametrize("seed", range(20))
def test_after_any_history_the_wait_is_the_first_moment_at_which_the_rate_is_low_enough(seed: int) -> None:
    chance = random.Random(seed)
    count, length_ms = chance.choice([(1, 1000), (3, 100), (11, 1000)])
    history, now_ms = [], 0
    for _ in range(chance.randrange(1, 40)):
        now_ms += chance.choice([0, 1, 70, 900, 1500])
        history.append((chance.choice([0, 16, 5_000, 90_000]), now_ms))
    bound = chance.choice([0, 1_000, 30_000])

    def window() -> SampleWindow:
        made = SampleWindow(count, length_ms)
        for size, at_ms in history:
            made.record(size, at_ms)
        return made

    wait_ms = window().until(bound, now_ms)
    assert window().rate(now_ms + wait_ms) <= bound
    looked_at = range(0, wait_ms, max(wait_ms // 50, 1))
    assert all(window().rate(now_ms + before_ms) > bound for before_ms in looked_at)


def test_rates_are_those_of_apache_kafka() -> None:
    """`tests/golden/recording/replication_quotas.py` has made the histories."""
    lines = gzip.decompress((GOLDEN / "replication_quotas.jsonl.gz").read_bytes()).splitlines()
    looks = 0
    for line in lines:
        noted = json.loads(line)
        order, bound, measured = noted["order"], 0, []
        window = SampleWindow(order["num"], order["seconds"] * S)
        for now_ms, kind, value in order["steps"]:
            if kind == "bound":
                bound = value
            elif kind == "record":
                window.record(value, now_ms)
            else:
                rate = window.rate(now_ms)
                measured.append([pytest.approx(rate), rate > bound])
        assert measured == noted["looks"]
        looks += len(measured)
    assert looks > 1000


# --- the quota


def test_a_quota_acts_while_it_has_a_bound_and_a_throttled_partition() -> None:
    made, _ = quota()
    assert not made.is_active
    made.limit(1000)
    assert not made.is_active and not made.is_exceeded()
    made.throttle("t", frozenset({1}))
    assert made.is_active
    made.throttle("t", frozenset())
    assert not made.is_active and not made.throttled
    made.throttle("t", None)
    assert made.is_active
    made.limit(None)
    assert not made.is_active


def test_a_quota_is_exceeded_above_its_bound_and_a_changed_bound_counts_at_once() -> None:
    made, _ = quota(1000, t=None)
    made.record(1000)
    assert not made.is_exceeded()
    made.record(1)
    assert made.is_exceeded()
    made.limit(2000)
    assert not made.is_exceeded()
    made.limit(0)
    assert made.is_exceeded()


def test_what_was_recorded_is_forgotten_when_nothing_is_throttled_for_a_while() -> None:
    made, _ = quota(1000, t=None)
    made.record(50_000)
    made.limit(None)
    made.limit(1000)
    assert not made.is_exceeded()


def test_listeners_hear_of_changes_and_of_nothing_else() -> None:
    made, _ = quota(1000, t=frozenset({1}))
    heard: list[int] = []
    made.listeners.append(lambda: heard.append(made.generation))
    made.limit(1000)
    made.throttle("t", frozenset({1}))
    made.throttle("u", frozenset())
    assert heard == []
    made.throttle("t", None)
    made.throttle("t", None)
    made.limit(5)
    made.throttle("t", frozenset())
    assert len(heard) == len(set(heard)) == 3


def test_a_leader_with_bound_0_is_over_it_from_the_start() -> None:
    quotas = make(bound=0)
    assert quotas.leader.is_exceeded()
    assert not quotas.follower.is_exceeded()


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", frozenset()),
        ("*", None),
        (" * ", None),
        ("* ,", None),
        ("0:1,0:2,3:1", frozenset({0, 3})),
        (" 0:1 , 2:1,", frozenset({0, 2})),
        ("0:2", frozenset()),
        ("0:11", frozenset()),
    ],
)
def test_a_list_throttles_what_it_names_for_this_broker(text: str, partitions: frozenset[int] | None) -> None:
    assert throttled_partitions(text, 1) == partitions


def test_leader_and_follower_have_a_list_each_and_one_that_is_gone_throttles_nothing() -> None:
    quotas = make()
    quotas.set_topic("t", {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "1:1,2:2"})
    assert [quotas.leader.is_throttled("t", index) for index in range(3)] == [True, False, False]
    assert [quotas.follower.is_throttled("t", index) for index in range(3)] == [False, True, False]
    quotas.set_topic("t", {"retention.ms": "1", LEADER_REPLICAS: ""})
    assert not quotas.leader.throttled and not quotas.follower.throttled


def test_a_list_that_somebody_wrote_wrongly_throttles_nothing() -> None:
    quotas = make()
    quotas.set_topic("t", {LEADER_REPLICAS: "0-1", FOLLOWER_REPLICAS: "0:1"})
    assert not quotas.leader.is_throttled("t", 0) and quotas.follower.is_throttled("t", 0)


def test_moves_are_throttled_by_their_rate_alone() -> None:
    assert make().moves.is_active
    assert not make(bound=None).moves.is_active


def test_rates_of_the_default_entity_and_of_the_properties_are_not_those_of_a_broker() -> None:
    config = broker_config(1, leader_replication_throttled_rate="1")
    config.apply_dynamic({LEADER_RATE: "1", FOLLOWER_RATE: "1", MOVES_RATE: "1"}, {FOLLOWER_RATE: "7"})
    quotas = ReplicationQuotas(1, config.get, DrivenClock())
    quotas.set_rates()
    assert (quotas.leader.bound, quotas.follower.bound, quotas.moves.bound) == (None, 7, None)


async def test_who_waits_goes_on_when_the_rate_is_low_enough_or_the_bound_changes() -> None:
    made, clock = quota(1000, t=None)
    await made.below()
    made.record(3000)
    waiting = asyncio.ensure_future(made.below())
    await asyncio.sleep(0)
    await clock.advance(2.9)
    await asyncio.sleep(0)
    assert not waiting.done()
    await clock.advance(0.2)
    await waiting
    made.record(100_000)
    waiting = asyncio.ensure_future(made.below())
    await asyncio.sleep(0)
    assert not waiting.done()
    made.limit(None)
    await waiting


def test_how_long_a_quota_will_be_exceeded_is_known() -> None:
    made, _ = quota(1000, t=None)
    assert made.seconds_until_below() == 0
    made.record(3000)
    assert made.seconds_until_below() == 3
    made.limit(None)
    assert made.seconds_until_below() == 0
    assert make(bound=0).leader.seconds_until_below() == float("inf")
