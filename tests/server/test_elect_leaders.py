"""ElectLeaders, the handler: who is asked for what, how long it waits, and what each version answers. The controller is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.controller.values import Election
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.apis import elect_leaders
from klamm.server.context import AllowAll, Context
from klamm.server.purgatory import Purgatory

Outcome = tuple[ErrorCode, str | None, int | None]
NOT_NEEDED: Outcome = (ErrorCode.ELECTION_NOT_NEEDED, None, None)
NO_PREFERRED: Outcome = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 1 is not in sync", None)


def elected(leader: int) -> Outcome:
    return ErrorCode.NONE, None, leader


class FakeMetadata:
    """Leaders by (topic, partition)."""

    def __init__(self, leaders: dict[tuple[str, int], int]) -> None:
        self.leaders = leaders

    @property
    def topics(self) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for topic, partition in self.leaders:
            names.setdefault(topic, SimpleNamespace(name=topic, partitions={})).partitions[partition] = None
        return names

    def leader(self, topic: str, partition: int) -> int | None:
        return self.leaders.get((topic, partition))


class FakeController:
    """Remembers what it was asked and answers by partition."""

    def __init__(self, outcomes: dict[tuple[str, int], Outcome], refusal: ErrorCode | None = None) -> None:
        self.outcomes = outcomes
        self.refusal = refusal
        self.asked: list[tuple[list[TopicPartition], Election]] = []

    async def elect_leaders(self, partitions: Iterable[TopicPartition], election: Election) -> dict[TopicPartition, Outcome]:
        self.asked.append((list(partitions), election))
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise ApiError(self.refusal)
        return {tp: self.outcomes[tp] for tp in partitions}


class DenyAll:
    def authorize(self, principal: Any, operation: Any, resource: Any) -> bool:
        return False


class Broker:
    """As much of a node as the handler sees."""

    def __init__(
        self,
        outcomes: dict[tuple[str, int], Outcome] | None = None,
        leaders: dict[tuple[str, int], int] | None = None,
        refusal: ErrorCode | None = None,
    ) -> None:
        self.controller = FakeController(outcomes or {}, refusal)
        self.metadata = FakeMetadata(leaders or {})
        self.purgatory = Purgatory()
        self.authorizer: Any = AllowAll()
        self.legacy_elect_leaders_v0 = True

    def shows(self, topic: str, partition: int, leader: int) -> None:
        """An UpdateMetadata arrives."""
        self.metadata.leaders[topic, partition] = leader
        self.purgatory.check([topic])

    async def ask(
        self, topics: list[tuple[str, list[int]]] | None, version: int = 2, election_type: int = 0, timeout_ms: int = 60_000
    ) -> Any:
        named = None if topics is None else [messages.ElectLeadersRequest.TopicPartitions(topic=t, partitions=p) for t, p in topics]
        request = messages.ElectLeadersRequest(election_type=election_type, topic_partitions=named, timeout_ms=timeout_ms)
        response = await elect_leaders.handle(Context(self, 43, version), request)  # type: ignore[arg-type]
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
    response = await broker.ask(None)
    assert broker.controller.asked == [([("a", 0), ("a", 1), ("b", 0)], Election.PREFERRED)]
    assert set(rows(response)) == {("a", 0), ("a", 1)}  # what needed nothing is left out


@pytest.mark.requirement("R183-2")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_empty_list_means_none(version: int) -> None:
    broker = Broker(leaders={("a", 0): 1})
    response = await broker.ask([], version)
    assert broker.controller.asked == []
    assert (response.error_code, response.replica_election_results) == (0, [])


@pytest.mark.requirement("R183-3")
async def test_repeated_partitions_are_elected_and_reported_once() -> None:
    broker = Broker({("a", 0): NOT_NEEDED, ("a", 1): NOT_NEEDED, ("b", 0): NOT_NEEDED})
    response = await broker.ask([("a", [1, 1]), ("b", [0]), ("a", [0, 1])])
    assert broker.controller.asked == [([("a", 1), ("a", 0), ("b", 0)], Election.PREFERRED)]
    assert [topic.topic for topic in response.replica_election_results] == ["a", "b"]
    assert set(rows(response)) == {("a", 0), ("a", 1), ("b", 0)}


@pytest.mark.requirement("R183-4")
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("named", [True, False])
async def test_alter_on_the_cluster_is_needed(version: int, named: bool) -> None:
    broker = Broker(leaders={("a", 0): 1})
    broker.authorizer = DenyAll()
    response = await broker.ask([("a", [0, 1])] if named else None, version)
    assert response.error_code == (0 if version == 0 else 31)
    assert rows(response) == ({("a", 0): (31, None), ("a", 1): (31, None)} if named else {})
    assert broker.controller.asked == []


@pytest.mark.requirement("R183-5")
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("named", [True, False])
async def test_not_the_controller(version: int, named: bool) -> None:
    broker = Broker(leaders={("a", 0): 1, ("b", 0): 1}, refusal=ErrorCode.NOT_CONTROLLER)
    response = await broker.ask([("x", [7])] if named else None, version)
    assert response.error_code == 0
    assert rows(response) == dict.fromkeys([("x", 7)] if named else [("a", 0), ("b", 0)], (41, None))


@pytest.mark.requirement("R183-9")
@pytest.mark.parametrize("named", [True, False])
async def test_version_0_calls_what_needs_nothing_a_success(named: bool) -> None:
    broker = Broker({("a", 0): NOT_NEEDED}, {("a", 0): 1})
    assert rows(await broker.ask([("a", [0])] if named else None, 0)) == {("a", 0): (0, None)}


@pytest.mark.requirement("R183-9")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_shipped_versions_say_that_nothing_is_needed(version: int) -> None:
    broker = Broker({("a", 0): NOT_NEEDED}, {("a", 0): 1})
    broker.legacy_elect_leaders_v0 = False
    ((code, message),) = rows(await broker.ask([("a", [0])], version)).values()
    assert code == 84
    assert message
    assert rows(await broker.ask(None, version)) == {}


@pytest.mark.requirement("R183-10")
@pytest.mark.parametrize("code", [3, 17, 80, 83, 84, -1])
@pytest.mark.parametrize("message", [None, "because"])
async def test_errors_have_a_text(code: int, message: str | None) -> None:
    broker = Broker({("a", 0): (ErrorCode(code), message, None), ("a", 1): elected(1)}, {("a", 1): 1})
    found = rows(await broker.ask([("a", [0, 1])]))
    assert found["a", 0][0] == code
    assert found["a", 0][1]
    assert found["a", 1] == (0, None)


@pytest.mark.requirement("R183-11")
async def test_throttle_time_is_zero() -> None:
    response = await Broker({("a", 0): NOT_NEEDED}).ask([("a", [0])], 0)
    assert messages.encode(response, 0)[:4] == b"\x00\x00\x00\x00"


@pytest.mark.requirement("R183-13")
async def test_failures_and_no_ops_are_not_waited_for() -> None:
    broker = Broker({("a", 0): NOT_NEEDED, ("a", 1): NO_PREFERRED})
    response = await asyncio.wait_for(broker.ask([("a", [0, 1])]), 5)
    assert {partition: code for (_, partition), (code, _) in rows(response).items()} == {0: 84, 1: 80}


@pytest.mark.requirement("R183-14")
async def test_waits_until_the_metadata_cache_shows_the_leaders() -> None:
    broker = Broker({("a", 0): elected(1), ("b", 0): elected(2), ("c", 0): NO_PREFERRED}, {("a", 0): 3, ("b", 0): 3, ("c", 0): 3})
    asking = asyncio.ensure_future(broker.ask([("a", [0]), ("b", [0]), ("c", [0])]))
    await asyncio.sleep(0.01)
    broker.shows("a", 0, 1)
    broker.shows("b", 0, 9)
    await asyncio.sleep(0.01)
    assert not asking.done()
    broker.shows("a", 0, 5)  # it was seen once: that counts
    broker.shows("b", 0, 2)
    assert {topic: code for (topic, _), (code, _) in rows(await asking).items()} == {"a": 0, "b": 0, "c": 80}
    assert len(broker.purgatory) == 0


@pytest.mark.requirement("R183-15")
async def test_time_is_over() -> None:
    broker = Broker({("a", 0): elected(1), ("a", 1): elected(1), ("a", 2): NOT_NEEDED}, {("a", 0): 1, ("a", 1): 3})
    response = await broker.ask([("a", [0, 1, 2])], timeout_ms=5)
    found = rows(response)
    assert (found["a", 0], found["a", 1]) == ((0, None), (7, None))
    assert found["a", 2][0] == 84


@pytest.mark.requirement("R183-15")
@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
async def test_no_time_at_all_still_looks_once(timeout_ms: int) -> None:
    broker = Broker({("a", 0): elected(1), ("a", 1): elected(1)}, {("a", 0): 1, ("a", 1): 3})
    found = rows(await broker.ask([("a", [0, 1])], timeout_ms=timeout_ms))
    assert found == {("a", 0): (0, None), ("a", 1): (7, None)}


@pytest.mark.requirement("R183-17")
async def test_controller_moved_while_the_request_was_queued() -> None:
    broker = Broker(refusal=ErrorCode.NOT_CONTROLLER)
    assert rows(await broker.ask([("a", [0])])) == {("a", 0): (41, None)}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("election_type", [-1, 2, 127])
@pytest.mark.parametrize("named", [True, False])
async def test_unknown_election_type(version: int, election_type: int, named: bool) -> None:
    broker = Broker(leaders={("a", 0): 1}, refusal=ErrorCode.NOT_CONTROLLER)
    response = await broker.ask([("a", [0])] if named else None, version, election_type)
    assert response.error_code == -1
    assert rows(response) == ({("a", 0): (-1, None)} if named else {})
    assert broker.controller.asked == []


@pytest.mark.parametrize(("version", "election_type", "election"), [(0, 1, 0), (1, 0, 0), (1, 1, 1), (2, 1, 1)])
async def test_election_types(version: int, election_type: int, election: int) -> None:
    broker = Broker({("a", 0): NOT_NEEDED})
    await broker.ask([("a", [0])], version, election_type if version > 0 else 0)
    assert broker.controller.asked == [([("a", 0)], Election(election))]


async def test_the_time_of_the_election_counts() -> None:
    class SlowController(FakeController):
        async def elect_leaders(self, partitions: Iterable[TopicPartition], election: Election) -> dict[TopicPartition, Outcome]:
            await asyncio.sleep(0.03)
            return await super().elect_leaders(partitions, election)

    class Remembering(Purgatory):
        async def wait(self, keys: Iterable[str], ready: Callable[[], bool], timeout_ms: int) -> bool:
            left.append(timeout_ms)
            return await super().wait(keys, ready, 0)

    left: list[int] = []
    broker = Broker()
    broker.controller, broker.purgatory = SlowController({("a", 0): elected(1)}), Remembering()
    assert rows(await broker.ask([("a", [0])], timeout_ms=10_000)) == {("a", 0): (ErrorCode.REQUEST_TIMED_OUT, None)}
    assert left[0] <= 9_971
