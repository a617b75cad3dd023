"""ElectLeaders, the handler: who is asked for what, how long it waits, and what each version answers. The controller is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from klamm.controller.events.causes import Cause
from klamm.controller.values import Election, ElectionResult
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.apis import elect_leaders
from klamm.server.requests.purgatory import Condition, Named, Purgatory
from klamm.server.security.authorizer import Authorizer
from klamm.tests.broker import update_metadata
from klamm.tests.services import DenyAll, InactiveController, broker_config, make_context, make_services

NOT_NEEDED = ElectionResult(ErrorCode.ELECTION_NOT_NEEDED, None, None)
NO_PREFERRED = ElectionResult(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 1 is not in sync", None)


def elected(leader: int) -> ElectionResult:
    return ElectionResult(ErrorCode.NONE, None, leader)


class FakeController(InactiveController):
    """Remembers what it was asked to elect, and has an outcome for each partition."""

    def __init__(self, outcomes: dict[tuple[str, int], ElectionResult], refusal: ErrorCode | None = None) -> None:
        super().__init__()
        self.outcomes = outcomes
        self.refusal = refusal
        self.asked: list[tuple[list[TopicPartition], Election]] = []

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election, cause: Cause
    ) -> dict[TopicPartition, ElectionResult]:
        self.asked.append((list(partitions), election))
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise ApiError(self.refusal)
        return {tp: self.outcomes[tp] for tp in partitions}


class Broker:
    """A broker whose controller is the test's; `leaders` is what its metadata cache shows."""

    def __init__(
        self,
        outcomes: dict[tuple[str, int], ElectionResult] | None = None,
        leaders: dict[tuple[str, int], int] | None = None,
        refusal: ErrorCode | None = None,
        authorizer: Authorizer | None = None,
        legacy_v0: bool = True,
    ) -> None:
        self.controller = FakeController(outcomes or {}, refusal)
        self.services = make_services(
            controller=self.controller, authorizer=authorizer, config=broker_config(kip183_legacy_v0=legacy_v0)
        )
        for (topic, partition), leader in (leaders or {}).items():
            self.shows(topic, partition, leader)

    def shows(self, topic: str, partition: int, leader: int) -> None:
        """An UpdateMetadata arrives."""
        state = update_metadata.topic(topic, topic.encode().ljust(16, b"."), update_metadata.partition(partition, leader))
        self.services.metadata.update(update_metadata.update(state))
        self.services.purgatory.check([(topic, [partition])])

    async def request(
        self, topics: list[tuple[str, list[int]]] | None, version: int = 2, election_type: int = 0, timeout_ms: int = 60_000
    ) -> Any:
        named = None if topics is None else [messages.ElectLeadersRequest.TopicPartitions(topic=t, partitions=p) for t, p in topics]
        request = messages.ElectLeadersRequest(election_type=election_type, topic_partitions=named, timeout_ms=timeout_ms)
        response = await elect_leaders.handle(make_context(self.services, ApiKey.ELECT_LEADERS, version), request)
        return messages.decode("ElectLeadersResponse", version, messages.encode(response, version))[0]


