"""Log levels for Kafka's admin clients, under the logger names of an Apache Kafka broker, with `root` as their common parent.

Kafka's loggers are a tree: a logger has its own level, or the level of its nearest ancestor with one. Loggers in `COUNTERPARTS` set the
level of one of Klamm's loggers; `root` is the parent of all of Klamm's loggers. The level of any other logger is stored but has no effect.
Loggers of libraries do not change, except that of the ZooKeeper client.

Requests and responses use Kafka's level names, the code uses Python's numbers: FATAL is CRITICAL, TRACE is below DEBUG. Brokers in the same
process share their loggers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.configs.increment import Operation
from klamm.configs.log_names import KAFKA_LOGGERS
from klamm.protocol.errors import ApiError, ErrorCode

ROOT = "root"
OURS = "klamm"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
COUNTERPARTS = {
    "klamm.broker.log.files.directory": "kafka.log.LogManager",
    "klamm.broker.log.files.loading": "kafka.log.UnifiedLog$",
    "klamm.broker.log.compaction": "kafka.log.LogCleaner",
    "klamm.broker.log.manager": "kafka.log.LogManager",
    "klamm.broker.log.retention": "kafka.log.UnifiedLog",
    "klamm.broker.leaders": "kafka.cluster.Partition",
    "klamm.broker.recovery": "kafka.cluster.Partition",
    "klamm.broker.replica_manager": "kafka.server.ReplicaManager",
    "klamm.broker.replication_quotas": "kafka.server.TopicConfigHandler",
    "klamm.broker.state_change": "state.change.logger",
    "klamm.controller": "kafka.controller.KafkaController",
    "klamm.controller.topics.deletion": "kafka.controller.TopicDeletionManager",
    "klamm.controller.reassignment.procedure": "kafka.controller.KafkaController",
    "klamm.controller.state_change": "state.change.logger",
    "klamm.controller.throttles.procedure": "kafka.controller.KafkaController",
    "klamm.journal.disk": "kafka.server.KafkaServer",
    "klamm.server.apis.describe_configs": "kafka.server.ConfigHelper",
    "klamm.server.replication.isr_updates": "kafka.cluster.Partition",
    "klamm.server.replication.stored_isr_updates": "kafka.cluster.Partition",
    "klamm.server.net.channels": "kafka.controller.RequestSendThread",
    "klamm.server.apis.config_changes": "kafka.server.ConfigAdminManager",
    "klamm.server.security.acl_authorizer": "kafka.security.authorizer.AclAuthorizer",
    "klamm.server.security.delegation_tokens": "kafka.server.DelegationTokenManagerZk",
    "klamm.server.security.denial_log": "kafka.authorizer.logger",
    "klamm.server.listeners.connection_limits": "kafka.network.ConnectionQuotas",
    "klamm.server.lifecycle.disks": "kafka.log.LogManager",
    "klamm.server.requests.dispatch": "kafka.server.KafkaApis",
    "klamm.server.configs.dynamic_configs": "kafka.server.ZkConfigManager",
    "klamm.server.ground.features": "kafka.server.FinalizedFeatureChangeListener",
    "klamm.server.lifecycle.controlled_shutdown": "kafka.server.KafkaServer",
    "klamm.server.listeners.listener": "kafka.network.ConnectionQuotas",
    "klamm.server.listeners.listeners": "kafka.network.SocketServer",
    "klamm.server.lifecycle.meta_properties": "kafka.server.KafkaServer",
    "klamm.server.lifecycle.broker_registration": "kafka.server.KafkaServer",
    "klamm.server.broker_server": "kafka.server.KafkaServer",
    "klamm.server.lifecycle.broker_parts": "kafka.server.KafkaServer",
    "klamm.server.lifecycle.start_table": "kafka.server.KafkaServer",
    "klamm.server.lifecycle.steps": "kafka.server.KafkaServer",
    "klamm.server.net.controller_requests": "kafka.server.NodeToControllerRequestThread",
    "klamm.server.replication.fetcher": "kafka.server.ReplicaFetcherThread",
    "klamm.server.lifecycle.session_handler": "kafka.server.KafkaServer",
    "klamm.server.transactions.producer_ids": "kafka.coordinator.transaction.RPCProducerIdManager",
    "klamm.server.requests.purgatory": "kafka.server.DelayedOperationPurgatory",
    "klamm.server.requests.request_log": "kafka.request.logger",
    "klamm.server.request_registration.client": "kafka.server.NodeToControllerRequestThread",
    "klamm.server.request_registration.controller_finder": "kafka.server.NodeToControllerRequestThread",
    "klamm.server.request_registration.own_state": "kafka.server.KafkaServer",
    "klamm.server.request_registration.registration": "kafka.server.KafkaServer",
    "klamm.server.configs.topic_configs": "kafka.server.ZkConfigManager",
    "klamm.zk.config_nodes": "kafka.zk.AdminZkClient",
    "klamm.zk.session.connection": "kafka.zookeeper.ZooKeeperClient",
    "klamm.zk.session.connection.kazoo": "org.apache.zookeeper.ClientCnxn",
    "klamm.zk.store.fenced_writes": "kafka.zk.KafkaZkClient",
    "klamm.zk.layout.znodes": "kafka.zk.KafkaZkClient",
    "klamm.zk.session.session": "kafka.zookeeper.ZooKeeperClient",
    "klamm.zk.store.store": "kafka.zk.KafkaZkClient",
}
"""Logger of Klamm → the logger of Kafka that sets its level. Parents come before their children."""

Change = tuple[str, int, str | None]

# A separate tree of Python loggers for Kafka's names.
_KAFKA = logging.Manager(logging.RootLogger(logging.INFO))
_BY_NAME = {ROOT: _KAFKA.root, **{name: _KAFKA.getLogger(name) for name in KAFKA_LOGGERS}}
_GIVEN: dict[str, int] = {}


def log_levels() -> dict[str, str]:
    """Logger name → effective level, with the root logger first."""
    _KAFKA.root.setLevel(logging.getLogger(OURS).getEffectiveLevel())
    return {name: _word(logger.getEffectiveLevel()) for name, logger in _BY_NAME.items()}


def set_log_levels(changes: Iterable[Change], validate_only: bool = False) -> None:
    """Set levels, or delete them so that the parent's level applies. If one change is invalid, none is applied. Raises ApiError."""
    wanted = [(name, _level(name, operation, word)) for name, operation, word in changes]
    if validate_only:
        return
    for name, level in wanted:
        if name == ROOT:
            logging.getLogger(OURS).setLevel(level)
        else:
            _BY_NAME[name].setLevel(level)
    _hand_on()


