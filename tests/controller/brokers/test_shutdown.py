"""Controlled shutdown (controller 10.4): checks, steps, what the others are told, what remains."""

from __future__ import annotations

import pytest

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.stage import Stage, isr_request


async def refused(stage: Stage, broker_id: int, broker_epoch: int) -> ErrorCode:
    mark = stage.mark()
    with pytest.raises(ApiError) as e:
        await stage.controller.controlled_shutdown(broker_id, broker_epoch)
    assert stage.since(mark) == []
    assert broker_id not in stage.cluster.shutting_down
    return e.value.code


async def test_who_may_ask(stage: Stage) -> None:
    await stage.open(1, 2)
    epoch = stage.world.brokers[1].epoch
    assert await refused(stage, 1, epoch - 1) is ErrorCode.STALE_BROKER_EPOCH
    assert await refused(stage, 9, epoch) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await refused(stage, 9, -1) is ErrorCode.BROKER_NOT_AVAILABLE
    for ok in (epoch, epoch + 1, -1):
        assert await stage.controller.controlled_shutdown(1, ok) == []
    assert stage.cluster.shutting_down == {1}


async def test_all_steps(stage: Stage) -> None:
    """Broker 1 leads `led`, follows in `followed` and in `lagging`, where it is not in sync; `single` is its own."""
    await stage.open(1, 2, 3)
    await stage.create("followed", (2, 1, 3))
    await stage.create("lagging", (2, 1))
    await stage.create("led", (1, 2, 3))
    await stage.create("single", (1,))
    stage.somebody_writes("lagging", isr=(2,))
    await stage.fail_over()
    mark = stage.mark()
    assert await stage.controller.controlled_shutdown(1, stage.world.brokers[1].epoch) == []
    assert stage.since(mark) == [
        # its leaders move, and it leaves their ISRs in the same write; it is told itself
        "WROTE led-0 2 e1 [2, 3] v1",
        *(f"LISR {b}: led-0 2 e1 [2, 3] v1" for b in (1, 2, 3)),
        *(f"UMR {b}: led-0 2 e1 [2, 3] v1 off[1]" for b in (1, 2, 3)),
        # it stops following: one request for all, then another one with the replicas going offline; both with the epoch before the shrink
        "SR 1: followed-0 e0 lagging-0 e0",
        "WROTE followed-0 2 e1 [2, 3] v1",
        "LISR 2: followed-0 2 e1 [2, 3] v1 lagging-0 2 e0 [2] v1",
        "LISR 3: followed-0 2 e1 [2, 3] v1",
        *(f"UMR {b}: followed-0 2 e1 [2, 3] v1 off[1] lagging-0 2 e0 [2] v1 off[1]" for b in (1, 2, 3)),
        "SR 1: followed-0 e0 lagging-0 e0",
    ]
    assert stage.replica(1, "followed") == stage.replica(1, "lagging") == "OFFLINE"
    assert stage.replica(1, "led") == "ONLINE", "only a replica that followed before goes offline"
    assert stage.state("single") == "1 e0 [1] v0"


async def test_what_it_leads_alone_remains(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2), (1, 2))
    stage.somebody_writes("t", 1, isr=(1,))
    await stage.fail_over()
    mark = stage.mark()
    assert await stage.controller.controlled_shutdown(1, -1) == [TopicPartition("t", 1)]
    assert stage.writes(mark) == ["WROTE t-0 2 e1 [2] v1"]
    mark = stage.mark()
    assert await stage.controller.controlled_shutdown(1, -1) == [TopicPartition("t", 1)]
    assert stage.writes(mark) == [], "the second attempt finds what is left"
    request = isr_request(1, stage.world.brokers[1].epoch, stage.partition("t").topic.wire_id, 1, 0, 1, [1, 2])
    response = await stage.controller.alter_partition(request, 2)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA, "a list with one that leaves is not taken"
    stage.somebody_writes("t", 1, isr=(1, 2))
    assert await stage.controller.controlled_shutdown(1, -1) == []
    assert stage.state("t", 1) == "2 e1 [2] v3"