def rows(response: Any) -> dict[tuple[str, int], tuple[int, str | None]]:
    found = [
        ((topic.topic, row.partition_id), (row.error_code, row.error_message))
        for topic in response.replica_election_results
        for row in topic.partition_result
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.requirement("R183-2")
async def test_null_list_means_every_partition_known() -> None:
    broker = Broker({("a", 0): elected(1), ("a", 1): NO_PREFERRED, ("b", 0): NOT_NEEDED}, {("a", 0): 1, ("a", 1): 2, ("b", 0): 1})
    response = await broker.request(None)
    assert broker.controller.asked == [([("a", 0), ("a", 1), ("b", 0)], Election.PREFERRED)]
    assert set(rows(response)) == {("a", 0), ("a", 1)}  # what needed nothing is left out


@pytest.mark.requirement("R183-2")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_empty_list_means_none(version: int) -> None:
    broker = Broker(leaders={("a", 0): 1})
    response = await broker.request([], version)
    assert broker.controller.asked == []
    assert (response.error_code, response.replica_election_results) == (0, [])


@pytest.mark.requirement("R183-3")
async def test_repeated_partitions_are_elected_and_reported_once() -> None:
    broker = Broker({("a", 0): NOT_NEEDED, ("a", 1): NOT_NEEDED, ("b", 0): NOT_NEEDED})
    response = await broker.request([("a", [1, 1]), ("b", [0]), ("a", [0, 1])])
    assert broker.controller.asked == [([("a", 1), ("a", 0), ("b", 0)], Election.PREFERRED)]
    assert [topic.topic for topic in response.replica_election_results] == ["a", "b"]
    assert set(rows(response)) == {("a", 0), ("a", 1), ("b", 0)}


@pytest.mark.requirement("R183-4")
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("named", [True, False])
async def test_alter_on_the_cluster_is_needed(version: int, named: bool) -> None:
    broker = Broker(leaders={("a", 0): 1}, authorizer=DenyAll())
    response = await broker.request([("a", [0, 1]), ("b", []), ("a", [1])] if named else None, version)
    assert response.error_code == (0 if version == 0 else 31)
    assert rows(response) == ({("a", 0): (31, None), ("a", 1): (31, None)} if named else {})
    assert [topic.topic for topic in response.replica_election_results] == (["a"] if named else [])
    assert broker.controller.asked == []


@pytest.mark.requirement("R183-5")
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("named", [True, False])
async def test_not_the_controller(version: int, named: bool) -> None:
    broker = Broker(leaders={("a", 0): 1, ("b", 0): 1}, refusal=ErrorCode.NOT_CONTROLLER)
    response = await broker.request([("x", [7])] if named else None, version)
    assert response.error_code == 0
    assert rows(response) == dict.fromkeys([("x", 7)] if named else [("a", 0), ("b", 0)], (41, None))


@pytest.mark.requirement("R183-9")
@pytest.mark.parametrize("named", [True, False])
async def test_version_0_calls_what_needs_nothing_a_success(named: bool) -> None:
    broker = Broker({("a", 0): NOT_NEEDED}, {("a", 0): 1})
    assert rows(await broker.request([("a", [0])] if named else None, 0)) == {("a", 0): (0, None)}


@pytest.mark.requirement("R183-9")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_shipped_versions_say_that_nothing_is_needed(version: int) -> None:
    broker = Broker({("a", 0): NOT_NEEDED}, {("a", 0): 1}, legacy_v0=False)
    ((code, message),) = rows(await broker.request([("a", [0])], version)).values()
    assert code == 84
    assert message
    assert rows(await broker.request(None, version)) == {}


@pytest.mark.requirement("R183-10")
@pytest.mark.parametrize("code", [3, 17, 80, 83, 84, -1])
@pytest.mark.parametrize("message", [None, "because"])
async def test_errors_have_a_text(code: int, message: str | None) -> None:
    broker = Broker({("a", 0): ElectionResult(ErrorCode(code), message, None), ("a", 1): elected(1)}, {("a", 1): 1})
    found = rows(await broker.request([("a", [0, 1])]))
    assert found["a", 0][0] == code
    assert found["a", 0][1]
    assert found["a", 1] == (0, None)


@pytest.mark.requirement("R183-11")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_throttle_time_is_the_first_field_and_zero(version: int) -> None:
    response = await Broker({("a", 0): NOT_NEEDED}).request([("a", [0])], version)
    encoded = messages.encode(response, version)
    throttled = messages.encode(response._replace(throttle_time_ms=0x01020304), version)
    assert (encoded[:4], throttled[:4]) == (bytes(4), b"\1\2\3\4") and encoded[4:] == throttled[4:]


@pytest.mark.requirement("R183-13")
async def test_failures_and_no_ops_are_not_waited_for() -> None:
    broker = Broker({("a", 0): NOT_NEEDED, ("a", 1): NO_PREFERRED})
    response = await asyncio.wait_for(broker.request([("a", [0, 1])]), 5)
    assert {partition: code for (_, partition), (code, _) in rows(response).items()} == {0: 84, 1: 80}


@pytest.mark.requirement("R183-14")
async def test_waits_until_the_metadata_cache_shows_the_leaders() -> None:
    broker = Broker({("a", 0): elected(1), ("b", 0): elected(2), ("c", 0): NO_PREFERRED}, {("a", 0): 3, ("b", 0): 3, ("c", 0): 3})
    asking = asyncio.ensure_future(broker.request([("a", [0]), ("b", [0]), ("c", [0])]))
    await asyncio.sleep(0.01)
    broker.shows("a", 0, 1)
    broker.shows("b", 0, 9)
    await asyncio.sleep(0.01)
    assert not asking.done()
    broker.shows("a", 0, 5)  # it was seen once: that counts
    broker.shows("b", 0, 2)
    assert {topic: code for (topic, _), (code, _) in rows(await asking).items()} == {"a": 0, "b": 0, "c": 80}
    assert len(broker.services.purgatory) == 0


@pytest.mark.requirement("R183-15")
async def test_time_is_over() -> None:
    broker = Broker({("a", 0): elected(1), ("a", 1): elected(1), ("a", 2): NOT_NEEDED}, {("a", 0): 1, ("a", 1): 3})
    response = await broker.request([("a", [0, 1, 2])], timeout_ms=5)
    found = rows(response)
    assert (found["a", 0], found["a", 1]) == ((0, None), (7, None))
    assert found["a", 2][0] == 84


@pytest.mark.requirement("R183-15")
@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
async def test_no_time_at_all_still_looks_once(timeout_ms: int) -> None:
    broker = Broker({("a", 0): elected(1), ("a", 1): elected(1)}, {("a", 0): 1, ("a", 1): 3})
    found = rows(await broker.request([("a", [0, 1])], timeout_ms=timeout_ms))
    assert found == {("a", 0): (0, None), ("a", 1): (7, None)}


@pytest.mark.requirement("R183-17")
async def test_controller_moved_while_the_request_was_queued() -> None:
    broker = Broker(refusal=ErrorCode.NOT_CONTROLLER)
    assert rows(await broker.request([("a", [0])])) == {("a", 0): (41, None)}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("election_type", [-1, 2, 127])
@pytest.mark.parametrize("named", [True, False])
async def test_unknown_election_type(version: int, election_type: int, named: bool) -> None:
    broker = Broker(leaders={("a", 0): 1}, refusal=ErrorCode.NOT_CONTROLLER)
    response = await broker.request([("a", [0])] if named else None, version, election_type)
    assert response.error_code == -1
    assert rows(response) == ({("a", 0): (-1, None)} if named else {})
    assert broker.controller.asked == []


@pytest.mark.parametrize(("version", "election_type", "election"), [(0, 1, 0), (1, 0, 0), (1, 1, 1), (2, 1, 1)])
async def test_election_types(version: int, election_type: int, election: int) -> None:
    broker = Broker({("a", 0): NOT_NEEDED})
    await broker.request([("a", [0])], version, election_type if version > 0 else 0)
    assert broker.controller.asked == [([("a", 0)], Election(election))]


async def test_the_time_of_the_election_counts() -> None:
    class SlowController(FakeController):
        async def elect_leaders(
            self, partitions: Sequence[TopicPartition], election: Election, cause: Cause
        ) -> dict[TopicPartition, ElectionResult]:
            await asyncio.sleep(0.03)
            return await super().elect_leaders(partitions, election, cause)

    class Remembering(Purgatory):
        async def wait_for_partitions(self, partitions: Named, look: Condition, timeout_ms: int) -> bool:
            left.append(timeout_ms)
            return await super().wait_for_partitions(partitions, look, 0)

    left: list[int] = []
    broker = Broker()
    broker.services = replace(broker.services, controller=SlowController({("a", 0): elected(1)}), purgatory=Remembering())
    assert rows(await broker.request([("a", [0])], timeout_ms=10_000)) == {("a", 0): (ErrorCode.REQUEST_TIMED_OUT, None)}
    assert left[0] <= 9_971
