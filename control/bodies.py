"""The bodies of requests of the control API: types, defaults, and what may not be combined.

`decode` reads JSON and raises Refused with one line that names the place; unknown fields are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from posixpath import isabs
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from klamm.broker.log.slow_disk import DiskOperation
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused, is_number
from klamm.protocol.apis import APIS, ApiKey, Draft
from klamm.protocol.errors import ErrorCode, did_you_mean
from klamm.protocol.nouns import id_of
from klamm.server.faults import message_parts, other_values
from klamm.server.faults.fault import DiskFilter, Effect, Limits, RequestFilter

__tracebackhide__ = True  # pytest leaves out the lines of this module

MAX_DELAY_MS = 3_600_000
T = TypeVar("T")
_INT16, _INT32, _INT64 = 1 << 15, 1 << 31, 1 << 63
Int16 = Annotated[int, msgspec.Meta(ge=-_INT16, le=_INT16 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-_INT32, le=_INT32 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-_INT64, le=_INT64 - 1)]
"""A number out of range is refused like a value of a wrong type. Every number of a body has one of these types."""


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A body in JSON."""


class HoldBody(Body, frozen=True):
    """A hold of phases. The first `nth` - 1 phases that match pass; then `count` are held, without it all until the hold is released.

    With `crash` the broker that reaches such a phase is killed there, and its ZooKeeper session ends; `count` is 1 unless it is given. With
    `fail` what reaches it fails with this error at once, with `delay_ms` it goes on after this time.
    """

    phase: str
    where: JsonObject = {}
    count: Int32 | None = None
    nth: Int32 = 1
    crash: bool = False
    fail: str | Int32 | None = None
    delay_ms: Int64 | None = None


class FailBody(Body, frozen=True):
    """The error with which a held event fails."""

    error: str | Int32 = "UNKNOWN_SERVER_ERROR"
    message: str | None = None


class WhileBody(Body, frozen=True):
    """A condition: while `hold` holds something, any hold holds this `phase`, `fault` exists, or `broker` has this `state`."""

    hold: Int32 | None = None
    phase: str | None = None
    fault: Int32 | None = None
    broker: Int32 | None = None
    state: Literal["running", "paused", "down", "controller"] | None = None


class FilterBody(Body, frozen=True, rename={"while_": "while"}):
    """Which requests a fault is about; what is missing is any. Texts may end with `*`.

    A slow disk is about operations of logs: `broker`, `topic`, `partition`, `disk` (the operation) and `log_dir` say which.
    """

    api: str | Int32 | None = None
    versions: tuple[Int32, Int32] | None = None
    broker: Int32 | None = None
    from_broker: Int32 | None = None
    client_id: str | None = None
    principal: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: Int32 | None = None
    group: str | None = None
    transactional_id: str | None = None
    direction: Literal["request", "response"] = "request"
    disk: DiskOperation | None = None
    log_dir: str | None = None
    while_: WhileBody | None = None


class EffectBody(Body, frozen=True):
    """What a fault does: one of these, and `delay_ms` with it or alone.

    `values` gives fields of the response other values, by path, such as `topics.partitions.leaderId`; see docs/control.md.
    """

    error: str | Int32 | None = None
    message: str | None = None
    delay_ms: Int64 = 0
    drop: bool = False
    close: Literal["before", "amid", "after"] | None = None
    corrupt: bool = False
    truncate: Int32 | None = None
    correlation_id: Int32 | None = None
    lose_response: bool = False
    throttle_time_ms: Int64 | None = None
    values: JsonObject | None = None
    unknown_tags: bool = False
    slow_disk_ms: Int64 | None = None


class FaultBody(Body, kw_only=True, frozen=True):
    """A fault."""

    filter: FilterBody = FilterBody()
    effect: EffectBody
    first: Int32 | None = None
    after: Int32 = 0
    probability: float = 1.0
    seed: Int64 = 0


class MoveBody(Body, frozen=True):
    """The broker that becomes controller; any other than the present one without `to`."""

    to: Int32 | None = None


class KillBody(Body, frozen=True):
    """How a broker is killed: with `expire` its ZooKeeper session ends at once; with `lose_log` its logs are gone."""

    expire: bool = False
    lose_log: bool = False


class NewBrokerBody(Body, frozen=True):
    """One more broker, with these configs besides those of all brokers."""

    config: dict[str, str] = {}


