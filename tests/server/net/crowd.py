"""Many clients at once on few topics: each has a connection to every broker and sends its requests there in bursts, without waiting.

What they ask is drawn from a seed: topics are created, grown, deleted, described and given configs, leaders are elected, ISRs altered
in the name of brokers. Every request must be answered, in order, in time, with a code that its API has for such a moment. Beside the
topics that all of them fight for, each client has one of its own, of which it always knows what must be true of it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.broker_server import BrokerServer
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.decoded import decoded
from klamm.tests.server.wire import Peer

TIMEOUT_MS = 1500
ANSWER_WITHIN_S = 30.0
"""A request may wait for its time-out, for a ZooKeeper that is away and for a busy machine; a minute would be a hang."""
BURST = 6
MOST_PARTITIONS = 12

_COMMON = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_BEING_DELETED = ErrorCode.INVALID_TOPIC_EXCEPTION
EXPECTED: dict[str, frozenset[ErrorCode]] = {
    "CreateTopics": _COMMON | {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR},
    "CreatePartitions": _COMMON | _UNKNOWN | {_BEING_DELETED, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR},
    "DeleteTopics": _COMMON | _UNKNOWN,
    "ElectLeaders": _COMMON
    | _UNKNOWN
    | {_BEING_DELETED, ErrorCode.ELECTION_NOT_NEEDED}
    | {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE},
    "AlterPartition": _COMMON
    | _UNKNOWN
    | {
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INELIGIBLE_REPLICA,
    },
    # there is no controller right now; or it changed between two steps of the write, which Kafka answers so (layout 3.9)
    "IncrementalAlterConfigs": _COMMON | _UNKNOWN | {ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR},
    "Metadata": _COMMON | _UNKNOWN | {ErrorCode.LEADER_NOT_AVAILABLE},
}


class Ask(NamedTuple):
    """A request, its version, and how to find the error codes of its answer."""

    message: Any
    version: int
    codes: Callable[[Any], Iterable[int]]

    @property
    def api(self) -> str:
        return type(self.message).__name__.removesuffix("Request")


def create(topic: str, partitions: int, factor: int) -> Ask:
    request = requests.create_topic(topic, partitions=partitions, factor=factor, timeout_ms=TIMEOUT_MS)
    return Ask(request, 7, lambda answer: (t.error_code for t in answer.topics))


def grow(topic: str, count: int) -> Ask:
    return Ask(requests.create_partitions(topic, count, timeout_ms=TIMEOUT_MS), 3, lambda answer: (t.error_code for t in answer.results))


def delete(topic: str) -> Ask:
    return Ask(requests.delete_topics(topic, timeout_ms=TIMEOUT_MS), 6, lambda answer: (t.error_code for t in answer.responses))


def elect(topics: Iterable[str], election: int) -> Ask:
    types = messages.ElectLeadersRequest
    rows = [types.TopicPartitions(topic=topic, partitions=list(range(4))) for topic in topics]
    request = types(election_type=election, topic_partitions=rows, timeout_ms=TIMEOUT_MS)

    def codes(answer: Any) -> Iterable[int]:
        return [answer.error_code, *(p.error_code for t in answer.replica_election_results for p in t.partition_result)]

    return Ask(request, 2, codes)


def metadata(topic: str) -> Ask:
    return Ask(requests.metadata([topic]), 12, lambda answer: (t.error_code for t in answer.topics))


def configure(topic: str, retention_ms: int) -> Ask:
    return Ask(
        requests.set_configs(requests.TOPIC, topic, {"retention.ms": str(retention_ms)}),
        1,
        lambda answer: (r.error_code for r in answer.responses),
    )


def alter(node: BrokerServer, topic: str, dice: random.Random) -> Ask | None:
    """A broker's proposal for the partitions of a topic that it leads, as far as it knows; None when it leads none."""
    cached = node.metadata.topics.get(topic)
    if cached is None:
        return None
    types = messages.AlterPartitionRequest
    rows = [
        types.PartitionData(
            partition_index=index,
            leader_epoch=p.leader_epoch,
            new_isr=[node.id, *(r for r in p.replicas if r != node.id and dice.random() < 0.7)],
            partition_epoch=p.zk_version,
        )
        for index, p in cached.partitions.items()
        if p.leader == node.id
    ]
    if not rows:
        return None
    request = types(broker_id=node.id, broker_epoch=node.broker_epoch, topics=[types.TopicData(topic_id=cached.topic_id, partitions=rows)])
    return Ask(request, 2, lambda answer: [answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)])


