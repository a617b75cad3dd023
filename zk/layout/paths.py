"""Where everything lies in ZooKeeper, below the chroot (layout 2)."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

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
# Other names of the same two znodes: read and deleted, never written (layout 4.1).
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

# Made by every broker at its start, with null data, parents included (layout 1.7).
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

_NOT_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def may_be_in_path(name: str) -> bool:
    """Whether ZooKeeper's Java client takes a path that ends with this name; Apache Kafka fails for any other name before it sends a
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


def partition_of(path: str) -> tuple[str, int] | None:
    """(topic, partition) of the path of a state, None for any other path."""
    match path.split("/"):
        case ["", "brokers", "topics", topic, "partitions", partition, "state"] if partition.isdecimal():
            return topic, int(partition)
    return None


def registration_path(broker_id: int) -> str:
    return f"{REGISTERED_BROKERS}/{broker_id}"


def controller_session_path(broker_id: int) -> str:
    return f"{CONTROLLER_SESSIONS}/{broker_id}"


def deletion_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def config_path(kind: str, name: str) -> str:
    """`kind` is topics, brokers, users, clients or ips; for a user and client together, users and `<user>/clients/<client>`."""
    return f"/config/{kind}/{name}"


def configs_path(kind: str) -> str:
    """Where the configs of all entities of a kind are."""
    return f"/config/{kind}"


def sanitize(name: str) -> str:
    """Name of a user or client as a znode name (layout 1.6). The default entity is DEFAULT_ENTITY as it stands."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """A user or client from its znode name."""
    return unquote(name)


def last_part(path: str) -> str:
    return path.rpartition("/")[2]
