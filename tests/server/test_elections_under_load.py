"""ElectLeaders under load: many requests with the same partitions, short time-outs, late UpdateMetadata, a controller that moves.

The handlers, the purgatory, the metadata cache and the controller are real; ZooKeeper and the other brokers are simulated, and the test
drives the clock and hands UpdateMetadata to the controller's own broker when it likes. What each request has to get is computed
afterwards by a second, simple version: from what the controller said of it, and from the list of what the cache showed when.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from klamm.controller.events.causes import Cause
from klamm.controller.values import Election, ElectionResult
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.apis import elect_leaders, update_metadata
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.purgatory import Purgatory
from klamm.tests.controller.simulated import Wrote
from klamm.tests.controller.stage import ME, Stage
from klamm.tests.harness.seeds import seeds
from klamm.tests.services import InactiveController, make_context, make_services

THIEF = 77
MINUTE_MS = 60_000
Codes = dict[TopicPartition, ErrorCode]


@dataclasses.dataclass
class Asked(InactiveController):
    """One request: what was asked, what the controller said of it and when, and the response. It is the controller of its handler."""

    load: Load
    partitions: list[TopicPartition]
    election: Election
    timeout_ms: int
    received_s: float
    said: dict[TopicPartition, ElectionResult] | None = None
    refused: ErrorCode | None = None
    said_step: int = -1
    shown: dict[TopicPartition, int | None] = dataclasses.field(default_factory=dict)
    """What the cache showed when the controller had said it."""
    rows: list[tuple[TopicPartition, ErrorCode]] = dataclasses.field(default_factory=list)
    ended_steps: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election, cause: Cause
    ) -> dict[TopicPartition, ElectionResult]:
        assert (list(partitions), election) == (self.partitions, self.election)
        try:
            self.said = await self.load.stage.controller.elect_leaders(partitions, election, cause)
        except ApiError as error:
            self.refused = error.code
            raise
        finally:
            self.said_step = self.load.step
            self.shown = {tp: self.load.services.metadata.leader(*tp) for tp in partitions}
        return self.said

    async def run(self) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        request = messages.ElectLeadersRequest(
            election_type=int(self.election.value), timeout_ms=self.timeout_ms,
            topic_partitions=[messages.ElectLeadersRequest.TopicPartitions(topic=t, partitions=p) for t, p in topics.items()],
        )
        context = make_context(dataclasses.replace(self.load.services, controller=self), ApiKey.ELECT_LEADERS, 2)
        response = await elect_leaders.handle(context, request)
        body = messages.decode("ElectLeadersResponse", 2, messages.encode(response, 2))[0]
        assert body.error_code == 0
        for topic_rows in body.replica_election_results:
            for row in topic_rows.partition_result:
                self.rows.append((TopicPartition(topic_rows.topic, row.partition_id), ErrorCode(row.error_code)))
                assert (row.error_message is None) == (row.error_code in (0, 7, 41))
        self.ended_steps.append(self.load.step)


class Load:
    """A broker that is the controller, and requests in flight."""

    def __init__(self, topic: str, replicas: list[tuple[int, ...]]) -> None:
        self.stage = Stage()
        self.clock = DrivenClock()
        self.replicas = {TopicPartition(topic, index): each for index, each in enumerate(replicas)}
        self.held: list[Any] = []
        """UpdateMetadata that the controller has sent to its own broker and that has not arrived."""
        self.step = 0
        self.timeline: list[tuple[int, float, dict[TopicPartition, int]]] = []
        """What each UpdateMetadata showed: step, time, leaders."""
        self.moments: list[tuple[int, float]] = []
        """Where the clock stood after a step."""
        self.asked: list[Asked] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        brokers = sorted({broker for replicas in self.replicas.values() for broker in replicas})
        setattr(self.stage.channels, "UpdateMetadata", self._update_metadata)  # noqa: B010 mypy does not want methods to be replaced
        await self.stage.open(*brokers, ME)
        (topic,) = {tp.topic for tp in self.replicas}
        await self.stage.create(topic, *self.replicas.values())
        epoch = self.stage.world.broker_epoch(ME)
        assert epoch is not None
        made = make_services(broker_id=ME, broker_epoch=epoch)
        self.services = dataclasses.replace(made, clock=self.clock, purgatory=Purgatory(self.clock))
        await self.deliver(len(self.held))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.stage.close()

    def _update_metadata(self, broker_id: int, told: Any, request: Any) -> Any:
        if broker_id == ME:
            self.held.append(request)
        return messages.UpdateMetadataResponse()

    # What may happen; each is a step

    def request(self, partitions: Sequence[TopicPartition], timeout_ms: int, election: Election = Election.PREFERRED) -> Asked:
        """A request arrives; nothing is waited for."""
        one = Asked(self, list(partitions), election, timeout_ms, self.clock.monotonic())
        self.asked.append(one)
        self.tasks.append(asyncio.create_task(one.run()))
        return one

    async def settle(self) -> None:
        """All that can be done without UpdateMetadata and without time."""
        self.step += 1
        await self.stage.settle()

    async def deliver(self, count: int) -> None:
        """The first of the held UpdateMetadata arrive, each a step of its own."""
        arriving, self.held = self.held[:count], self.held[count:]
        for request in arriving:
            self.step += 1
            leaders = {
                TopicPartition(topic.topic_name, state.partition_index): state.leader
                for topic in request.topic_states
                for state in topic.partition_states
            }
            self.timeline.append((self.step, self.clock.monotonic(), leaders))
            response = update_metadata.handle(make_context(self.services, ApiKey.UPDATE_METADATA, 8), request)
            assert response.error_code == 0
            await self.stage.settle()

    async def advance(self, seconds: float) -> None:
        """Time passes; what is over ends."""
        self.step += 1
        await self.clock.advance(seconds, self.stage.settle)
        self.moments.append((self.step, self.clock.monotonic()))

    async def move_controller(self) -> None:
        """Another broker is the controller for a moment, and sends nothing; then this one is again, and sends everything."""
        self.stage.world.steal(THIEF)
        await self.settle()
        self.stage.world.drop_controller()
        await self.settle()

    async def move_leaders(self, *brokers: int) -> None:
        """Brokers bounce, and are in sync again where a replica is left that leads."""
        for broker in brokers:
            self.stage.world.bounce_broker(broker)
            await self.settle()
        back = []
        for tp, replicas in self.replicas.items():
            state = self.stage.world.states[tp]
            if state.leader >= 0 and not state.recovery and len(state.isr) < len(replicas):
                isr = (*state.isr, *(replica for replica in replicas if replica not in state.isr))
                self.stage.somebody_writes(tp.topic, tp.partition, isr=isr)
                back.append(tp)
        if back:
            self.stage.world.notify_isr_change(back)
        await self.settle()

    # What has to come of it

    async def finish(self) -> None:
        """Let everything end, and check each request."""
        if self.stage.world.controller is not None and self.stage.world.controller[0] == THIEF:
            self.stage.world.drop_controller()
        await self.settle()
        await self.deliver(len(self.held))
        await self.advance(60)
        assert all(task.done() for task in self.tasks)
        assert len(self.services.purgatory) == 0
        for task in self.tasks:
            await task
        for one in self.asked:
            self.check(one)

    def check(self, one: Asked) -> None:
        """Exactly one response, with the right code for each partition, at the right moment."""
        codes, ended = self.expected(one)
        assert len(one.rows) == len(dict(one.rows)), "a partition is reported once"
        assert dict(one.rows) == codes
        assert one.ended_steps == [ended]

    def expected(self, one: Asked) -> tuple[Codes, int]:
        """Codes, and the step at which the response is due; naively."""
        if one.said is None:
            assert one.refused is ErrorCode.NOT_CONTROLLER
            return dict.fromkeys(one.partitions, ErrorCode.NOT_CONTROLLER), one.said_step
        codes = {tp: result.error for tp, result in one.said.items()}
        leaders = {tp: result.leader for tp, result in one.said.items() if result.error is ErrorCode.NONE}
        for tp, leader in leaders.items():
            assert any(isinstance(entry, Wrote) and entry.key == tp and entry.state.leader == leader for entry in self.stage.world.journal)
        missing = {tp for tp, leader in leaders.items() if one.shown[tp] != leader}
        if not missing or one.timeout_ms <= 0:
            return codes | dict.fromkeys(missing, ErrorCode.REQUEST_TIMED_OUT), one.said_step
        deadline_s = one.received_s + one.timeout_ms / 1000
        for step, at_s, shown in self.timeline:
            if step > one.said_step and at_s < deadline_s:
                missing -= {tp for tp in missing if shown.get(tp) == leaders[tp]}
                if not missing:
                    return codes, step
        ended = next(step for step, at_s in self.moments if at_s >= deadline_s)
        return codes | dict.fromkeys(missing, ErrorCode.REQUEST_TIMED_OUT), ended


@pytest.fixture
async def opened() -> AsyncIterator[list[Load]]:
    """What a test opened is closed."""
    made: list[Load] = []
    yield made
    for load in made:
        await load.close()


async def drawn_step(load: Load, rng: random.Random) -> None:
    """Whatever may happen."""
    partitions = list(load.replicas)
    match rng.choices(("requests", "deliver", "advance", "bounce", "unclean", "move", "moved meanwhile"), (30, 25, 15, 12, 6, 4, 4))[0]:
        case "requests":
            _draw_requests(load, rng)
        case "deliver":
            await load.deliver(rng.choice((1, 1, 2, 5, len(load.held))))
        case "advance":
            await load.advance(rng.choice((0.0005, 0.001, 0.001, 7, 30, 60)))
        case "bounce":
            await load.move_leaders(*rng.sample((1, 2, 3, 4), rng.choice((1, 1, 2))))
        case "unclean":
            await _lose_leader(load, rng.choice(partitions))
        case "move":
            await load.move_controller()
        case "moved meanwhile":
            _draw_requests(load, rng)
            load.stage.world.steal(THIEF)
            _draw_requests(load, rng)
            await load.settle()
            load.stage.world.drop_controller()
    await load.settle()


def _draw_requests(load: Load, rng: random.Random) -> None:
    """Some requests side by side, many of which want the same."""
    partitions = list(load.replicas)
    for _ in range(rng.choice((1, 3, 12))):
        some = rng.sample(partitions, rng.choice((1, 2, 5, 12)))
        load.request(sorted(some), rng.choice((0, -1, 1, MINUTE_MS, MINUTE_MS)), rng.choice((Election.PREFERRED, Election.UNCLEAN)))


async def _lose_leader(load: Load, tp: TopicPartition) -> None:
    """The only replica that is in sync stops, so that a partition has no leader; it comes back later, with `move_leaders`."""
    state = load.stage.world.states[tp]
    for broker in state.isr:
        load.stage.world.stop_broker(broker)
        await load.settle()
    if len(load.stage.world.online()) < 3:
        for broker in (1, 2, 3, 4):
            if load.stage.world.broker_epoch(broker) is None:
                load.stage.world.start_broker(broker)
                await load.settle()


@pytest.mark.requirement("R183-12")
@pytest.mark.requirement("R183-13")
@pytest.mark.requirement("R183-14")
@pytest.mark.requirement("R183-15")
@pytest.mark.requirement("R183-16")
@pytest.mark.requirement("R183-17")
@pytest.mark.parametrize("seed", seeds(12))
async def test_each_request_gets_the_one_right_response_whatever_happens(opened: list[Load], seed: int) -> None:
    rng = random.Random(seed)
    load = Load("t", [tuple(rng.sample((1, 2, 3, 4), 2)) for _ in range(20)])
    opened.append(load)
    await load.open()
    while len(load.asked) < 300:
        await drawn_step(load, rng)
    await load.finish()
    seen = {code for one in load.asked for _, code in one.rows}
    assert {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.NOT_CONTROLLER} <= seen


@pytest.mark.requirement("R183-14")
@pytest.mark.requirement("R183-15")
@pytest.mark.requirement("R183-17")
async def test_a_thousand_requests_in_flight_each_get_the_one_right_response_while_the_controller_moves(opened: list[Load]) -> None:
    """Each request wants a partition of its own and four of its neighbours; the first to name a partition elects for it."""
    count = 1000
    load = Load("t", [(1 + index % 2, 3 + index % 3) for index in range(count + 4)])
    opened.append(load)
    await load.open()
    await load.move_leaders(1, 2)
    await load.deliver(len(load.held))
    partitions = list(load.replicas)
    time_outs = (MINUTE_MS, MINUTE_MS, 1, MINUTE_MS, 0)
    for number in range(count):
        load.request(partitions[number : number + 5], time_outs[number % 5])
    began = time.perf_counter()
    await load.settle()
    print(f"{count} requests elected in {time.perf_counter() - began:.2f} s; {len(load.held)} UpdateMetadata are late")
    assert len(load.services.purgatory) == 4 * count // 5
    await load.advance(0.001)
    assert len(load.services.purgatory) == 3 * count // 5
    await load.deliver(len(load.held) // 3)
    await load.move_controller()
    for number in range(0, count, 7):
        load.request(partitions[number : number + 5], time_outs[number % 5])
    await load.settle()
    load.stage.world.steal(THIEF)
    for number in range(0, count, 50):
        load.request(partitions[number : number + 5], MINUTE_MS)
    await load.settle()
    await load.advance(30)
    await load.deliver(len(load.held) // 2)
    await load.finish()
    ended = [code for one in load.asked for _, code in one.rows]
    assert {code: ended.count(code) for code in sorted(set(ended))}.keys() == {0, 7, 41, 84}
