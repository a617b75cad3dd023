"""Log levels as Kafka's admin clients see them: every logger of ours by its Python name, and their common parent as `root`.

Kafka's words for levels are used outside, Python's numbers inside; FATAL is CRITICAL, TRACE lies below DEBUG. A logger shows the level
in force, its own or its parent's. What libraries log is not touched. Brokers of one process share their loggers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.broker.config_increment import Operation
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

Change = tuple[str, int, str | None]


def log_levels() -> dict[str, str]:
    """Level in force by logger name, the root logger first."""
    loggers = logging.Logger.manager.loggerDict
    names = sorted(name for name in loggers if name.startswith(f"{OURS}.") and isinstance(loggers[name], logging.Logger))
    return {name: _word(_logger(name).getEffectiveLevel()) for name in (ROOT, *names)}


def set_log_levels(changes: Iterable[Change], validate_only: bool = False) -> None:
    """Set or delete (fall back to the parent's) levels: all, or none when one will not do. Raises ApiError."""
    wanted = [(name, _level(name, operation, word)) for name, operation, word in changes]
    if validate_only:
        return
    for name, level in wanted:
        _logger(name).setLevel(level)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(OURS if name == ROOT else name)


def _level(name: str, number: int, word: str | None) -> int:
    """The level a change asks for. Raises ApiError."""
    try:
        operation = Operation(number)
    except ValueError:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation.name} means nothing for a log level")
    if name not in log_levels():
        raise ApiError(ErrorCode.INVALID_CONFIG, f"There is no logger {name}")
    if operation is Operation.DELETE:
        if name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The root logger must have a level")
        return logging.NOTSET
    if word not in LEVELS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} cannot have level {word}; levels are {', '.join(LEVELS)}")
    return LEVELS[word]


def _word(level: int) -> str:
    """The most detailed of Kafka's levels that Python's number lets through."""
    return next((word for word, number in LEVELS.items() if level <= number), "FATAL")