class StopBody(Body, frozen=True):
    """How a broker is stopped: with `lose_log` its logs are gone."""

    lose_log: bool = False


class BrokerBody(Body, frozen=True):
    """A broker."""

    broker: Int32


class ZooKeeperDelayBody(Body, frozen=True):
    """A broker whose requests to ZooKeeper wait this long; 0 ends that."""

    broker: Int32
    ms: Int64


class LinkBody(Body, frozen=True):
    """What happens to requests from one broker to another: nothing arrives (`cut`), or it arrives late."""

    from_broker: Int32
    to_broker: Int32
    cut: bool = False
    delay_ms: Int64 = 0
    both: bool = True


class AdvanceBody(Body, frozen=True):
    """A time in milliseconds. With `step_ms` it passes in steps; between them all that are alive are heard (`control/heartbeats.py`)."""

    ms: Int64
    step_ms: Int64 | None = None


class TopicBody(Body, frozen=True):
    """A topic to create. `replicas` has the brokers of each partition, in place of the two numbers."""

    name: str
    partitions: Int32 | None = None
    replication_factor: Int16 | None = None
    replicas: list[list[Int32]] | None = None
    configs: dict[str, str] = {}


class PartitionsBody(Body, frozen=True):
    """How many partitions a topic is to have. `replicas` has the brokers of each new one."""

    partitions: Int32
    replicas: list[list[Int32]] | None = None


class RecoveryBody(Body, frozen=True):
    """Which leaders that wait in recovery (KIP-704) go on: all, those of a topic, or that of one partition."""

    topic: str | None = None
    partition: Int32 | None = None


class FeatureBody(Body, frozen=True):
    """The level of a finalized feature."""

    level: Int16


class ClusterIdBody(Body, frozen=True):
    """The cluster id that clients see; without it the real one."""

    id: str | None = None


class MemberBody(Body, frozen=True):
    """Which member of a group; all without it."""

    member: str | None = None


def decode(kind: type[T], data: bytes) -> T:
    """A body from its JSON; an empty one has only defaults. Raises Refused."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Refused(_with_suggestion(kind, str(error))) from None
    except msgspec.DecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Refused("the body is nested too deeply") from None


def convert(kind: type[T], values: Mapping[str, object]) -> T:
    """A body from values of Python, with the same checks. Raises Refused."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise Refused(_with_suggestion(kind, str(error))) from None


def _with_suggestion(kind: type[Any], text: str) -> str:
    start, _, rest = text.partition("unknown field `")
    if not rest:
        return text
    name, _, where = rest.partition("`")
    inner = next((each for at, each in (("`$.filter`", FilterBody), ("`$.effect`", EffectBody)) if at in where), kind)
    return f"{start}unknown field `{name}`{where}{did_you_mean(name, inner.__struct_fields__, quote='`')}"


def fault_of(body: FaultBody, brokers: list[int]) -> tuple[RequestFilter | DiskFilter, Effect, Limits]:
    """The parts of a fault. Raises Refused: an unknown name, a filter that cannot match, an effect that the API cannot carry."""
    effect = _effect_of(body.effect, body.filter.direction)
    _check_limits(body)
    if effect.slow_disk_ms:
        return _disk_filter_of(body.filter, brokers), effect, Limits(body.first, body.after, body.probability, body.seed)
    for name in ("disk", "log_dir"):
        if getattr(body.filter, name) is not None:
            raise Refused(f"{name} is about a slow disk: the effect has no slow_disk_ms")
    wanted = _filter_of(body.filter, brokers)
    api = wanted.api
    if api is not None:
        _check_carried(api, wanted, effect)
    elif effect.values is not None:
        raise Refused("values: they are of the responses of one API, and the filter has none")
    return wanted, effect, Limits(body.first, body.after, body.probability, body.seed)


def faults_of_link(body: LinkBody) -> list[FaultBody]:
    """The faults of a link, for one direction or both. Raises Refused."""
    if body.from_broker == body.to_broker:
        raise Refused("a link is between two brokers")
    if body.cut == bool(body.delay_ms):
        raise Refused("a link has one of cut and delay_ms")
    ways = [(body.from_broker, body.to_broker)] + [(body.to_broker, body.from_broker)] * body.both
    effect = EffectBody(delay_ms=body.delay_ms, close="before" if body.cut else None)
    return [FaultBody(filter=FilterBody(from_broker=sender, broker=receiver), effect=effect) for sender, receiver in ways]


