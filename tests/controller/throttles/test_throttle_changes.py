"""AlterInterbrokerThrottledRates and AlterInterbrokerThrottledReplicas in the controller (KIP-179; controller 22.3, 22.4)."""

from __future__ import annotations

import asyncio

import pytest

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.events.catalogue import BrokerChange
from klamm.controller.phases import (
    BrokerThrottlesRemoved,
    BrokerThrottlesSet,
    ThrottledBrokersRecorded,
    ThrottledTopicsRecorded,
    TopicThrottlesRemoved,
    TopicThrottlesSet,
)
from klamm.controller.throttles import changes as throttle_changes
from klamm.controller.throttles.changes import MAX_PAIRS
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.controller.stage import Stage
from klamm.tests.controller.throttles.throttle_tree import (
    BROKERS,
    KEPT,
    OTHER_BROKERS,
    OTHER_TOPICS,
    TOPICS,
    announced,
    config,
    content,
    opened,
    put,
    rate,
    replicas,
    throttle,
    tree,
    written,
)

A0, A1, T0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("t", 0)
NONE = (None, None)
DONE = (ErrorCode.NONE, None)


def codes(results: dict[TopicPartition, tuple[ErrorCode, str | None]] | dict[int, tuple[ErrorCode, str | None]]) -> list[ErrorCode]:
    return [code for code, _ in results.values()]


# --- rates ---


@pytest.mark.requirement("R179-13")
async def test_each_bad_rate_is_reported_and_the_others_are_set(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    results = await stage.controller.alter_throttled_rates({999: (1, 1), 1: (-1, 1), 2: (1, -1), 3: (5, 6), -1: (1, 1)})
    bad_broker, bad_rate = ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST
    assert codes(results) == [bad_broker, bad_rate, bad_rate, ErrorCode.NONE, bad_broker]
    assert all((message is None) == (code is ErrorCode.NONE) for code, message in results.values())
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE, NONE, ("5", "6")]
    assert content(stage.world, BROKERS) == {"version": 1, "brokers": [3]}


@pytest.mark.requirement("R179-13")
@pytest.mark.parametrize("rates", [(0, 0), (0, 5), (5, 0)])
async def test_a_rate_of_0_with_which_nothing_moves_is_refused_as_by_a_reassignment(stage: Stage, rates: tuple[int, int]) -> None:
    await opened(stage, 1, 2, 3)
    before = tree(stage.world)
    refused = await stage.controller.reassign_partitions({T0: (3, 1)}, 0)
    assert await stage.controller.alter_throttled_rates({1: rates}) == {1: refused[T0]}
    assert codes(refused) == [ErrorCode.INVALID_REQUEST] and tree(stage.world) == before


@pytest.mark.requirement("R179-13")
@pytest.mark.parametrize("rates", [(1, 1), (2**63 - 1, 2**63 - 1)])
async def test_every_rate_from_1_on_is_legal(stage: Stage, rates: tuple[int, int]) -> None:
    await opened(stage, 1, 2, 3)
    assert await stage.controller.alter_throttled_rates({1: rates}) == {1: DONE}
    assert rate(stage.world, 1) == (str(rates[0]), str(rates[1]))


@pytest.mark.requirement("R179-14", "R179-9")
async def test_the_znode_is_widened_then_rates_go_then_rates_are_set_then_the_znode_is_narrowed(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_rates({1: (100, 200), 2: (100, 200)})
    seen = written(stage.world)
    assert await stage.controller.alter_throttled_rates({3: (300, 400), 2: (300, 400)}) == {3: DONE, 2: DONE}
    change = "/config/changes/config_change"
    assert seen == [BROKERS, "/config/brokers/1", change, "/config/brokers/2", change, "/config/brokers/3", change, BROKERS]
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE, ("300", "400"), ("300", "400")]
    assert content(stage.world, BROKERS) == {"version": 1, "brokers": [2, 3]}
    assert config(stage.world, "brokers/1") == KEPT["brokers"]
    assert config(stage.world, "brokers/2") == {**KEPT["brokers"], **throttles.rates(300, 400)}


@pytest.mark.requirement("R179-15")
async def test_rates_that_a_person_set_stay_where_neither_the_znode_nor_the_request_names_the_broker(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    throttle(stage.world, "brokers/3")
    put(stage.world, BROKERS, {"version": 1, "brokers": [1]})
    throttle(stage.world, "brokers/1")
    await stage.controller.alter_throttled_rates({2: (5, 6)})
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE, ("5", "6"), ("100", "200")]


