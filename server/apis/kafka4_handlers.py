"""The handlers of a broker that stands for Kafka 4, where they are not those of 3.9. Only such brokers import this table."""

from __future__ import annotations

from klamm.protocol.apis import APIS, ApiKey, Draft
from klamm.server.apis import (
    alter_partition_reassignments,
    describe_quorum,
    describe_topic_partitions,
    kafka4_refusals,
    list_config_resources,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
    update_features,
)
from klamm.server.requests.dispatch import Handler

_REFUSED = {key: Handler(kafka4_refusals.handle, kafka4_refusals.refuse) for key, api in APIS.items() if api.draft is Draft.KAFKA_4}
_VOTERS = Handler(kafka4_refusals.change_voters, kafka4_refusals.refuse)
_UNREGISTER = Handler(kafka4_refusals.unregister, kafka4_refusals.refuse)

HANDLERS_OF_4: dict[int, Handler] = _REFUSED | {
    ApiKey.ADD_RAFT_VOTER: _VOTERS,
    ApiKey.REMOVE_RAFT_VOTER: _VOTERS,
    ApiKey.UNREGISTER_BROKER: _UNREGISTER,
    ApiKey.UNREGISTER_CONTROLLER: _UNREGISTER,
    ApiKey.DESCRIBE_QUORUM: Handler(describe_quorum.handle, describe_quorum.refuse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(describe_topic_partitions.handle, describe_topic_partitions.refuse),
    ApiKey.LIST_CONFIG_RESOURCES: Handler(list_config_resources.handle, list_config_resources.refuse),
    ApiKey.UPDATE_FEATURES: Handler(update_features.handle_levels, update_features.refuse),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(
        alter_partition_reassignments.handle_as_kafka_4, alter_partition_reassignments.refuse
    ),
    ApiKey.OFFSET_COMMIT: Handler(offset_commit.handle_ids, offset_commit.refuse),
    ApiKey.OFFSET_FETCH: Handler(offset_fetch.handle_ids, offset_fetch.refuse),
    ApiKey.TXN_OFFSET_COMMIT: Handler(txn_offset_commit.handle_ids, txn_offset_commit.refuse),
}
