"""ACLs in a cluster of both kinds: what one broker writes the other heeds, and brokers need CLUSTER_ACTION for each other's requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.security.permissions import FROM, Asker, allow_everything

KLAMM, KAFKA = 1, 2
READ, TOPIC, LITERAL, PREFIXED, DENY, ALLOW = 3, 2, 3, 4, 2, 3
ALL = messages.DescribeAclsRequest(TOPIC, None, 1, None, FROM, 1, 1)


def settings_of(_: int) -> dict[str, Any]:
    return {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}


def codes(members: Members, broker_id: int, topic: str) -> int:
    """What a client without permissions of its own gets from a broker."""
    asker = Asker(FROM, members.brokers[broker_id].port)
    try:
        answer = asker.ask(messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic)]), 4)
    finally:
        asker.close()
    return int(answer.topics[0].error_code)


def change(members: Members, broker_id: int, name: str, pattern_type: int, permission: int) -> None:
    creation = messages.CreateAclsRequest.AclCreation(TOPIC, name, pattern_type, "User:ANONYMOUS", FROM, READ, permission)
    (result,) = members.ask(messages.CreateAclsRequest(creations=[creation]), 3, to=broker_id).results
    assert result.error_code == 0, result


def remove(members: Members, broker_id: int) -> int:
    wanted = messages.DeleteAclsRequest.DeleteAclsFilter(TOPIC, None, 1, "User:ANONYMOUS", FROM, 1, 1)
    (result,) = members.ask(messages.DeleteAclsRequest(filters=[wanted]), 3, to=broker_id).filter_results
    assert result.error_code == 0, result
    return len(result.matching_acls)


@pytest.mark.slow
@pytest.mark.reference
def test_acls_of_either_side_hold_on_both(new_members: Callable[..., Members]) -> None:
    members = new_members(settings_of)
    allow_everything(members.tree)
    members.klamm(KLAMM)
    members.kafka(KAFKA)
    members.create("orders", [[KLAMM, KAFKA], [KAFKA, KLAMM]])
    for partition in (0, 1):  # each broker fetches from the other, which needs CLUSTER_ACTION
        wait_for(lambda partition=partition: len(members.tree.state("orders", partition).isr) == 2, "both are in sync")  # type: ignore[misc, union-attr]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for writer, other in ((KLAMM, KAFKA), (KAFKA, KLAMM)):
        assert codes(members, KLAMM, "orders") == codes(members, KAFKA, "orders") == denied
        change(members, writer, "ord", PREFIXED, ALLOW)
        assert codes(members, writer, "orders") == 0
        wait_for(lambda other=other: codes(members, other, "orders") == 0, "the other broker allows it too")  # type: ignore[misc]
        change(members, other, "orders", LITERAL, DENY)
        wait_for(lambda writer=writer: len(members.ask(ALL, 3, to=writer).resources) == 2, "both ACLs are known")  # type: ignore[misc]
        assert codes(members, writer, "orders") == 0, "READ is denied, DESCRIBE is not"
        assert remove(members, writer) == 2
        wait_for(lambda other=other: codes(members, other, "orders") == denied, "the other broker denies it again")  # type: ignore[misc]
