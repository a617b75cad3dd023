"""Groups: listed, described, deleted, and their members removed (keys 16, 15, 42 and 13)."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.calls.arguments import check_group, check_iterable, check_timeout
from klamm.admin.calls.errors import AdminError, Unsupported, error_of, response_error
from klamm.admin.calls.results import Described, Listed, Result
from klamm.admin.calls.scope import Scope
from klamm.admin.groups.group_values import GroupDescription, GroupState, GroupType, ListedGroup, MemberDescription, MemberToRemove
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.admin.routing.coordinators import RETRIED, KeyType, each_to_coordinator
from klamm.admin.routing.list_at_brokers import list_at_brokers
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

_STATES_SINCE, _TYPES_SINCE = 4, 5
_MANY_MEMBERS_SINCE = 3
REASON = "member was removed by an admin"
"""The reason in a LeaveGroup request, as Kafka's admin client sends it."""


def list_groups(
    states: Iterable[GroupState | str] | None, types: Iterable[GroupType | str] | None, timeout_ms: int
) -> Call[Listed[ListedGroup]]:
    """See `AdminClient.list_groups`."""
    wanted_states = () if states is None else tuple(GroupState(state) for state in check_iterable(states, "states"))
    wanted_types = () if types is None else tuple(GroupType(kind) for kind in check_iterable(types, "types"))

    def make(version: int) -> messages.ListGroupsRequest:
        if wanted_states and version < _STATES_SINCE:
            raise Unsupported("the broker is older than Kafka 2.6 and does not list groups by state")
        if wanted_types and version < _TYPES_SINCE:
            raise Unsupported("the broker is older than Kafka 3.8 and does not list groups by type")
        return messages.ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)

    def read(response: messages.ListGroupsResponse, version: int, broker: int) -> dict[str, ListedGroup]:
        return {
            row.group_id: ListedGroup(
                row.group_id,
                row.protocol_type,
                _state(row.group_state) if version >= _STATES_SINCE else None,
                _type(row.group_type) if version >= _TYPES_SINCE else None,
                broker,
            )
            for row in response.groups
        }

    async def run(session: Session, scope: Scope) -> Listed[ListedGroup]:
        return await list_at_brokers(session, scope, ApiKey.LIST_GROUPS, make, read)

    return Call(check_timeout(timeout_ms), run)


def describe_groups(groups: Iterable[str], timeout_ms: int) -> Call[Described[str, GroupDescription]]:
    """See `AdminClient.describe_groups`."""
    wanted = [check_group(group) for group in check_iterable(groups, "groups")]

    async def run(session: Session, scope: Scope) -> Described[str, GroupDescription]:
        return Described.of(await _describe(session, scope, wanted))

    return Call(check_timeout(timeout_ms), run)


async def _describe(session: Session, scope: Scope, groups: list[str]) -> dict[str, GroupDescription | AdminError]:
    async def send(broker: int, some: list[str]) -> dict[str, GroupDescription | AdminError]:
        def make(version: int) -> messages.DescribeGroupsRequest:
            return messages.DescribeGroupsRequest(groups=some)

        response, _ = await session.to_broker(scope, broker, ApiKey.DESCRIBE_GROUPS, make, scope.attempt())
        return {row.group_id: error_of(row.error_code) or _description(row, broker) for row in response.groups}

    return await each_to_coordinator(session, scope, KeyType.GROUP, groups, send)


def _description(row: messages.DescribeGroupsResponse.DescribedGroup, broker: int) -> GroupDescription:
    members = tuple(
        MemberDescription(
            one.member_id, one.group_instance_id, one.client_id, one.client_host, bytes(one.member_metadata), bytes(one.member_assignment)
        )
        for one in row.members
    )
    return GroupDescription(row.group_id, _state(row.group_state), row.protocol_type, row.protocol_data, members, broker)


