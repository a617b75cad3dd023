"""DescribeClientQuotas and AlterClientQuotas where the stories cannot look: without permission, without a controller, without ZooKeeper."""

from __future__ import annotations

from typing import Any

from klamm.protocol.errors import ErrorCode
from klamm.server.requests.services import AdminStore
from klamm.server.security.authorizer import Operation
from klamm.tests.services import Denying, LostStore, make_services, respond
from klamm.tests.stories.both import answers
from klamm.zk.admin import AdminZk
from klamm.zk.layout.znodes import encode_controller
from klamm.zk.session.session import ZkSession

ALICE = [{"entityType": "user", "entityName": "alice"}]
ALTERATION = {"entries": [{"entity": ALICE, "ops": [{"key": "producer_byte_rate", "value": 1}]}]}


async def altered(store: AdminStore | LostStore, **services: Any) -> Any:
    """The entry of the response to an alteration."""
    response = await respond(make_services(admin_store=store, **services), answers.request("AlterClientQuotas", 1, ALTERATION), 1)
    (entry,) = response.entries
    assert [(row.entity_type, row.entity_name) for row in entry.entity] == [("user", "alice")]
    return entry


async def test_quotas_are_altered_with_alter_configs_on_the_cluster_only() -> None:
    entry = await altered(LostStore(), authorizer=Denying((Operation.ALTER_CONFIGS, "kafka-cluster")))
    assert (entry.error_code, entry.error_message) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


async def test_quotas_are_described_with_describe_configs_on_the_cluster_only() -> None:
    services = make_services(admin_store=LostStore(), authorizer=Denying((Operation.DESCRIBE_CONFIGS, "kafka-cluster")))
    response = await respond(services, answers.request("DescribeClientQuotas", 1, {"components": []}), 1)
    assert (response.error_code, response.error_message, response.entries) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None, None)


async def test_an_alteration_fails_while_there_is_no_session() -> None:
    assert (await altered(LostStore())).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_alteration_fails_while_there_is_no_controller(zk_session: ZkSession) -> None:
    store = AdminZk(zk_session)
    assert (await altered(store)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert await store.config_names("users") == []


async def test_validation_alone_stores_nothing(zk_session: ZkSession) -> None:
    await zk_session.create("/controller", encode_controller(1, 0), ephemeral=True)
    services = make_services(admin_store=AdminZk(zk_session))
    for only, stored in ((True, []), (False, ["alice"])):
        message = answers.request("AlterClientQuotas", 1, {**ALTERATION, "validateOnly": only})
        assert (await respond(services, message, 1)).entries[0].error_code == 0
        assert await zk_session.children("/config/users") == stored


async def test_an_unreadable_znode_fails_the_entity_and_the_description(zk_session: ZkSession) -> None:
    await zk_session.create("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":1}}', makepath=True)
    store = AdminZk(zk_session)
    assert (await altered(store)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    services = make_services(admin_store=store)
    response = await respond(services, answers.request("DescribeClientQuotas", 1, {"components": []}), 1)
    assert (response.error_code, response.entries) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