def error_named(error: str | int) -> ErrorCode:
    """An error code by its name or number. Raises Refused with a suggestion."""
    if isinstance(error, int) or is_number(error):
        try:
            return ErrorCode(int(error))
        except ValueError:
            raise Refused(f"there is no error code {error}") from None
    if error in ErrorCode.__members__:
        return ErrorCode[error]
    raise Refused(f"there is no error {error!r}{did_you_mean(error, ErrorCode.__members__)}")


def checked_filter(wanted: Mapping[str, Any], brokers: Iterable[int]) -> JsonObject:
    """A filter of requests as `History.newest` takes it, from the ids of all brokers. Raises Refused for an API, an error or a broker that
    does not exist, with a suggestion where there is one: a filter that can match nothing would say that nothing happened.
    """
    from klamm.control.history import ANY_ERROR, api_named

    checked = dict(wanted)
    if checked.get("api") is not None:
        try:
            api_named(str(checked["api"]))
        except ValueError as problem:
            raise Refused(str(problem)) from None
    check_brokers([*brokers], checked.get("broker"))
    error = checked.get("error")
    if error is not None and error != ANY_ERROR:
        code = error_named(error)
        if code == ErrorCode.NONE:
            raise Refused(f"NONE is not an error; {ANY_ERROR!r} is any error")
        checked["error"] = code.name
    return checked


def _filter_of(body: FilterBody, brokers: list[int]) -> RequestFilter:
    from klamm.control.history import api_named

    try:
        api = None if body.api is None else ApiKey(api_named(str(body.api)))
    except ValueError as error:
        raise Refused(str(error)) from None
    check_brokers(brokers, body.broker, body.from_broker)
    values: JsonObject = {
        key: value
        for key, value in (
            ("topic", body.topic), ("partition", body.partition), ("group", body.group), ("transactional_id", body.transactional_id),
        )
        if value is not None
    }
    if body.topic_id is not None:
        if body.topic is not None:
            raise Refused("topic and topic_id cannot be combined")
        values["topic"] = _topic_id(body.topic_id)
    if body.versions is not None:
        low, high = body.versions
        if low > high:
            raise Refused(f"versions: {low} is above {high}")
        if api is not None and (high < APIS[api].min_version or low > APIS[api].last_version):
            raise Refused(f"{APIS[api].name} has versions {APIS[api].min_version}-{APIS[api].last_version}: {low}-{high} cannot match")
    if api is not None and values:
        keys = frozenset(_coordinator_keys(api, values))
        name = APIS[api].name
        if not message_parts.names(f"{name}Request", keys) and not message_parts.names(f"{name}Response", keys):
            raise Refused(f"{name} says nothing of {' and '.join(sorted(values))}: this filter cannot match")
    return RequestFilter(api, body.versions, body.broker, body.from_broker, body.client_id, body.principal, values)


def _disk_filter_of(body: FilterBody, brokers: list[int]) -> DiskFilter:
    named = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not None}
    others = sorted(named.keys() - {"broker", "topic", "partition", "disk", "log_dir", "direction", "while_"})
    if others or body.direction != "request":
        raise Refused(
            f"a slow disk is about operations of logs, which have no {', '.join(others) or 'direction'}: "
            "it has broker, topic, partition, disk and log_dir"
        )
    check_brokers(brokers, body.broker)
    if body.partition is not None and body.topic is None:
        raise Refused("partition: a slow disk with a partition needs its topic")
    if body.log_dir is not None and not isabs(body.log_dir):
        raise Refused(f"log_dir: {body.log_dir!r} is not an absolute path")
    return DiskFilter(body.broker, body.disk, body.log_dir, body.topic, body.partition)


def check_brokers(present: list[int], *wanted: int | None) -> None:
    """Raises Refused if one of the wanted brokers is not there."""
    for broker in wanted:
        if broker is not None and broker not in present:
            raise Refused(f"there is no broker {broker}; the cluster has {', '.join(map(str, present))}")


def _coordinator_keys(api: ApiKey, values: JsonObject) -> list[str]:
    if api == ApiKey.FIND_COORDINATOR:
        return ["coordinator_key" if key in ("group", "transactional_id") else key for key in values]
    return list(values)