def delete_groups(groups: Iterable[str], timeout_ms: int) -> Call[Result[str]]:
    """See `AdminClient.delete_groups`."""
    wanted = [check_group(group) for group in check_iterable(groups, "groups")]

    async def run(session: Session, scope: Scope) -> Result[str]:
        async def send(broker: int, some: list[str]) -> dict[str, AdminError | None]:
            def make(version: int) -> messages.DeleteGroupsRequest:
                return messages.DeleteGroupsRequest(groups_names=some)

            response, _ = await session.to_broker(scope, broker, ApiKey.DELETE_GROUPS, make, scope.attempt())
            return {row.group_id: error_of(row.error_code) for row in response.results}

        return Result(await each_to_coordinator(session, scope, KeyType.GROUP, wanted, send))

    return Call(check_timeout(timeout_ms), run)


def remove_members(
    group: str, members: Iterable[MemberToRemove] | None, reason: str | None, timeout_ms: int
) -> Call[Result[MemberToRemove]]:
    """See `AdminClient.remove_members`."""
    group_id = check_group(group)
    named = None if members is None else list(dict.fromkeys(_member(member) for member in check_iterable(members, "members")))
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"the reason must be a str or None, not {reason!r}")
    text = REASON if not reason else f"{REASON}: {reason}"

    async def run(session: Session, scope: Scope) -> Result[MemberToRemove]:
        leaving = await _members_of(session, scope, group_id) if named is None else named
        if not leaving:
            return Result({})

        async def send(broker: int, _group: list[str]) -> dict[str, Outcomes[MemberToRemove] | AdminError]:
            response, version = await session.to_broker(
                scope, broker, ApiKey.LEAVE_GROUP, lambda version: _leave(group_id, leaving, text, version), scope.attempt()
            )
            whole = error_of(response.error_code)
            if version < _MANY_MEMBERS_SINCE and not (whole is not None and whole.code in RETRIED):
                return {group_id: {leaving[0]: whole}}
            return {group_id: whole or _left(response, leaving)}

        outcome = (await each_to_coordinator(session, scope, KeyType.GROUP, [group_id], send))[group_id]
        if isinstance(outcome, AdminError):
            raise outcome
        return Result(outcome)

    return Call(check_timeout(timeout_ms), run)


async def _members_of(session: Session, scope: Scope, group: str) -> list[MemberToRemove]:
    """All members: static ones by their instance ids, the others by their member ids. Raises the group's error."""
    description = (await _describe(session, scope, [group]))[group]
    if isinstance(description, AdminError):
        raise description
    return [
        MemberToRemove(member_id=member.member_id) if member.instance_id is None else MemberToRemove(member.instance_id)
        for member in description.members
    ]


def _leave(group: str, leaving: list[MemberToRemove], reason: str, version: int) -> messages.LeaveGroupRequest:
    """Versions before 3 have one member, which has no instance id."""
    request = messages.LeaveGroupRequest
    if version >= _MANY_MEMBERS_SINCE:
        members = [
            request.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id, reason=reason) for member in leaving
        ]
        return request(group_id=group, members=members)
    if len(leaving) > 1 or leaving[0].instance_id is not None:
        raise Unsupported("the broker is older than Kafka 2.4 and removes one member at a time, by its member id")
    return request(group_id=group, member_id=leaving[0].member_id)


def _left(response: messages.LeaveGroupResponse, leaving: list[MemberToRemove]) -> Outcomes[MemberToRemove]:
    rows = {MemberToRemove(row.group_instance_id, row.member_id): error_of(row.error_code) for row in response.members}
    missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
    return {member: rows.get(member, missing) for member in leaving}


def _member(value: object) -> MemberToRemove:
    if not isinstance(value, MemberToRemove):
        raise TypeError(f"a member must be a MemberToRemove, not {value!r}")
    for text in (value.instance_id, value.member_id):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"the ids of a member must be strings, not {text!r}")
    if value.instance_id is None and not value.member_id:
        raise ValueError("a member to remove needs an instance id or a member id")
    return value


def _state(text: str) -> GroupState:
    """The state; UNKNOWN for a name of a later version of Kafka."""
    try:
        return GroupState(text)
    except ValueError:
        return GroupState.UNKNOWN


def _type(text: str) -> GroupType:
    try:
        return GroupType(text)
    except ValueError:
        return GroupType.UNKNOWN
