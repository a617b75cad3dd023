"""The arguments of faults and of filters on requests: names, types and meanings, once for both kinds of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from klamm.broker.log.slow_disk import DiskOperation
from klamm.control import bodies
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.protocol.errors import did_you_mean

__tracebackhide__ = True  # pytest leaves out the lines of this module


class FaultArguments(TypedDict, total=False):
    """Which requests a fault is about, what it does, and how often."""

    # which requests; texts may end with `*`
    api: str | int
    versions: tuple[int, int]
    broker: int
    from_broker: int
    client_id: str
    principal: str
    topic: str
    topic_id: str
    partition: int
    group: str
    transactional_id: str
    direction: Literal["request", "response"]
    """`request` (the default): the request does no work where the effect allows that; `response`: it has done its work."""
    disk: DiskOperation
    """`append`, `flush` or `read`: which operations of logs a slow disk is about; all without it."""
    log_dir: str
    while_: Mapping[str, Any]
    """The fault acts only while this holds: `{"hold": hold.number}`, `{"phase": name}`, `{"fault": fault.number}`, or
    `{"broker": 2, "state": "down"}` (`running`, `paused`, `down`, `controller`)."""
    # what it does: one of these, and `delay_ms` with it or alone
    error: str | int
    message: str
    delay_ms: int
    drop: bool
    close: Literal["before", "amid", "after"]
    corrupt: bool
    truncate: int
    correlation_id: int
    lose_response: bool
    throttle_time_ms: int
    values: Mapping[str, Any]
    """Values of fields of the response, by path: `{"topics.partitions.leaderId": 9}`."""
    unknown_tags: bool
    slow_disk_ms: int
    # how often
    first: int
    after: int
    probability: float
    seed: int


class RequestFilter(TypedDict, total=False):
    """Which requests are meant; texts may end with `*`. `error` is a name or `any`. `after`: only those with a higher number."""

    api: str
    client_id: str
    topic: str
    group: str
    broker: int
    error: str
    after: int


_LIMITS = frozenset(("first", "after", "probability", "seed"))


def fault_body(values: Mapping[str, Any]) -> bodies.FaultBody:
    """A fault from arguments. Raises Refused: an unknown name, with a suggestion; a value of another type."""
    shape: JsonObject = {"filter": {}, "effect": {}}
    for name, value in values.items():
        if name not in FaultArguments.__annotations__:
            suggestion = did_you_mean(name, FaultArguments.__annotations__, quote="'")
            raise Refused(f"a fault has no argument {name!r}{suggestion}")
        if name in bodies.FilterBody.__struct_fields__:
            shape["filter"][name.rstrip("_")] = value
        elif name in _LIMITS:
            shape[name] = value
        else:
            shape["effect"][name] = value
    return bodies.convert(bodies.FaultBody, shape)


def texts_of(config: Mapping[str, str | int | bool] | None) -> dict[str, str]:
    """Configs as the control API takes them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()}
