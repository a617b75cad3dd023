"""Descriptions of groups for commands, and the rows of their tables. The rows are pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from klamm.admin import AsyncAdminClient, CommittedOffset, GroupDescription, GroupState, LogOffset, MemberDescription
from klamm.admin.calls.arguments import by_topic
from klamm.cli.tools.commands import fail_together
from klamm.protocol.nouns import TopicPartition

Committed = Mapping[TopicPartition, CommittedOffset | None]
Row = tuple[object, ...]


@asynccontextmanager
async def described(client: AsyncAdminClient, groups: list[str]) -> AsyncIterator[list[GroupDescription]]:
    """The groups that exist. At the end of the context, raises ToolFailed if there are others."""
    outcome = await client.describe_groups(groups)
    existing = [group for group in outcome.found.values() if group.state is not GroupState.DEAD]
    yield existing
    missing = [f"Consumer group '{group.group_id}' does not exist." for group in outcome.found.values() if group.state is GroupState.DEAD]
    fail_together(missing + [f"Consumer group '{group}': {error}" for group, error in outcome.errors.items()])


def member_row(group: GroupDescription, member: MemberDescription) -> Row:
    """Group, member id, instance id, host, client id, number of partitions, the partitions by topic."""
    partitions = member.partitions or ()
    topics = ", ".join(f"{topic}({','.join(map(str, sorted(numbers)))})" for topic, numbers in sorted(by_topic(partitions).items()))
    return (group.group_id, member.member_id, member.instance_id, member.host, member.client_id, len(partitions), topics or None)


def offset_rows(group: GroupDescription, committed: Committed, ends: Mapping[TopicPartition, LogOffset]) -> list[Row]:
    """A row for each partition that has an offset or a member, then one for each member without partitions. None means unknown.

    Group, topic, partition, committed offset, end of the log, lag, member id, host, client id.
    """
    owners = {partition: member for member in group.members for partition in member.partitions or ()}
    rows: list[Row] = []
    for partition in sorted({*owners, *committed}):
        offset, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        current, last = None if offset is None else offset.offset, None if end is None else end.offset
        lag = None if current is None or last is None else last - current
        rows.append((group.group_id, *partition, current, last, lag, *_owner(owner)))
    idle = [member for member in group.members if not member.partitions]
    return rows + [(group.group_id, None, None, None, None, None, *_owner(member)) for member in idle]


def _owner(member: MemberDescription | None) -> Row:
    return (None, None, None) if member is None else (member.member_id, member.host, member.client_id)