async def test_a_topic_in_deletion_does_not_remain(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 3))
    await stage.create("u", (2, 1))
    stage.world.delete_topic("t")
    stage.world.delete_topic("u")
    stage.channels.silent.update((1, 2))
    await stage.settle()
    mark = stage.mark()
    assert await stage.controller.controlled_shutdown(1, -1) == []
    assert stage.since(mark) == []
    stage.channels.release()


async def test_two_leave_together(stage: Stage) -> None:
    """All that are leaving go out of the ISR at once, and none of them is elected."""
    await stage.open(1, 2, 3, 4)
    await stage.create("t", (1, 2, 3))
    await stage.create("pair", (1, 2))
    await stage.controller.controlled_shutdown(2, -1)
    assert stage.state("t") == "1 e1 [1, 3] v1"
    stage.somebody_writes("t", isr=(1, 2, 3))  # an older leader writes it back
    stage.somebody_writes("pair", isr=(1, 2))
    mark = stage.mark()
    assert await stage.controller.controlled_shutdown(1, -1) == [TopicPartition("pair", 0)]
    assert stage.writes(mark) == ["WROTE t-0 3 e2 [3] v3"]
    assert stage.frames(mark, "LISR") == [f"LISR {b}: t-0 3 e2 [3] v3" for b in (1, 2, 3)], "all that are registered"


async def test_no_longer_electable_but_told(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.controller.controlled_shutdown(1, -1)
    mark = stage.mark()
    await stage.create("t", (1, 2))
    assert stage.since(mark) == [
        "WROTE t-0 2 e0 [2] v0", "LISR 2: t-0 2 e0 [2] v0 new", *(f"UMR {b}: t-0 2 e0 [2] v0 off[1]" for b in (1, 2, 3))
    ]


@pytest.mark.parametrize("how", ["stop", "bounce"])
async def test_then_it_goes(stage: Stage, how: str) -> None:
    await stage.open(1, 2, 3)
    await stage.create("led", (1, 2))
    await stage.create("followed", (2, 1))
    await stage.controller.controlled_shutdown(1, -1)
    states = stage.state("led"), stage.state("followed")
    assert states == ("2 e1 [2] v1", "2 e1 [2] v1")
    mark = stage.mark()
    if how == "bounce":
        stage.world.bounce_broker(1)
        await stage.settle()
        assert stage.cluster.alive == {1, 2, 3}
    else:
        await stage.stop(1)
        assert stage.frames(mark) == [
            "LISR 2: followed-0 2 e1 [2] v1 led-0 2 e1 [2] v1",
            *(f"UMR {b}: followed-0 2 e1 [2] v1 off[1] led-0 2 e1 [2] v1 off[1]" for b in (2, 3)),
        ]
    assert stage.cluster.shutting_down == set()
    assert stage.writes(mark) == [], "it had left already"


async def test_its_death_is_clean_even_where_it_remained_leader(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.somebody_writes("t", isr=(1,))
    await stage.fail_over()
    assert await stage.controller.controlled_shutdown(1, -1) == [TopicPartition("t", 0)]
    await stage.stop(1)
    assert stage.state("t") == "-1 e1 [1] v2"


async def test_the_isr_is_read_anew_where_nobody_could_take_over(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.somebody_writes("t", isr=(1,))
    await stage.fail_over()
    stage.somebody_writes("t", isr=(1, 2))
    assert await stage.controller.controlled_shutdown(1, -1) == []
    assert stage.state("t") == "2 e1 [2] v3"


async def test_a_failed_log_directory_cannot_take_over(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.world.offline_dirs.add((2, TopicPartition("t", 0)))
    stage.world.notify_log_dir(2)
    await stage.settle()
    stage.somebody_writes("t", isr=(1, 2, 3))
    assert await stage.controller.controlled_shutdown(1, -1) == []
    state = stage.world.states[TopicPartition("t", 0)]
    assert (state.leader, state.isr) == (3, (2, 3)), "only those that leave are taken out here"
