"""ACLs, delegation tokens and SASL of a broker that has neither: who may ask, and that a whole request is refused row by row."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import SLICE
from klamm.server.apis.handlers import HANDLERS
from klamm.server.requests.context import CloseConnection
from klamm.server.security.authorizer import Operation, Principal
from klamm.tests.services import Denying, make_context, make_services, respond

CREATION = messages.CreateAclsRequest.AclCreation(2, "t", 3, "User:a", "*", 3, 3)
FILTER = messages.DeleteAclsRequest.DeleteAclsFilter(2, "t", 3, "User:a", "*", 3, 3)
DESCRIPTION = messages.DescribeAclsRequest(2, "t", 3, "User:a", "*", 3, 3)


@pytest.mark.parametrize("version", range(4))
async def test_acls_are_refused_to_those_who_may_not_ask_with_another_code(version: int) -> None:
    describer = make_services(authorizer=Denying((Operation.DESCRIBE, None)))
    changer = make_services(authorizer=Denying((Operation.ALTER, None)))
    response = await respond(describer, DESCRIPTION, version)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    created = await respond(changer, messages.CreateAclsRequest(creations=[CREATION] * 2), version)
    assert [row.error_code for row in created.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    deleted = await respond(changer, messages.DeleteAclsRequest(filters=[FILTER] * 2), version)
    assert [row.error_code for row in deleted.filter_results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert (await respond(changer, DESCRIPTION, version)).error_code == ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("request_message", [CREATION, FILTER], ids=["creations", "filters"])
async def test_a_long_list_of_acls_lets_others_run_and_its_last_entry_counts(request_message: Any) -> None:
    """A bad entry at the end of a long list closes the connection; until it is found the event loop takes turns."""
    good = [request_message] * (5 * SLICE)
    bad = [*good, request_message._replace(operation=0)]
    creates = request_message is CREATION
    message: Any = messages.CreateAclsRequest(creations=bad) if creates else messages.DeleteAclsRequest(filters=bad)
    key = 30 if creates else 31
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    with pytest.raises(CloseConnection):
        await HANDLERS[key].handle(make_context(make_services(), key, 3), message)
    task.cancel()
    assert turns >= 4


async def test_a_token_request_names_the_client_that_sent_it() -> None:
    services = make_services()
    context = make_context(services, 38, 3)
    context.peer.principal = Principal("User", "alice")
    response = await HANDLERS[38].handle(context, messages.CreateDelegationTokenRequest(owner_principal_name=None))
    assert (response.error_code, response.principal_name) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "alice")
    assert response.token_requester_principal_name == "alice"