class Pipe:
    """One connection: bursts of requests, and their answers in the same order."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._ids = itertools.count(1)

    @classmethod
    async def open(cls, port: int) -> Pipe:
        return cls(await Peer.connect(port))

    async def burst(self, asks: list[Ask]) -> list[Any]:
        """The decoded answers. Fails when one is late, out of order or missing."""
        sent = []
        frames = []
        for ask in asks:
            number = next(self._ids)
            sent.append(number)
            body = messages.encode(ask.message, ask.version)
            frames.append(bytes(messages.encode_request(KEYS[ask.api], ask.version, number, "crowd", body)))
        self._peer.send(b"".join(frames))
        answers = []
        for ask, number in zip(asks, sent, strict=True):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                payload = await self._peer.answer()
            assert payload is not None, f"the connection was closed instead of an answer to {ask.message!r}"
            correlation_id, offset = messages.decode_response_header(KEYS[ask.api], ask.version, payload)
            assert correlation_id == number
            answers.append(decoded(f"{ask.api}Response", ask.version, payload, offset)[0])
        return answers

    def close(self) -> None:
        self._peer.close()


class CrowdClient:
    """One of the crowd. `own` says what must be true of its own topic: True exists, False does not, None not known."""

    def __init__(self, cluster: LocalCluster, number: int, seed: int, contested: list[str], tally: Counter[str]) -> None:
        self.own_topic = f"own-{number}"
        self.own: bool | None = False
        self._cluster = cluster
        self._dice = random.Random(f"{seed}-{number}")
        self._contested = contested
        self._tally = tally
        self._pipes: dict[int, Pipe] = {}

    async def run(self, over: asyncio.Event) -> None:
        """Send bursts until it is over."""
        try:
            while not over.is_set():
                if self._dice.random() < 0.3:
                    await self._change_own()
                else:
                    await self._quarrel()
        finally:
            for pipe in self._pipes.values():
                pipe.close()

    async def _send(self, broker_id: int, asks: list[Ask]) -> list[list[ErrorCode]]:
        """One burst to one broker; the codes of each answer."""
        pipe = self._pipes.get(broker_id)
        if pipe is None:
            port = next(port for number, _, port in self._cluster.addresses if number == broker_id)
            pipe = self._pipes[broker_id] = await Pipe.open(port)
        answers = await pipe.burst(asks)
        codes = []
        for ask, answer in zip(asks, answers, strict=True):
            codes.append([ErrorCode(code) for code in ask.codes(answer)])
            self._tally[ask.api] += 1
            surprise = set(codes[-1]) - EXPECTED[ask.api]
            assert not surprise, f"{ask.message!r} was answered with {surprise}: {answer!r}"
        return codes

    def _controller(self) -> int:
        """The controller, or whoever is asked in its place."""
        found = self._cluster.controller_id
        return found if found >= 0 else self._dice.choice(self._cluster.addresses)[0]

    async def _quarrel(self) -> None:
        """A burst about the topics of all."""
        dice = self._dice
        topic = dice.choice(self._contested)
        asks: list[Ask] = []
        for _ in range(dice.randint(1, BURST)):
            match dice.randrange(8):
                case 0:
                    asks.append(create(topic, dice.randint(1, 4), dice.randint(1, 3)))
                case 1:
                    asks.append(grow(topic, dice.randint(2, MOST_PARTITIONS)))
                case 2:
                    asks.append(delete(topic))
                case 3:
                    asks.append(elect(dice.sample(self._contested, 2), dice.randint(0, 1)))
                case 4:
                    asks.append(configure(topic, dice.randint(1000, 9999)))
                case 5:
                    asks.append(metadata(topic))
                case _:
                    proposal = alter(dice.choice(self._cluster.brokers), topic, dice)
                    if proposal is not None:
                        asks.append(proposal)
        if asks:
            await self._send(self._controller(), asks)
        await self._send(dice.choice(self._cluster.addresses)[0], [metadata(topic), metadata(dice.choice(self._contested))])

    async def _change_own(self) -> None:
        """Create or delete the topic that is nobody else's, and remember what the answer promises."""
        creates = self.own is False or (self.own is None and self._dice.random() < 0.5)
        ask = create(self.own_topic, 2, 2) if creates else delete(self.own_topic)
        ((code,),) = await self._send(self._controller(), [ask])
        if code is ErrorCode.NONE:
            self.own = creates
        elif code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
            self.own = None  # under way, or cut short by the end of a session: it may take hold or not
        # TOPIC_ALREADY_EXISTS and UNKNOWN_TOPIC_OR_PARTITION tell nothing new: a deletion is acknowledged before the znodes are gone,
        # and the cache of the next controller's broker may be behind that of the last one