def _topic_id(text: str) -> bytes:
    try:
        return id_of(text)
    except ValueError as error:
        raise Refused(f"topic_id: {error}") from None


def _effect_of(body: EffectBody, direction: str) -> Effect:
    chosen = [name for name in _EFFECTS if getattr(body, name) is not None and getattr(body, name) is not False]
    if len(chosen) > 1:
        raise Refused(f"an effect has one of {', '.join(_EFFECTS)}, not {' and '.join(chosen)}")
    if not chosen and not body.delay_ms:
        raise Refused(f"the effect is empty: it has one of {', '.join(_EFFECTS)}, or delay_ms")
    if not 0 <= body.delay_ms <= MAX_DELAY_MS:
        raise Refused(f"delay_ms: from 0 to {MAX_DELAY_MS}")
    if body.slow_disk_ms is not None and body.delay_ms:
        raise Refused("delay_ms is about requests, slow_disk_ms about operations of logs: they cannot be combined")
    if body.slow_disk_ms is not None and not 1 <= body.slow_disk_ms <= MAX_DELAY_MS:
        raise Refused(f"slow_disk_ms: from 1 to {MAX_DELAY_MS}")
    if body.message is not None and body.error is None:
        raise Refused("message: it is the text of an error, and there is no error")
    if body.throttle_time_ms is not None and not 0 <= body.throttle_time_ms < 1 << 31:
        raise Refused("throttle_time_ms: from 0 to 2147483647")
    if body.truncate is not None and body.truncate < 0:
        raise Refused("truncate: 0 or more bytes")
    code = None if body.error is None else error_named(body.error)
    if code == ErrorCode.NONE:
        raise Refused("NONE is no error")
    after_work = direction == "response" or body.lose_response
    return Effect(
        after_work, code, body.message, body.delay_ms, body.drop, body.lose_response, body.close, body.corrupt, body.truncate,
        body.correlation_id, body.throttle_time_ms, body.values, body.unknown_tags, body.slow_disk_ms or 0,
    )


_EFFECTS = (
    "error", "drop", "close", "corrupt", "truncate", "correlation_id", "lose_response", "throttle_time_ms", "values", "unknown_tags",
    "slow_disk_ms",
)


def _check_limits(body: FaultBody) -> None:
    if body.first is not None and body.first < 1:
        raise Refused("first: 1 or more")
    if body.after < 0:
        raise Refused("after: 0 or more")
    if not 0 < body.probability <= 1:
        raise Refused("probability: above 0, at most 1")


def _check_carried(api: ApiKey, wanted: RequestFilter, effect: Effect) -> None:
    from klamm.server.apis.handlers import HANDLERS

    name = APIS[api].name
    if api not in HANDLERS and APIS[api].draft is not Draft.KAFKA_4:
        raise Refused(f"brokers do not serve {name}")
    if effect.throttle_time_ms is not None:
        versions = _versions_of(f"{name}Response", "throttle_time_ms")
        if versions is None:
            raise Refused(f"responses of {name} have no throttle_time_ms")
        asked = wanted.versions or (APIS[api].min_version, APIS[api].max_version)
        if asked[1] < versions[0]:
            raise Refused(f"responses of {name} have throttle_time_ms from version {versions[0]} on")
    for path, value in (effect.values or {}).items():
        if problem := other_values.problem_of(f"{name}Response", path, value):
            raise Refused(f"values: {problem}")
    if effect.has_unknown_tags and not APIS[api].is_flexible(wanted.versions[1] if wanted.versions else APIS[api].max_version):
        raise Refused(f"responses of {name} have no tagged fields in these versions")
    if effect.error is not None and wanted.parts and APIS[api].reads:
        keys = frozenset(_coordinator_keys(api, dict(wanted.parts)))
        if not message_parts.carries(f"{name}Response", keys):
            raise Refused(f"responses of {name} have no error code for {' and '.join(sorted(wanted.parts))}")


def _versions_of(message: str, attribute: str) -> tuple[int, int] | None:
    from klamm.protocol.messages import message_type

    found = [field.versions for field in message_type(message).schema.root.fields if field.attribute == attribute]
    return tuple(found[0]) if found else None  # type: ignore[return-value]
