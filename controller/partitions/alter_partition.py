"""AlterPartition: leaders change their ISR through the controller (controller 14).

Waiting requests are handled together: their writes go out in one commit and their partitions in one UpdateMetadata, as long as
no partition occurs twice; the second request for a partition waits for the first one's write. Of a partition that one request names
twice the last entry counts. The ISR changes, the leader epoch does not, and no LeaderAndIsr is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.decisions.decision import Decision, Keep, Refusal, Refuse, Situation, Write
from klamm.controller.partitions.commit import Uncommitted, commit_decided
from klamm.controller.phases import IsrsAltered
from klamm.controller.term.term import Term
from klamm.controller.values import RECOVERED, RECOVERING, LeaderAndIsr, Proposal, WriteOutcome
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.identity_memo import IdentityMemo
from klamm.seams.pace import Pace
from klamm.seams.value_class import dataclass

if TYPE_CHECKING:
    _TopicData = messages.AlterPartitionRequest.TopicData
    _PartitionData = messages.AlterPartitionRequest.PartitionData

log = logging.getLogger("klamm.controller")

_NONE = int(ErrorCode.NONE)
_NO_BROKERS: frozenset[int] = frozenset()
_broker_id = attrgetter("broker_id")
_index = attrgetter("partition_index")
_fields = attrgetter("partition_index", "leader_epoch", "new_isr", "new_isr_with_epochs", "leader_recovery_state", "partition_epoch")


def judge(info: LeaderAndIsr, proposal: Proposal, alive: frozenset[int]) -> ErrorCode | None:
    """The first failing check of the table in controller 14; NONE where nothing would change, None where the change is due.

    Changes that Apache Kafka writes although they make a leader impossible are refused last, so that every error of Apache Kafka is the
    same.
    """
    if proposal.partition_epoch > info.partition_epoch or proposal.leader_epoch > info.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < info.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader == info.leader and proposal.isr == info.isr and proposal.recovery == info.recovery:
        return ErrorCode.NONE
    if proposal.partition_epoch < info.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if proposal.recovery == RECOVERING and (len(proposal.isr) > 1 or info.recovery == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    for member in proposal.isr:
        if member not in alive:
            return _not_eligible(proposal.version)
    if proposal.leader != info.leader or not proposal.isr:
        return ErrorCode.INVALID_REQUEST  # a second leader of one leader epoch, no leader ever
    return None


def _not_eligible(version: int) -> ErrorCode:
    """The leader goes on with the ISR that it has."""
    return ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED


def _joins_unassigned(isr: Ints, before: Ints, replicas: Ints) -> bool:
    """Whether a broker is to join that has no replica of the partition.

    It had one: a reassignment was replaced or cancelled, and the controller ended before it told the leader.
    """
    return any(member not in replicas and member not in before for member in isr)


@dataclass(frozen=True, slots=True)
class AlterIsr:
    """What a leader proposes for one partition is judged, and becomes its state."""

    def __call__(self, situation: Situation) -> Decision:
        state, proposal = situation.state, situation.proposal
        if state is None or proposal is None:
            return Refuse(Refusal.NO_STATE)
        error = judge(state, proposal, situation.alive)
        if error is ErrorCode.NONE:
            return Keep(state, None)
        if error is None and _joins_unassigned(proposal.isr, state.isr, situation.assignment.replicas):
            error = _not_eligible(proposal.version)
        if error is not None:
            return Refuse(error, at_once=True)
        after = LeaderAndIsr(
            proposal.leader, state.leader_epoch, proposal.isr, proposal.recovery, state.partition_epoch + 1, situation.controller_epoch
        )
        return Write(after, None)


_ALTER_ISR = AlterIsr()


class PendingResponse:
    """A request's response while it is put together; rows of partitions being written are filled in later."""

    __slots__ = ("error", "topics", "version")

    def __init__(self, version: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.version = version
        self.error = error
        self.topics: list[tuple[_TopicData, list[Any]]] = []

    def response(self) -> messages.AlterPartitionResponse:
        response = messages.AlterPartitionResponse
        topic_data = response.TopicData
        named = self.version < 2
        topics = [
            topic_data(topic_name=t.topic_name, partitions=rows) if named else topic_data(topic_id=t.topic_id, partitions=rows)
            for t, rows in self.topics
        ]
        return response(error_code=self.error, topics=topics)


class _Verdict(NamedTuple):
    """What was decided about partitions with the same state, replicas and proposal."""

    situation: Situation
    decision: Decision
    judged: list[TopicPartition]
    """For an observer."""


class Altered(NamedTuple):
    """What became of AlterPartition requests."""

    responses: list[messages.AlterPartitionResponse]
    reassigned: Collection[Partition]
    """Partitions without an error that are being reassigned: their reassignment may be complete now."""


class _Joined:
    """The proposals of some requests that are due, not yet committed."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.settled: dict[Partition, None] = {}
        self.reassigning = term.cluster.reassigning
        self.due: dict[Partition, Write] = {}
        self.slots: list[tuple[Partition, list[Any], int]] = []
        self.named: dict[Partition, None] = {}
        self._verdicts: IdentityMemo[_Verdict] = IdentityMemo()

    def decide(
        self, p: Partition, info: LeaderAndIsr, version: int, leader: int, leader_epoch: int, isr: Ints, recovery: int, partition_epoch: int
    ) -> Decision:
        """Judge a proposal. Partitions with the same state and assignment (the objects) and the same proposal share the decision."""
        cluster, assignment, is_queued = self.term.cluster, p.assignment, p.topic.queued
        offline_dirs = cluster.offline_dirs_of(p) if cluster.offline_dirs else _NO_BROKERS
        key = (id(info), id(assignment), version, leader, leader_epoch, isr, recovery, partition_epoch, offline_dirs, is_queued)
        found = self._verdicts.get(key)
        if found is None:
            proposal = Proposal(leader, leader_epoch, isr, recovery, partition_epoch, version)
            situation = Situation(
                info, assignment, cluster.registered, frozenset(cluster.shutting_down), offline_dirs, cluster.epoch, is_queued, proposal
            )
            found = self._verdicts.keep(key, _Verdict(situation, _ALTER_ISR(situation), []), info, assignment)
        if self.term.observer is not None:
            found.judged.append(p.key)
        return found.decision

    def _show(self) -> None:
        """The observer gets each decision once, with the partitions that it is about."""
        observer = self.term.observer
        if observer is not None:
            for situation, decision, judged in self._verdicts.values():
                observer.decided(_ALTER_ISR, situation, tuple(judged), decision)
        self._verdicts.clear()

    async def flush(self) -> None:
        """Commit, fill in the rows, send UpdateMetadata."""
        term = self.term
        self._show()
        row = messages.AlterPartitionResponse.PartitionData
        commits = await commit_decided(term, self.due)
        committed = commits.committed
        for p, rows, at in self.slots:
            state = committed.get(p)
            if state is None:
                rows[at] = row(partition_index=p.index, error_code=_error(commits.uncommitted[p]))
            else:
                rows[at] = _row(p.index, state)
        if self.reassigning:
            self.settled.update(dict.fromkeys(p for p in committed if p in self.reassigning))
        lost = [(p, why.state) for p, why in commits.uncommitted.items() if why.state is not None]
        term.cluster.states_changed([p for p, _ in lost], [state for _, state in lost])
        named = self.named
        await term.reach(lambda: IsrsAltered(term.cluster.epoch, tuple(p.key for p in named)))
        with term.sender.batch() as batch:
            batch.update_metadata_everywhere(named)
        self.due, self.slots, self.named = {}, [], {}


def _error(why: Uncommitted) -> ErrorCode:
    """The proposal was valid for that state, but another writer changed the state meanwhile, or the write failed."""
    return ErrorCode.INVALID_UPDATE_VERSION if why.outcome is WriteOutcome.BAD_VERSION else ErrorCode.UNKNOWN_SERVER_ERROR


def _row(index: int, state: LeaderAndIsr) -> messages.AlterPartitionResponse.PartitionData:
    row = messages.AlterPartitionResponse.PartitionData
    return row(index, _NONE, state.leader, state.leader_epoch, state.isr, state.recovery, state.partition_epoch)


async def alter_partitions(term: Term, requests: Sequence[tuple[messages.AlterPartitionRequest, int]]) -> Altered:
    """Handle (request, version) in order. The responses are in the same order."""
    cluster = term.cluster
    joined = _Joined(term)
    pending: list[PendingResponse] = []
    pace = Pace()
    for request, version in requests:
        pending.append(response := PendingResponse(version, _top_level(cluster, request, version)))
        if response.error is not ErrorCode.NONE:
            continue
        for topic, topic_data, partitions in _by_topic(cluster, request.topics, version):
            await pace(len(topic_data.partitions))
            rows: list[Any] = []
            response.topics.append((topic_data, rows))
            await _topic(term, joined, request.broker_id, version, topic, partitions, rows)
    if any(p.error is ErrorCode.NONE for p in pending):  # a request that is refused as a whole causes no UpdateMetadata
        await joined.flush()
    return Altered([p.response() for p in pending], joined.settled)


def _top_level(cluster: Cluster, request: messages.AlterPartitionRequest, version: int) -> ErrorCode:
    broker = cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    known = request.topics if version < 2 else [t for t in request.topics if t.topic_id in cluster.topics_by_id]
    if any(p.leader_recovery_state not in (RECOVERED, RECOVERING) for t in known for p in t.partitions):
        log.error("AlterPartition of broker %d names an unknown leader recovery state", request.broker_id)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _by_topic(
    cluster: Cluster, topics: Sequence[_TopicData], version: int
) -> Iterator[tuple[Topic | None, _TopicData, Iterable[_PartitionData]]]:
    """Each topic of a request once, with an element that names it and its partitions. The last entry of a partition counts.

    A topic without partitions is left out. A row with an unknown id is kept as it is.
    """
    by_key: dict[str | bytes, tuple[Topic | None, _TopicData, dict[int, _PartitionData]]] = {}
    for element in topics:
        topic = cluster.topics.get(element.topic_name) if version < 2 else cluster.topics_by_id.get(element.topic_id)
        if topic is None and version >= 2:
            yield None, element, element.partitions
        elif element.partitions:
            key = element.topic_name if version < 2 else element.topic_id
            by_key.setdefault(key, (topic, element, {}))[2].update(zip(map(_index, element.partitions), element.partitions, strict=True))
    for topic, element, partitions in by_key.values():
        yield topic, element, partitions.values()


async def _topic(
    term: Term, joined: _Joined, leader: int, version: int, topic: Topic | None,
    partitions: Iterable[_PartitionData], rows: list[Any],
) -> None:
    row = messages.AlterPartitionResponse.PartitionData
    with_epochs = version >= 3
    for index, leader_epoch, old_isr, new_isr, recovery, partition_epoch in map(_fields, partitions):
        if topic is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 2 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(row(partition_index=index, error_code=unknown))
            continue
        p = topic.partitions.get(index)
        if p is not None and p in joined.due:
            await joined.flush()
        info = None if p is None else p.info
        if p is None or info is None:
            rows.append(row(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        isr = term.cluster.shared[tuple(map(_broker_id, new_isr)) if with_epochs else tuple(old_isr)]
        decision = joined.decide(p, info, version, leader, leader_epoch, isr, recovery, partition_epoch)
        joined.named[p] = None
        if isinstance(decision, Write):
            joined.due[p] = decision
            joined.slots.append((p, rows, len(rows)))
            rows.append(None)
            continue
        if isinstance(decision, Keep):
            rows.append(_row(index, info))
            if joined.reassigning and p in joined.reassigning:
                joined.settled[p] = None
        else:
            rows.append(row(partition_index=index, error_code=decision.reason))
