"""The calls of the admin client that go to coordinators: those about groups and transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.admin.caller import Caller
from klamm.admin.calls.results import Described, Listed, PartitionResult, Result
from klamm.admin.calls.values import (
    AnyPartition,
    TopicPartition,
)
from klamm.admin.groups import group_offsets, groups
from klamm.admin.groups.group_values import (
    CommittedOffset,
    GroupDescription,
    GroupPartitions,
    GroupState,
    GroupType,
    ListedGroup,
    MemberToRemove,
)
from klamm.admin.transactions import producers, transactions
from klamm.admin.transactions.transaction_values import (
    ActiveProducer,
    ListedTransaction,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionState,
)


class CoordinatorCalls(Caller):
    """Calls about groups and transactions."""

    # Groups

    async def list_groups(
        self,
        states: Iterable[GroupState | str] | None = None,
        types: Iterable[GroupType | str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Listed[ListedGroup]:
        """The groups of all live brokers by id, sorted. `states` and `types` choose some of them; None means all.

        Each broker lists the groups that it coordinates. A broker that is not reachable, or that is still loading groups at the deadline,
        has an error in `errors`, by its id. Source: key 16; states since 2.6 (KIP-518), types since 3.8 (KIP-848).
        """
        return await self._run(groups.list_groups(states, types, self._time(timeout_ms)))

    async def describe_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Described[str, GroupDescription]:
        """State, protocol and members of each group, from its coordinator. A group that does not exist is DEAD, without an error.

        Groups of the protocol of KIP-848, which brokers in ZooKeeper mode do not have, are DEAD too. Source: key 15.
        """
        return await self._run(groups.describe_groups(group_ids, self._time(timeout_ms)))

    async def list_group_offsets(
        self, group_partitions: GroupPartitions, *, require_stable: bool = False, timeout_ms: int | None = None
    ) -> Described[str, Described[TopicPartition, CommittedOffset | None]]:
        """The committed offsets of groups: `list_group_offsets(["g"])["g"]["orders", 0]`. A mapping names partitions of each group.

        A named partition without an offset, also of a group that does not exist, has None. With `require_stable` a partition whose offset
        a transaction may still change has the error UNSTABLE_OFFSET_COMMIT. Source: key 9; all partitions since 0.10.2, stable offsets
        since 2.5 (KIP-447).
        """
        return await self._run(group_offsets.list_group_offsets(group_partitions, require_stable, self._time(timeout_ms)))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[AnyPartition, int | CommittedOffset], *, timeout_ms: int | None = None
    ) -> PartitionResult:
        """Commit these offsets for a group that has no members; it is created if it does not exist.

        While the group has members, each partition has UNKNOWN_MEMBER_ID. The call raises the error of the group as a whole, such as
        GROUP_AUTHORIZATION_FAILED. Source: key 8.
        """
        return await self._run(group_offsets.alter_group_offsets(group_id, offsets, self._time(timeout_ms)))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, timeout_ms: int | None = None
    ) -> PartitionResult:
        """Delete committed offsets. A partition that has none succeeds; one of a topic that a member reads has GROUP_SUBSCRIBED_TO_TOPIC.

        The call raises the error of the group as a whole: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if its members are not consumers.
        Source: KIP-496, key 47, since 2.4.
        """
        return await self._run(group_offsets.delete_group_offsets(group_id, partitions, self._time(timeout_ms)))

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Result[str]:
        """Delete groups and their offsets. A group with members has NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND.

        Source: key 42, since 1.1.
        """
        return await self._run(groups.delete_groups(group_ids, self._time(timeout_ms)))

    async def remove_members(
        self, group_id: str, members: Iterable[MemberToRemove] | None, *, reason: str | None = None, timeout_ms: int | None = None
    ) -> Result[MemberToRemove]:
        """Remove members from a group, which rebalances. None removes all members. A member that is not in the group has UNKNOWN_MEMBER_ID.

        A consumer that runs joins again. The coordinator logs the reason (KIP-800, since 3.2). Source: KIP-345, key 13. Before 2.4 there
        are no instance ids, and one member can be removed at a time.
        """
        return await self._run(groups.remove_members(group_id, members, reason, self._time(timeout_ms)))

    # Transactions

    async def list_transactions(
        self,
        states: Iterable[TransactionState | str] | None = None,
        producer_ids: Iterable[int] | None = None,
        *,
        min_duration_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Listed[ListedTransaction]:
        """The transactional ids of all live brokers, sorted, in these states and with these producer ids; None means all.

        With `min_duration_ms` only transactions that have been open for longer. Each broker lists the transactional ids that it
        coordinates; one that cannot has an error in `errors`, by its id. Source: KIP-664, key 66, since 3.0; durations since 3.8 (KIP-994).
        """
        return await self._run(transactions.list_transactions(states, producer_ids, min_duration_ms, self._time(timeout_ms)))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Described[str, TransactionDescription]:
        """State, producer and open partitions of each transactional id, from its coordinator.

        One that does not exist has TRANSACTIONAL_ID_NOT_FOUND. Source: KIP-664, key 65, since 3.0.
        """
        return await self._run(transactions.describe_transactions(transactional_ids, self._time(timeout_ms)))

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, broker_id: int | None = None, timeout_ms: int | None = None
    ) -> Described[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that the leader of each partition knows, with their open transactions. `broker_id` names another replica; a
        partition that it does not have has NOT_LEADER_OR_FOLLOWER. Source: KIP-664, key 61, since 2.8.
        """
        return await self._run(producers.describe_producers(partitions, broker_id, self._time(timeout_ms)))

    async def abort_transaction(
        self,
        partition: tuple[str, int],
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Abort a hanging transaction in a partition: its leader writes an abort marker. The coordinator does not learn of it.

        Producer id and epoch are those that `describe_producers` shows, and its coordinator epoch, or 0 if that is None. Use it only for a
        transaction that its coordinator has forgotten. Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED and other errors of
        the partition. Source: KIP-664, key 27.
        """
        call = producers.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch, self._time(timeout_ms))
        return await self._run(call)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Described[str, ProducerIdAndEpoch]:
        """Fence the producers of each transactional id, by a new epoch, which is returned. Their open transactions are aborted.

        A transactional id that does not exist is created. Source: KIP-664, key 22, since 0.11.
        """
        return await self._run(transactions.fence_producers(transactional_ids, self._time(timeout_ms)))