def _hand_on() -> None:
    """Set the levels of Klamm's loggers: those of their counterparts, or the levels that they had at the start."""
    of_root = logging.getLogger(OURS).getEffectiveLevel()
    for name, counterpart in COUNTERPARTS.items():
        logger = logging.getLogger(name)
        given = _GIVEN.setdefault(name, logger.level)
        level = _below_root(_BY_NAME[counterpart]) or given
        logger.setLevel(level)
        if logger.getEffectiveLevel() != (level or of_root):
            logger.setLevel(of_root)  # its parent in Python has its own level, which must not apply here


def _below_root(logger: logging.Logger) -> int:
    """A Kafka logger's own level, or that of an ancestor other than the root; NOTSET if there is none."""
    while logger is not _KAFKA.root:
        if logger.level:
            return logger.level
        assert logger.parent is not None
        logger = logger.parent
    return logging.NOTSET


def _level(name: str, number: int, word: str | None) -> int:
    """The requested level of a change. Raises ApiError."""
    try:
        operation = Operation(number)
    except ValueError:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation.name} operation is not allowed for the BROKER_LOGGER resource")
    if name not in _BY_NAME:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation is Operation.DELETE:
        if name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        return logging.NOTSET
    if word not in LEVELS:
        levels = ", ".join(sorted(LEVELS))
        text = f"Cannot set the log level of {name} to {word} as it is not a supported log level. Valid log levels are {levels}"
        raise ApiError(ErrorCode.INVALID_CONFIG, text)
    return LEVELS[word]


def _word(level: int) -> str:
    """The most detailed Kafka level that a logger with this Python level logs."""
    return next((word for word, number in LEVELS.items() if level <= number), "FATAL")
