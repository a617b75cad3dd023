"""Log levels for Kafka's admin clients, under the logger names of an Apache Kafka broker, with `root` as their common parent.

Kafka's loggers are a tree: a logger has its own level, or the level of its nearest ancestor with one. Loggers in `COUNTERPARTS` set the
level of one of Klamm's loggers; `root` is the parent of all of Klamm's loggers. The level of any other logger is stored but has no effect.
Loggers of libraries do not change, except that of the ZooKeeper client.

`loggers.json` has all loggers that a Kafka 3.9.1 broker lists in ZooKeeper mode, when idle and after using records, groups, transactions,
replication, SASL, ACLs and delegation tokens, each with the loggers of Klamm whose level it sets. Apache Kafka lists a logger after the
first use of its class, and the loggers in its log4j.properties. Klamm lists all of them from the start.

Requests and responses use Kafka's level names, the code uses Python's numbers: FATAL is CRITICAL, TRACE is below DEBUG. Brokers in the same
process share their loggers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from klamm.configs.increment import Operation
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
_LOGGERS: dict[str, list[str]] = json.loads(Path(__file__).with_name("loggers.json").read_bytes())
COUNTERPARTS = dict(sorted((ours, name) for name, counterparts in _LOGGERS.items() for ours in counterparts))
"""Logger of Klamm → the logger of Kafka that sets its level. Parents come before their children."""

Change = tuple[str, int, str | None]

# A separate tree of Python loggers for Kafka's names.
_KAFKA = logging.Manager(logging.RootLogger(logging.INFO))
_BY_NAME = {ROOT: _KAFKA.root, **{name: _KAFKA.getLogger(name) for name in _LOGGERS}}
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
