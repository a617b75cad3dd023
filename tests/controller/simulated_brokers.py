"""Simulated brokers, as the controller's channels see them: they decode every request, apply the rules a broker applies (controller 15,
as far as epochs go), answer, and remember what they were told.

Requests stand in the world's journal from the moment they are sent; a broker takes them in, and its answers come back, on later turns
of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.simulated import SimulatedWorld

NAMES = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}

STALE_CONTROLLER_EPOCH, STORAGE_ERROR = 11, 56


class SentFrame(NamedTuple):
    """A request as it was sent."""

    broker: int
    api_key: int
    version: int
    body: bytes

    @property
    def request(self) -> Any:
        return _decoded(self.api_key, self.version, self.body)


@lru_cache(maxsize=1000)
def _decoded(api_key: int, version: int, body: bytes) -> Any:
    """The request, which nobody changes: its broker and several checks look at it."""
    return messages.decode(f"{NAMES[api_key]}Request", version, body)[0]


@dataclass
class ToldBroker:
    """What one broker process knows."""

    epoch: int
    controller_epoch: int = 0
    metadata: dict[TopicPartition, Any] = field(default_factory=dict)
    roles: dict[TopicPartition, Any] = field(default_factory=dict)
    stopped: set[TopicPartition] = field(default_factory=set)
    """Replicas that do not fetch: they were stopped, and have no new role since."""
    live: set[int] = field(default_factory=set)


class Proposal(NamedTuple):
    """The ISR that a leader wants, and what it goes by."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


def proposals(world: SimulatedWorld, told: dict[int, ToldBroker]) -> dict[TopicPartition, Proposal]:
    """What leaders propose when every follower that runs has caught up: all replicas that they were told of, and that follow them.

    A replica follows when it was told of the same leader and leader epoch, and was not stopped since. A leader that was not told of the
    newest epoch proposes nothing; one that recovers proposes that it has.
    """
    found: dict[TopicPartition, Proposal] = {}
    for key, state in world.states.items():
        known = told.get(state.leader)
        role = None if known is None or not _runs(world, state.leader, known, key) else known.roles.get(key)
        if known is None or role is None or (role.leader, role.leader_epoch) != (state.leader, state.leader_epoch):
            continue
        if state.recovery:
            found[key] = Proposal(state.leader, state.leader_epoch, state.partition_epoch, state.isr)
            continue
        joined = [r for r in role.replicas if r not in state.isr and r in known.live and _follows(world, told, r, key, role)]
        if joined:
            found[key] = Proposal(state.leader, state.leader_epoch, state.partition_epoch, (*state.isr, *joined))
    return found


def _runs(world: SimulatedWorld, broker_id: int, known: ToldBroker, key: TopicPartition) -> bool:
    return world.broker_epoch(broker_id) == known.epoch and key not in known.stopped and (broker_id, key) not in world.offline_dirs


def _follows(world: SimulatedWorld, told: dict[int, ToldBroker], broker_id: int, key: TopicPartition, leader: Any) -> bool:
    known = told.get(broker_id)
    role = None if known is None or not _runs(world, broker_id, known, key) else known.roles.get(key)
    return role is not None and (role.leader, role.leader_epoch) == (leader.leader, leader.leader_epoch)


class SimulatedBrokers:
    """Channels of one controller process to the brokers of a World."""

    def __init__(self, world: SimulatedWorld, told: dict[int, ToldBroker]) -> None:
        self.world = world
        self.told = told
        self.open: set[int] = set()
        self.dead = False
        self.silent: set[int] = set()
        """Brokers that take requests in but whose answers are held back."""
        self.held: list[Callable[[], None]] = []

    def add_broker(self, broker_id: int, host: str, port: int) -> None:
        self.open.add(broker_id)

    def remove_broker(self, broker_id: int) -> None:
        self.open.discard(broker_id)

    def close(self) -> None:
        self.open.clear()

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        body: bytes,
        on_response: Callable[[Any], None] | None,
        ignorable: Callable[[bytes, int], bool] | None = None,
        event: int | None = None,
        batch: int | None = None,
    ) -> None:
        if broker_id in self.open:
            frame = SentFrame(broker_id, api_key, version, body)
            self.world.journal.append(frame)
            asyncio.get_running_loop().call_soon(self._deliver, frame, on_response, ignorable)

    def release(self) -> None:
        """Answers that were held back arrive, and no more are."""
        self.silent.clear()
        held, self.held = self.held, []
        for answer in held:
            answer()

    def _deliver(
        self, frame: SentFrame, on_response: Callable[[Any], None] | None, ignorable: Callable[[bytes, int], bool] | None
    ) -> None:
        if self.dead or self.world.broker_epoch(frame.broker) is None or frame.broker not in self.open:
            return
        response = self.respond(frame)
        if response is None or on_response is None:
            return

        def answer() -> None:
            if self.dead or frame.broker not in self.open:
                return
            if ignorable is None or not ignorable(b"head" + messages.encode(response, frame.version), 4):
                on_response(response)

        if frame.broker in self.silent:
            self.held.append(answer)
        else:
            asyncio.get_running_loop().call_soon(answer)

    def respond(self, frame: SentFrame) -> Any:
        """A registered broker acts on a request; None where it refuses it, with an error that the controller ignores."""
        epoch = self.world.broker_epoch(frame.broker)
        assert epoch is not None
        told = self.told.get(frame.broker)
        if told is None or told.epoch != epoch:
            told = self.told[frame.broker] = ToldBroker(epoch)
        request = frame.request
        if request.broker_epoch < told.epoch or request.controller_epoch < told.controller_epoch:
            return None
        told.controller_epoch = request.controller_epoch
        return getattr(self, NAMES[frame.api_key])(frame.broker, told, request)

    def LeaderAndIsr(self, broker_id: int, told: ToldBroker, request: Any) -> Any:
        response = messages.LeaderAndIsrResponse
        topics = []
        for t in request.topic_states:
            rows = []
            for p in t.partition_states:
                key = TopicPartition(t.topic_name, p.partition_index)
                before = told.roles.get(key)
                error = 0
                if (broker_id, key) in self.world.offline_dirs:
                    error = STORAGE_ERROR
                elif before is None or p.leader_epoch > before.leader_epoch:
                    told.roles[key] = p
                    told.stopped.discard(key)
                else:
                    error = STALE_CONTROLLER_EPOCH
                rows.append(response.LeaderAndIsrPartitionError(partition_index=p.partition_index, error_code=error))
            topics.append(response.LeaderAndIsrTopicError(topic_id=t.topic_id, partition_errors=rows))
        return response(topics=topics)

    def UpdateMetadata(self, broker_id: int, told: ToldBroker, request: Any) -> Any:
        told.live = {b.id for b in request.live_brokers}
        for t in request.topic_states:
            for p in t.partition_states:
                key = TopicPartition(t.topic_name, p.partition_index)
                if p.leader == -2:
                    told.metadata.pop(key, None)
                else:
                    told.metadata[key] = p
        return messages.UpdateMetadataResponse()

    def StopReplica(self, broker_id: int, told: ToldBroker, request: Any) -> Any:
        response = messages.StopReplicaResponse
        rows = []
        for t in request.topic_states:
            for p in t.partition_states:
                key = TopicPartition(t.topic_name, p.partition_index)
                error = 0
                told.stopped.add(key)
                if p.delete_partition:
                    if (broker_id, key) in self.world.undeletable | self.world.offline_dirs:
                        error = STORAGE_ERROR
                    else:
                        told.roles.pop(key, None)
                rows.append(response.StopReplicaPartitionError(key.topic, key.partition, error))
        return response(partition_errors=rows)
