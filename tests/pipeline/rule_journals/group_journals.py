"""Requests of members of a group `g` and the responses of its coordinator, for the fixtures of rules about groups."""

from __future__ import annotations

from struct import pack

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rules.fixtures import Run
from klamm.tests.pipeline.rules.fixtures_wire import broker

GROUP = "g"
REBALANCE_IN_PROGRESS = 27
Owned = dict[str, list[int]]
"""Topic → partitions."""


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + names + pack(">i", -1)


def assignment(owned: Owned) -> bytes:
    """A consumer's assignment, version 0."""
    parts = b"".join(
        pack(">h", len(topic)) + topic.encode() + pack(f">i{len(indexes)}i", len(indexes), *indexes) for topic, indexes in owned.items()
    )
    return pack(">hi", 0, len(owned)) + parts + pack(">i", -1)


class GroupJournal:
    """The journal of a broker that coordinates the group. Every method returns the seq of the response, if not otherwise said."""

    def __init__(self, run: Run, node: int = 1, protocol_type: str = "consumer") -> None:
        self.journal = broker(run, node)
        self.protocol_type = protocol_type
        self.session_ms = 6000

    def ask_join(self, member: str, *, instance: str | None = None, conn: int = 1) -> int:
        """A JoinGroup request; its seq."""
        protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol("range", subscription("t"))
        request = messages.JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=self.session_ms, rebalance_timeout_ms=6000, member_id=member, group_instance_id=instance,
            protocol_type=self.protocol_type, protocols=[protocol],
        )
        return int(self.journal.request(conn, ApiKey.JOIN_GROUP, 6, request))

    def join(
        self, member: str, generation: int, leader: str, members: tuple[str, ...] = (), *, asked_as: str | None = None,
        instance: str | None = None, protocol: str = "range", error: int = 0, conn: int = 1,
    ) -> int:
        """JoinGroup and its response; the leader gets the members."""
        asked = self.ask_join(member if asked_as is None else asked_as, instance=instance, conn=conn)
        row = messages.JoinGroupResponse.JoinGroupResponseMember
        response = messages.JoinGroupResponse(
            error_code=error, generation_id=generation, protocol_name=protocol, leader=leader, member_id=member,
            members=[row(each, None, subscription("t")) for each in members],
        )
        return int(self.journal.response(conn, asked, response))

    def ask_sync(
        self, member: str, generation: int, sent: dict[str, bytes] | None = None, *, instance: str | None = None, conn: int = 1
    ) -> int:
        """A SyncGroup request; its seq."""
        row = messages.SyncGroupRequest.SyncGroupRequestAssignment
        request = messages.SyncGroupRequest(
            group_id=GROUP, generation_id=generation, member_id=member, group_instance_id=instance,
            assignments=[row(*each) for each in (sent or {}).items()],
        )
        return int(self.journal.request(conn, ApiKey.SYNC_GROUP, 3, request))

    def sync(
        self, member: str, generation: int, given: bytes = b"", sent: dict[str, bytes] | None = None, *, instance: str | None = None,
        error: int = 0,
    ) -> int:
        """SyncGroup and its response."""
        asked = self.ask_sync(member, generation, sent, instance=instance)
        return int(self.journal.response(1, asked, messages.SyncGroupResponse(error_code=error, assignment=given)))

    def leave(self, *members: str, version: int = 4, error: int = 0, instances: tuple[str, ...] = ()) -> int:
        """LeaveGroup and its response; an error is that of each member, or of the group before version 3."""
        request, response = messages.LeaveGroupRequest, messages.LeaveGroupResponse
        named = [(member, None) for member in members] + [("", instance) for instance in instances]
        asked = self.journal.request(1, ApiKey.LEAVE_GROUP, version, request(
            group_id=GROUP, member_id=members[0] if version < 3 else "",
            members=[request.MemberIdentity(member, instance) for member, instance in named] if version >= 3 else [],
        ))
        rows = [response.MemberResponse(member, instance, error) for member, instance in named] if version >= 3 else []
        return int(self.journal.response(1, asked, response(error_code=error if version < 3 else 0, members=rows)))

    def delete(self, error: int = 0) -> int:
        """DeleteGroups of the group and another one, and its response."""
        response = messages.DeleteGroupsResponse
        asked = self.journal.request(3, ApiKey.DELETE_GROUPS, 2, messages.DeleteGroupsRequest(["other", GROUP]))
        results = [response.DeletableGroupResult("other", 0), response.DeletableGroupResult(GROUP, error)]
        return int(self.journal.response(3, asked, response(results=results)))

    def heartbeat(self, member: str, generation: int = 1, error: int = 0, *, instance: str | None = None) -> int:
        request = messages.HeartbeatRequest(GROUP, generation, member, instance)
        asked = self.journal.request(1, ApiKey.HEARTBEAT, 3, request)
        return int(self.journal.response(1, asked, messages.HeartbeatResponse(error_code=error)))

    def ask_commit(self, member: str, generation: int, offset: int, *, version: int = 8, retention_ms: int = -1, conn: int = 1) -> int:
        """OffsetCommit of t-0; its seq."""
        kind = messages.OffsetCommitRequest
        rows = [kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")]
        topics = [kind.OffsetCommitRequestTopic("t", partitions=rows)]
        request = kind(
            group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member, retention_time_ms=retention_ms, topics=topics,
        )
        return int(self.journal.request(conn, ApiKey.OFFSET_COMMIT, version, request))

    def answer_commit(self, asked: int, error: int = 0, *, conn: int = 1) -> int:
        kind = messages.OffsetCommitResponse
        rows = [kind.OffsetCommitResponsePartition(0, error)]
        return int(self.journal.response(conn, asked, kind(topics=[kind.OffsetCommitResponseTopic("t", partitions=rows)])))

    def commit(self, member: str, generation: int, offset: int, error: int = 0, *, version: int = 8, retention_ms: int = -1) -> int:
        asked = self.ask_commit(member, generation, offset, version=version, retention_ms=retention_ms)
        return self.answer_commit(asked, error)

    def ask_fetch(self, *, version: int = 8, conn: int = 2) -> int:
        """OffsetFetch of t-0; its seq."""
        kind = messages.OffsetFetchRequest
        if version >= 8:
            topic = kind.OffsetFetchRequestTopics("t", partition_indexes=[0])
            request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
        else:
            request = kind(group_id=GROUP, topics=[kind.OffsetFetchRequestTopic("t", [0])])
        return int(self.journal.request(conn, ApiKey.OFFSET_FETCH, version, request))

    def answer_fetch(self, asked: int, offset: int, *, version: int = 8, conn: int = 2) -> int:
        kind = messages.OffsetFetchResponse
        if version >= 8:
            rows = [kind.OffsetFetchResponsePartitions(0, offset, -1, "", 0)]
            response = kind(groups=[kind.OffsetFetchResponseGroup(GROUP, [kind.OffsetFetchResponseTopics("t", partitions=rows)], 0)])
        else:
            old_rows = [kind.OffsetFetchResponsePartition(0, offset, -1, "", 0)]
            response = kind(topics=[kind.OffsetFetchResponseTopic("t", old_rows)])
        return int(self.journal.response(conn, asked, response))

    def fetch(self, offset: int, *, version: int = 8) -> int:
        return self.answer_fetch(self.ask_fetch(version=version), offset, version=version)

    def txn_commit(self, offset: int, error: int = 0, *, producer: int = 7) -> int:
        """TxnOffsetCommit of t-0, and its response."""
        request, response = messages.TxnOffsetCommitRequest, messages.TxnOffsetCommitResponse
        rows = [request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")]
        topics = [request.TxnOffsetCommitRequestTopic("t", partitions=rows)]
        asked = self.journal.request(
            1, ApiKey.TXN_OFFSET_COMMIT, 3,
            request(transactional_id="tx", group_id=GROUP, producer_id=producer, producer_epoch=0, generation_id=-1, topics=topics),
        )
        results = [response.TxnOffsetCommitResponsePartition(0, error)]
        return int(self.journal.response(1, asked, response(topics=[response.TxnOffsetCommitResponseTopic("t", partitions=results)])))

    def told_to_lead(self, leader_epoch: int, *, leader: int = 1, conn: int = 90) -> int:
        """LeaderAndIsr for a partition of the offsets topic; the seq of the request."""
        kind = messages.LeaderAndIsrRequest
        state = kind.LeaderAndIsrPartitionState(
            topic_name="__consumer_offsets", partition_index=0, controller_epoch=1, leader=leader, leader_epoch=leader_epoch, isr=[1, 2],
            partition_epoch=leader_epoch, replicas=[1, 2],
        )
        topic = kind.LeaderAndIsrTopicState(topic_name="__consumer_offsets", topic_id=bytes(15) + b"\1", partition_states=[state])
        request = kind(
            controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic],
            live_leaders=[kind.LeaderAndIsrLiveLeader(leader, "h", 9092)],
        )
        asked = int(self.journal.request(conn, ApiKey.LEADER_AND_ISR, 7, request))
        row = messages.LeaderAndIsrResponse
        errors = [row.LeaderAndIsrTopicError(topic_id=bytes(15) + b"\1", partition_errors=[row.LeaderAndIsrPartitionError("", 0, 0)])]
        self.journal.response(conn, asked, messages.LeaderAndIsrResponse(topics=errors))
        return asked