@pytest.mark.requirement("R179-15")
async def test_both_names_of_the_znode_count_and_one_is_left(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    put(stage.world, OTHER_BROKERS, {"version": 1, "brokers": [1]})
    throttle(stage.world, "brokers/1")
    await stage.controller.alter_throttled_rates({2: (5, 6)})
    assert rate(stage.world, 1) == NONE
    assert content(stage.world, OTHER_BROKERS) is None and content(stage.world, BROKERS) == {"version": 1, "brokers": [2]}


@pytest.mark.requirement("R179-15")
async def test_a_request_without_brokers_removes_all_rates_of_such_requests(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_rates({1: (1, 2), 2: (1, 2)})
    assert await stage.controller.alter_throttled_rates({}) == {}
    assert [rate(stage.world, b) for b in (1, 2)] == [NONE, NONE] and content(stage.world, BROKERS) is None


@pytest.mark.requirement("R179-13")
async def test_a_request_with_nothing_but_errors_changes_nothing(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_rates({1: (1, 2)})
    await stage.controller.alter_throttled_replicas({T0: ((1,), (2,))})
    before = tree(stage.world)
    assert codes(await stage.controller.alter_throttled_rates({7: (1, 2), 2: (-1, 0)})) == [8, 42]
    assert codes(await stage.controller.alter_throttled_replicas({TopicPartition("t", 9): ((1,), (1,))})) == [3]
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-13")
async def test_rates_and_lists_of_a_dead_broker_are_set_while_it_takes_part_in_a_reassignment(stage: Stage) -> None:
    """Section 17: every broker in any sources and destinations is throttled, so one that returns is."""
    await opened(stage, 1, 2, 3)
    await stage.stop(2)
    await stage.controller.reassign_partitions({T0: (1, 3)}, 5000)
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [("5000", "5000")] * 3
    asked: dict[TopicPartition, tuple[Ints | None, Ints | None]] = {T0: ((1, 2), (3,))}
    assert await stage.controller.alter_throttled_replicas(asked) == {T0: DONE}
    assert codes(await stage.controller.alter_throttled_rates({1: (7, 8), 2: (7, 8), 3: (7, 8), 9: (7, 8)})) == [0, 0, 0, 8]
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [("7", "8")] * 3
    assert replicas(stage.world, "t") == ("0:1,0:2", "0:3")
    await stage.controller.alter_reassignments({T0: None})
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE] * 3 and replicas(stage.world, "t") == NONE
    assert codes(await stage.controller.alter_throttled_rates({2: (7, 8)})) == [8], "it takes part in nothing any more"


@pytest.mark.requirement("R179-13")
async def test_a_broker_that_is_registered_and_fenced_is_refused_as_that(stage: Stage) -> None:
    stage.change_options(registerbroker_enable=True)
    await opened(stage, 1, 2, 3)
    await stage.register(7)
    results = await stage.controller.alter_throttled_rates({7: (1, 2), 9: (1, 2)})
    assert [message for _, message in results.values()] == ["Broker 7 is registered, but it is FENCED.", "Broker 9 is not registered."]
    assert codes(await stage.controller.alter_throttled_replicas({T0: ((7,), ())})) == [8]


@pytest.mark.requirement("R179-17")
async def test_without_remove_throttle_rates_stay_and_the_znode_goes(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_rates({1: (1, 2), 2: (1, 2)})
    seen = written(stage.world)
    await stage.controller.alter_throttled_rates({2: (3, 4)}, remove_throttle=False)
    change = "/config/changes/config_change"
    assert seen[:4] == ["/config/brokers/1", change, "/config/brokers/2", change] and f"-{BROKERS}" in seen[4:]
    assert [rate(stage.world, b) for b in (1, 2)] == [NONE, ("3", "4")] and content(stage.world, BROKERS) is None


@pytest.mark.requirement("R179-18")
async def test_validate_only_checks_and_changes_nothing(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_rates({1: (1, 2)})
    before = tree(stage.world)
    assert codes(await stage.controller.alter_throttled_rates({2: (5, 6), 9: (5, 6), 1: (-5, 6)}, validate_only=True)) == [0, 8, 42]
    asked = {T0: ((1,), (2,)), TopicPartition("t", 1): ((1,), (2,)), A0: ((9,), None)}
    assert codes(await stage.controller.alter_throttled_replicas(asked, validate_only=True)) == [0, 3, 8]
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-16")
async def test_between_any_two_steps_the_znode_names_every_broker_that_may_have_a_rate(stage: Stage) -> None:
    """It is held behind each step, the controller crashes there, and the next one removes all."""
    kinds = (ThrottledBrokersRecorded, BrokerThrottlesRemoved, BrokerThrottlesSet)
    await opened(stage, 1, 2, 3)
    for stop in range(1, 6):
        hold = stage.steering.hold(*kinds)
        asking = [asyncio.ensure_future(stage.controller.alter_throttled_rates({1: (1, 2), 2: (1, 2)}))]
        await stage.settle()
        while hold.held and not asking[0].done():
            hold.step()
            await stage.settle()
        asking.append(asyncio.ensure_future(stage.controller.alter_throttled_rates({2: (3, 4), 3: (3, 4)})))
        await stage.settle()
        for _ in range(stop - 1):
            hold.step()
            await stage.settle()
        with_rate = {b for b in (1, 2, 3) if rate(stage.world, b) != NONE}
        assert hold.held and with_rate <= set(content(stage.world, BROKERS)["brokers"])
        hold.release()
        stage.controller.queue.clear()
        await stage.fail_over()
        with pytest.raises(ApiError) as refusal:
            await asking[1]
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE] * 3 and content(stage.world, BROKERS) is None


# --- replicas ---


@pytest.mark.requirement("R179-19")
async def test_each_bad_partition_is_reported_and_the_others_are_throttled(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.create("doomed", (3,))
    stage.channels.silent.add(3)
    stage.world.delete_topic("doomed")
    await stage.settle()
    asked: dict[TopicPartition, tuple[Ints | None, Ints | None]] = {
        TopicPartition("nowhere", 0): ((1,), (2,)),
        TopicPartition("t", 7): ((1,), (2,)),
        TopicPartition("t", -1): ((1,), (2,)),
        TopicPartition("doomed", 0): ((1,), (2,)),
        A0: ((1,), (999,)),
        A1: ((1, 1), (2,)),
        T0: ((1,), (3,)),
    }
    results = await stage.controller.alter_throttled_replicas(asked)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(results) == [unknown, unknown, unknown, unknown, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert replicas(stage.world, "t") == ("0:1", "0:3") and replicas(stage.world, "a") == NONE
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["t"]}


@pytest.mark.requirement("R179-20", "R179-9")
async def test_the_same_steps_with_topics_and_a_topic_is_replaced_as_a_whole(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_replicas({A0: ((1,), (2,)), A1: ((2,), (1,)), T0: ((1,), (2,))})
    assert (replicas(stage.world, "a"), replicas(stage.world, "t")) == (("0:1,1:2", "0:2,1:1"), ("0:1", "0:2"))
    seen = written(stage.world)
    await stage.controller.alter_throttled_replicas({A1: ((3, 1), ())})
    change = "/config/changes/config_change"
    assert seen == [TOPICS, "/config/topics/t", change, "/config/topics/a", change, TOPICS]
    assert (replicas(stage.world, "a"), replicas(stage.world, "t")) == (("1:1,1:3", ""), NONE)
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["a"]}
    assert config(stage.world, "topics/t") == KEPT["topics"] and config(stage.world, "topics/a")["retention.ms"] == "7654321"


@pytest.mark.requirement("R179-20")
async def test_topics_of_the_znode_that_are_gone_are_passed_by(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    put(stage.world, TOPICS, {"version": 1, "topics": ["gone", "a/b", ""]})
    put(stage.world, OTHER_TOPICS, {"version": 1, "topics": ["a"]})
    throttle(stage.world, "topics/a")
    assert await stage.controller.alter_throttled_replicas({T0: ((1,), ())}) == {T0: DONE}
    assert announced(stage.world) == ["topics/a", "topics/t"]
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["t"]} and content(stage.world, OTHER_TOPICS) is None


@pytest.mark.requirement("R179-20")
async def test_without_remove_throttle_lists_stay_and_the_znode_goes(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_replicas({A0: ((1,), (2,)), T0: ((1,), (2,))})
    await stage.controller.alter_throttled_replicas({T0: ((2,), (3,))}, remove_throttle=False)
    assert (replicas(stage.world, "a"), replicas(stage.world, "t")) == (NONE, ("0:2", "0:3"))
    assert content(stage.world, TOPICS) is None


@pytest.mark.requirement("R179-21")
@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ((None, None), ("0:1,0:2,0:3", "0:1,0:2,0:3")),
        ((None, ()), ("0:1,0:2,0:3", "")),
        (((), None), ("", "0:1,0:2,0:3")),
        (((), ()), ("", "")),
        (((3, 1), (2,)), ("0:1,0:3", "0:2")),
    ],
)
async def test_a_null_list_is_every_registered_broker_and_an_empty_one_none(
    stage: Stage, lists: tuple[Ints | None, Ints | None], expected: tuple[str, str]
) -> None:
    await opened(stage, 1, 2, 3)
    assert await stage.controller.alter_throttled_replicas({T0: lists}) == {T0: DONE}
    assert replicas(stage.world, "t") == expected


@pytest.mark.requirement("R179-22")
async def test_between_any_two_steps_the_znode_names_every_topic_that_may_have_a_list(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_replicas({A0: ((1,), (2,))})
    hold = stage.steering.hold(ThrottledTopicsRecorded, TopicThrottlesRemoved, TopicThrottlesSet)
    asking = asyncio.ensure_future(stage.controller.alter_throttled_replicas({T0: ((1,), (2,))}))
    await stage.settle()
    steps = []
    while hold.held:
        with_list = {t for t in ("a", "t") if replicas(stage.world, t) != NONE}
        assert with_list <= set(content(stage.world, TOPICS)["topics"])
        steps.append(hold.step())
        await stage.settle()
    assert steps == [
        ThrottledTopicsRecorded(1, 2, ("a", "t")),
        TopicThrottlesRemoved(1, 2, "a"),
        TopicThrottlesSet(1, 2, "t"),
        ThrottledTopicsRecorded(1, 2, ("t",)),
    ]
    assert await asking == {T0: DONE}


async def test_a_list_that_fits_into_no_config_is_refused_before_anything_is_written(stage: Stage) -> None:
    await stage.open(*range(1, 12))
    await stage.create("wide", *[(1,)] * (MAX_PAIRS // 11 + 1))
    asked: dict[TopicPartition, tuple[Ints | None, Ints | None]] = {
        TopicPartition("wide", p): (None, ()) for p in range(MAX_PAIRS // 11 + 1)
    }
    before = tree(stage.world)
    assert set(codes(await stage.controller.alter_throttled_replicas(asked))) == {ErrorCode.INVALID_REQUEST}
    assert tree(stage.world) == before
    del asked[TopicPartition("wide", 0)]
    assert set(codes(await stage.controller.alter_throttled_replicas(asked))) == {ErrorCode.NONE}


async def test_a_topic_has_at_most_so_many_pairs_in_its_longer_list_and_each_topic_is_counted_for_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle_changes, "MAX_PAIRS", 4)
    await opened(stage, 1, 2, 3)
    most: dict[TopicPartition, tuple[Ints | None, Ints | None]] = {A0: ((1, 2), (1,)), A1: ((3,), (1, 2)), T0: ((1, 2, 3), None)}
    assert set(codes(await stage.controller.alter_throttled_replicas(most))) == {ErrorCode.NONE}
    for more in (((3,), (1, 2, 3)), (None, ()), ((), None)):
        assert codes(await stage.controller.alter_throttled_replicas({**most, A1: more})) == [
            ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE,
        ]


# --- both ---


async def test_a_config_that_cannot_be_read_is_reported_and_stays_in_the_znode(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_rates({1: (1, 2), 2: (1, 2)})
    put(stage.world, "/config/brokers/1", {"version": 1, "config": {"k": 7}})
    put(stage.world, "/config/brokers/3", {"version": 1, "config": {"k": 7}})
    results = await stage.controller.alter_throttled_rates({2: (3, 4), 3: (3, 4)})
    assert codes(results) == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert rate(stage.world, 2) == ("3", "4")
    assert content(stage.world, BROKERS) == {"version": 1, "brokers": [1, 2, 3]}


async def test_a_config_of_a_topic_that_cannot_be_read_is_reported_and_stays_in_the_znode(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.alter_throttled_replicas({A0: ((1,), (2,))})
    put(stage.world, "/config/topics/a", {"version": 1, "config": {"k": 7}})
    assert await stage.controller.alter_throttled_replicas({T0: ((1,), (2,))}) == {T0: DONE}
    assert replicas(stage.world, "t") == ("0:1", "0:2")
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["a", "t"]}
    put(stage.world, "/config/topics/t", {"version": 1, "config": {"k": 7}})
    assert codes(await stage.controller.alter_throttled_replicas({T0: ((2,), (1,))})) == [ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_requests_are_worked_on_one_after_the_other_and_others_are_not_kept_waiting(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    hold = stage.steering.hold(BrokerThrottlesSet, where={"request": 1})
    first = asyncio.ensure_future(stage.controller.alter_throttled_rates({1: (1, 2)}))
    second = asyncio.ensure_future(stage.controller.alter_throttled_rates({2: (3, 4)}))
    await stage.settle()
    assert not first.done() and not second.done() and rate(stage.world, 2) == NONE
    await stage.create("meanwhile", (1, 2))
    await stage.put(BrokerChange())
    assert stage.state("meanwhile") == "1 e0 [1, 2] v0"
    hold.release()
    assert (await first, await second) == ({1: DONE}, {2: DONE})
    assert [rate(stage.world, b) for b in (1, 2)] == [NONE, ("3", "4")]
    assert content(stage.world, BROKERS) == {"version": 1, "brokers": [2]}


async def test_a_controller_that_is_not_active_refuses(stage: Stage) -> None:
    await opened(stage, 1, 2, 3)
    await stage.controller.expire()
    await stage.settle()
    for attempt in (
        stage.controller.alter_throttled_rates({1: (1, 2)}),
        stage.controller.alter_throttled_replicas({T0: ((1,), (2,))}),
        stage.controller.reassign_partitions({T0: (2,)}, 5000),
    ):
        with pytest.raises(ApiError) as refusal:
            await attempt
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
