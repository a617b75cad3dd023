"""Client quotas: throttle times as Apache Kafka's, whose quota counts, mutations, connections of addresses, and memory."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.client_quotas import DEFAULT, MANY, AddressRates, Bounds, ClientQuota, ClientRate, MutationBuckets, java_int

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "client_quotas.jsonl.gz"
S = 1000


def throttled(order: dict[str, Any]) -> list[int]:
    """The throttle times of one history of the golden data."""
    num, seconds, kind = order["num"], order["seconds"], order["kind"]
    mutations = MutationBuckets(num, seconds)
    quota = ClientQuota(num, seconds, at_most_a_sample=kind == "requests")
    outcome: list[int] = []
    for now_ms, how, user, client, value in order["steps"]:
        if how == "bound":
            (mutations if kind == "mutations" else quota).bounds.set((user, client), value)
        elif how == "record":
            outcome.append(quota.record(user, client, value, now_ms))
        else:
            wait_ms = mutations.record(user, client, value, now_ms, strict=how == "strict")
            outcome += [-1, wait_ms] if wait_ms and how == "strict" else [wait_ms]
    return outcome


def test_throttle_times_are_those_of_apache_kafka() -> None:
    """`tests/golden/recording/client_quotas.py` has made the histories. Where an int of Java has overflowed, Kafka does not throttle."""
    recorded = 0
    for line in gzip.decompress(GOLDEN.read_bytes()).splitlines():
        noted = json.loads(line)
        expected = [max(wait_ms, 0) if noted["order"]["kind"] != "mutations" else wait_ms for wait_ms in noted["throttled"]]
        assert throttled(noted["order"]) == expected
        recorded += sum(wait_ms > 0 for wait_ms in expected)
    assert recorded > 1000


def test_the_first_quota_of_kafkas_order_counts() -> None:
    """All 256 sets of stored quotas, against the list of KIP-55."""
    order = [
        ("u", "c"), ("u", DEFAULT), ("u", ""), (DEFAULT, "c"), (DEFAULT, DEFAULT), (DEFAULT, ""), ("", "c"), ("", DEFAULT),
    ]
    for stored in itertools.product([False, True], repeat=len(order)):
        bounds = Bounds()
        for number, (entity, is_stored) in enumerate(zip(order, stored, strict=True)):
            if is_stored:
                bounds.set(entity, number)
        if not any(stored):
            assert bounds.find("u", "c") is None
            continue
        first = stored.index(True)
        user, client = order[first]
        assert bounds.find("u", "c") == (("u" if user else "", "c" if client else ""), first)


def test_a_client_without_an_id_has_the_quota_of_its_user_only() -> None:
    bounds = Bounds()
    for entity in [("", DEFAULT), ("u", DEFAULT), (DEFAULT, DEFAULT)]:
        bounds.set(entity, 1)
    assert bounds.find("u", "") is None
    bounds.set((DEFAULT, ""), 2)
    assert bounds.find("u", "") == (("u", ""), 2)


def test_a_removed_quota_does_not_count() -> None:
    bounds = Bounds()
    bounds.set(("", "c"), 5)
    assert bounds.find("u", "c") == (("", "c"), 5)
    bounds.set(("", "c"), None)
    assert bounds.find("u", "c") is None
    assert not bounds


def test_all_clients_of_a_user_share_its_rate_but_those_of_the_default_user_do_not() -> None:
    quota = ClientQuota(11, 1)
    quota.bounds.set(("u", ""), 1000)
    quota.bounds.set((DEFAULT, ""), 1000)
    assert quota.record("u", "a", 10_000, 0) == 0
    assert quota.record("u", "b", 1000, 0) == 1000
    assert quota.record("v", "a", 10_000, 0) == 0
    assert quota.record("w", "a", 10_000, 0) == 0


def test_what_is_taken_back_does_not_throttle() -> None:
    quota = ClientQuota(11, 1)
    quota.bounds.set(("", DEFAULT), 1000)
    assert quota.record("u", "a", 20_000, 0) == 10_000
    quota.take_back("u", "a", 20_000, 0)
    assert quota.record("u", "a", 10_000, 0) == 0


def test_a_changed_quota_judges_what_was_recorded_before() -> None:
    quota = ClientQuota(11, 1)
    quota.bounds.set(("", "a"), 1000)
    assert quota.record("u", "a", 10_000, 0) == 0
    quota.bounds.set(("", "a"), 500)
    assert quota.record("u", "a", 0, 0) == 10_000


def test_the_largest_fetch_is_what_the_quota_gives_in_all_samples_but_one() -> None:
    quota = ClientQuota(11, 2)
    assert quota.most_in_window("u", "a") == math.inf
    quota.bounds.set(("", "a"), 500)
    assert quota.most_in_window("u", "a") == 10_000
    assert quota.most_in_window("u", "b") == math.inf


@pytest.mark.parametrize("bound", [math.nan, math.inf, -math.inf, -0.25])
def test_odd_bounds_throttle_nobody(bound: float) -> None:
    quota = ClientQuota(11, 1, at_most_a_sample=True)
    quota.bounds.set(("", "a"), bound)
    assert quota.record("u", "a", 5, 0) == 0
    mutations = MutationBuckets(11, 1)
    mutations.bounds.set(("", "b"), bound)
    assert mutations.record("u", "c", 5, 0, strict=True) == 0


def test_a_strict_quota_lets_one_request_overdraw_the_bucket_and_then_refuses() -> None:
    mutations = MutationBuckets(11, 1)
    mutations.bounds.set(("", "a"), 2)
    assert mutations.record("u", "a", 30, 0, strict=True) == 0
    assert mutations.record("u", "a", 1, 0, strict=True) == 4000
    assert mutations.record("u", "a", 1, 3999, strict=True) == 1
    assert mutations.record("u", "a", 1, 4000, strict=True) == 0
    assert mutations.record("u", "a", 4, 4000, strict=False) == 2500


def test_addresses_have_rates_of_their_own_and_refused_connections_do_not_count() -> None:
    rates = AddressRates(11, 1)
    rates.default = 2
    rates.limits["10.0.0.1"] = 1
    assert [rates.count("10.0.0.1", 0) for _ in range(13)] == [0] * 10 + [1000] * 3
    assert [rates.count("10.0.0.2", 0) for _ in range(21)] == [0] * 20 + [500]
    assert all(rates.count("10.0.0.1", 5_000) for _ in range(50))
    assert [rates.count("10.0.0.1", 11_000) for _ in range(6)] == [0] * 6
    rates.default = None
    assert [rates.count("10.0.0.2", 0) for _ in range(30)] == [0] * 30


def test_idle_rates_are_dropped_when_there_are_many() -> None:
    quota = ClientQuota(11, 1)
    quota.bounds.set(("", DEFAULT), 1000)
    for number in range(MANY):
        quota.record("u", str(number), 1, 0)
    quota.record("u", "slow", 10_000, 20 * S)
    assert len(quota._rates._rates) == 1
    assert quota.record("u", "slow", 1000, 20 * S) == 1000


def test_a_rate_is_idle_when_its_window_is_over() -> None:
    rate = ClientRate(11, S)
    rate.record(5, 0)
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)


def test_quotients_are_rounded_and_cut_as_in_java() -> None:
    assert [java_int(value, 2) for value in (1, 3, 5, -1, -3)] == [1, 2, 3, 0, -1]
    assert java_int(1, 0) == -1
    assert java_int(1, 0, most=1000) == 1000
    assert java_int(1 << 31, 1) == -(1 << 31)
    assert java_int(1e30, 1) == -1
