"""The APIs that this broker serves. Dispatch, ApiVersions and the coverage page are computed from this table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.apis import APIS, About, Api, ApiKey, Draft
from klamm.protocol.errors import ErrorCode
from klamm.server.apis import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_interbroker_throttled_rates,
    alter_interbroker_throttled_replicas,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_protocol,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_pending_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    metadata_fetch,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    reassign_partitions,
    register_broker,
    sasl,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from klamm.server.requests.dispatch import Handler

if TYPE_CHECKING:
    from klamm.server.requests.context import Context

HANDLERS: dict[int, Handler] = {
    ApiKey.PRODUCE: Handler(produce.handle, produce.refuse, pipelined=True, handle_run=produce.handle_run),
    ApiKey.FETCH: Handler(fetch.handle, fetch.refuse),
    ApiKey.LIST_OFFSETS: Handler(list_offsets.handle, list_offsets.refuse),
    ApiKey.METADATA: Handler(metadata.handle, metadata.refuse, cached=True),
    ApiKey.LEADER_AND_ISR: Handler(leader_and_isr.handle, leader_and_isr.refuse),
    ApiKey.STOP_REPLICA: Handler(stop_replica.handle, stop_replica.refuse),
    ApiKey.UPDATE_METADATA: Handler(update_metadata.handle, update_metadata.refuse),
    ApiKey.CONTROLLED_SHUTDOWN: Handler(controlled_shutdown.handle, controlled_shutdown.refuse),
    ApiKey.SASL_HANDSHAKE: Handler(sasl.handshake, sasl.refuse_handshake),
    ApiKey.API_VERSIONS: Handler(api_versions.handle, api_versions.refuse, cached=True, unsupported_version=api_versions.UNSUPPORTED_BODY),
    ApiKey.CREATE_TOPICS: Handler(create_topics.handle, create_topics.refuse),
    ApiKey.DELETE_TOPICS: Handler(delete_topics.handle, delete_topics.refuse),
    ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id.handle, init_producer_id.refuse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(offset_for_leader_epoch.handle, offset_for_leader_epoch.refuse),
    ApiKey.DELETE_RECORDS: Handler(delete_records.handle, delete_records.refuse),
    ApiKey.DESCRIBE_ACLS: Handler(acls.describe, acls.refuse_describe),
    ApiKey.CREATE_ACLS: Handler(acls.create, acls.refuse_create),
    ApiKey.DELETE_ACLS: Handler(acls.delete, acls.refuse_delete),
    ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs.handle, describe_configs.refuse),
    ApiKey.ALTER_CONFIGS: Handler(alter_configs.handle, alter_configs.refuse),
    ApiKey.SASL_AUTHENTICATE: Handler(sasl.authenticate, sasl.refuse_authenticate),
    ApiKey.CREATE_PARTITIONS: Handler(create_partitions.handle, create_partitions.refuse),
    ApiKey.CREATE_DELEGATION_TOKEN: Handler(delegation_tokens.create, delegation_tokens.refuse_create),
    ApiKey.RENEW_DELEGATION_TOKEN: Handler(delegation_tokens.renew, delegation_tokens.refuse_renew),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Handler(delegation_tokens.expire, delegation_tokens.refuse_expire),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Handler(delegation_tokens.describe, delegation_tokens.refuse_describe),
    ApiKey.ELECT_LEADERS: Handler(elect_leaders.handle, elect_leaders.refuse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(incremental_alter_configs.handle, incremental_alter_configs.refuse),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(alter_partition_reassignments.handle, alter_partition_reassignments.refuse),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler(list_partition_reassignments.handle, list_partition_reassignments.refuse),
    ApiKey.ALTER_PARTITION: Handler(alter_partition.handle, alter_partition.refuse, pipelined=True),
    ApiKey.UPDATE_FEATURES: Handler(update_features.handle, update_features.refuse),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(describe_log_dirs.handle, describe_log_dirs.refuse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(alter_replica_log_dirs.handle, alter_replica_log_dirs.refuse),
    ApiKey.DESCRIBE_PRODUCERS: Handler(describe_producers.handle, describe_producers.refuse),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas.handle, describe_client_quotas.refuse),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas.handle, alter_client_quotas.refuse),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(describe_user_scram_credentials.handle, describe_user_scram_credentials.refuse),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Handler(alter_user_scram_credentials.handle, alter_user_scram_credentials.refuse),
    ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster.handle, describe_cluster.refuse, cached=True),
    ApiKey.ALLOCATE_PRODUCER_IDS: Handler(allocate_producer_ids.handle, allocate_producer_ids.refuse),
    ApiKey.FIND_COORDINATOR: Handler(find_coordinator.handle, find_coordinator.refuse),
    ApiKey.JOIN_GROUP: Handler(join_group.handle, join_group.refuse),
    ApiKey.SYNC_GROUP: Handler(sync_group.handle, sync_group.refuse),
    ApiKey.HEARTBEAT: Handler(heartbeat.handle, heartbeat.refuse),
    ApiKey.LEAVE_GROUP: Handler(leave_group.handle, leave_group.refuse),
    ApiKey.OFFSET_COMMIT: Handler(offset_commit.handle, offset_commit.refuse),
    ApiKey.OFFSET_FETCH: Handler(offset_fetch.handle, offset_fetch.refuse),
    ApiKey.OFFSET_DELETE: Handler(offset_delete.handle, offset_delete.refuse),
    ApiKey.DESCRIBE_GROUPS: Handler(describe_groups.handle, describe_groups.refuse),
    ApiKey.LIST_GROUPS: Handler(list_groups.handle, list_groups.refuse),
    ApiKey.DELETE_GROUPS: Handler(delete_groups.handle, delete_groups.refuse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Handler(consumer_protocol.heartbeat, consumer_protocol.refuse_heartbeat),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Handler(consumer_protocol.describe, consumer_protocol.refuse_describe),
    ApiKey.ADD_PARTITIONS_TO_TXN: Handler(add_partitions_to_txn.handle, add_partitions_to_txn.refuse),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler(add_offsets_to_txn.handle, add_offsets_to_txn.refuse),
    ApiKey.END_TXN: Handler(end_txn.handle, end_txn.refuse),
    ApiKey.WRITE_TXN_MARKERS: Handler(write_txn_markers.handle, write_txn_markers.refuse),
    ApiKey.TXN_OFFSET_COMMIT: Handler(txn_offset_commit.handle, txn_offset_commit.refuse),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(describe_transactions.handle, describe_transactions.refuse),
    ApiKey.LIST_TRANSACTIONS: Handler(list_transactions.handle, list_transactions.refuse),
    ApiKey.REGISTER_BROKER: Handler(register_broker.handle, register_broker.refuse),
    ApiKey.METADATA_FETCH: Handler(metadata_fetch.handle, metadata_fetch.refuse),
    ApiKey.END_PENDING_TRANSACTIONS: Handler(end_pending_transactions.handle, end_pending_transactions.refuse),
    ApiKey.REASSIGN_PARTITIONS: Handler(reassign_partitions.handle, reassign_partitions.refuse),
    ApiKey.ALTER_INTERBROKER_THROTTLED_RATES: Handler(alter_interbroker_throttled_rates.handle, alter_interbroker_throttled_rates.refuse),
    ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS: Handler(
        alter_interbroker_throttled_replicas.handle, alter_interbroker_throttled_replicas.refuse
    ),
}


TRANSACTIONS = frozenset(
    key for key, api in APIS.items()
    if api.about is About.TRANSACTIONS and key != ApiKey.INIT_PRODUCER_ID and not api.reads and not api.draft
)
"""Below inter-broker protocol 0.11 ApiVersions does not list these, and requests get UNSUPPORTED_VERSION."""


def handlers_of(config: BrokerConfig) -> dict[int, Handler]:
    """The APIs that a broker with these configs serves; those that are switched off are unknown to it."""
    has_recovery = config.inter_broker_protocol_version.has_leader_recovery and config.get("kip704.recovery.transactions") != "leave"
    drafts = {Draft.KIP_179: config.get("kip179.enable"), Draft.REGISTER_BROKER: config.is_registerbroker_on, Draft.KIP_704: has_recovery}
    every = HANDLERS
    if config.kafka_4 is not None:
        from klamm.server.apis.kafka4_handlers import HANDLERS_OF_4  # few brokers need these

        every, drafts[Draft.KAFKA_4] = HANDLERS | HANDLERS_OF_4, True
    handlers = {key: handler for key, handler in every.items() if (draft := APIS[key].draft) is None or drafts[draft]}
    handlers |= {key: _unsupported(HANDLERS[key]) for key in _hidden(config)}
    if not config.is_narrowed:
        return handlers
    from klamm.configs.definitions.api_versions import offered_apis  # few brokers need these
    from klamm.server.requests.api_subset import narrowed

    return narrowed(handlers, offered_apis(config.values), config)


def _hidden(config: BrokerConfig) -> frozenset[int]:
    return TRANSACTIONS if config.inter_broker_protocol_version.record_version < 2 else frozenset()


def _unsupported(handler: Handler) -> Handler:
    def handle(ctx: Context, request: Any) -> Any:
        return handler.refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION)

    return Handler(handle, handler.refuse)


def offered(keys: Iterable[int]) -> tuple[Api, ...]:
    """The APIs with these keys, as ApiVersions lists them."""
    return tuple(APIS[key] for key in sorted(keys))


def offered_by(config: BrokerConfig) -> tuple[Api, ...]:
    """The APIs that a broker with these configs offers. ApiVersions lists those of drafts only to Klamm's own clients."""
    keys = handlers_of(config).keys() - _hidden(config) | {ApiKey.ENVELOPE}  # listed by Kafka since 3.4; a request closes the connection
    if not config.is_narrowed:
        return offered(keys)
    from klamm.configs.definitions.api_versions import offered_apis  # few brokers need it

    return tuple(api for api in offered_apis(config.values).apis if api.key in keys)
