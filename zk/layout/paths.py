"""Paths of all znodes below the chroot (layout 2)."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

from klamm.protocol.nouns import TopicPartition
from klamm.zk.layout.json_values import Unreadable

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
THROTTLED_REPLICAS_REMOVAL = "/admin/throttled_replicas_removal"
THROTTLED_RATES_REMOVAL = "/admin/throttled_rates_removal"
# Alternative names of these two znodes. They are read and deleted, but never written (layout 4.1).
REMOVE_THROTTLED_REPLICAS = "/admin/remove_throttled_replicas"
REMOVE_THROTTLED_RATES = "/admin/remove_throttled_rates"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
CLUSTER_ID = "/cluster/id"
REGISTERED_BROKERS = "/cluster/brokers"
CONTROLLER_SESSIONS = "/cluster/controllers"
FEATURE = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"

# Created by every broker at its start, with null data, and with their parents (layout 1.7).
STARTUP_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_IDS,
    LOG_DIR_EVENT_NOTIFICATION,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)

DEFAULT_ENTITY = "<default>"

_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
_NOT_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def may_be_in_path(name: str) -> bool:
    """Whether ZooKeeper's Java client accepts a path that ends with this name. For other names, Apache Kafka fails before it sends a
    request.
    """
    return not ({"", ".", ".."} & set(name.split("/"))) and _NOT_IN_PATHS.search(name) is None


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def partition_of(path: str) -> TopicPartition | None:
    """(topic, partition) from the path of a state; None for any other path."""
    match path.split("/"):
        case ["", "brokers", "topics", topic, "partitions", partition, "state"] if partition.isdecimal():
            return TopicPartition(topic, int(partition))
    return None


def registration_path(broker_id: int) -> str:
    return f"{REGISTERED_BROKERS}/{broker_id}"


def controller_session_path(broker_id: int) -> str:
    return f"{CONTROLLER_SESSIONS}/{broker_id}"


def deletion_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def config_path(kind: str, name: str) -> str:
    """`kind` is topics, brokers, users, clients or ips. For a client of a user, `kind` is users and `name` is `<user>/clients/<client>`."""
    return f"/config/{kind}/{name}"


def configs_path(kind: str) -> str:
    """The parent of the configs of all entities of a type."""
    return f"/config/{kind}"


def sanitize(name: str) -> str:
    """The znode name for a user or client (layout 1.6). The default entity is DEFAULT_ENTITY, without encoding."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The user or client for a znode name. A plus is a space, as for Java. Raises Unreadable if a % is not followed by two digits."""
    if _BAD_ESCAPE.search(name):
        raise Unreadable(f"{name} is not the name of a user or client")
    return unquote_plus(name)


def last_part(path: str) -> str:
    return path.rpartition("/")[2]
