"""What clients requested and what happened in the cluster meanwhile, as lines of text in the order of time."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from klamm.control.history import Exchange
from klamm.control.json_object import JsonObject
from klamm.protocol.nouns import ZERO_UUID
from klamm.protocol.schema import Struct
from klamm.server.faults import message_parts

MAX_SUBJECTS = 4
MAX_PARTITIONS = 8
MAX_LINES = 200
FIRST_ERROR = ">"
USUAL_ERRORS = frozenset((
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "FETCH_SESSION_ID_NOT_FOUND", "LEADER_NOT_AVAILABLE",
    "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "UNSUPPORTED_VERSION",
))
"""Every client meets these, and goes on; the last one when its ApiVersions request is newer than the broker."""

TopicName = Callable[[bytes], str]
"""The name of a topic id."""
Rank = Callable[[str], int]
"""How far down in a list a topic or group belongs; those of a test have 0."""


def equal_rank(name: str) -> int:
    """All names are equal."""
    return 0



def subjects(message: Any, version: int, name_of: TopicName = bytes.hex) -> list[str]:
    """Which topics with their partitions, groups and transactional ids a request names."""
    found = list(dict.fromkeys(_subjects(message, message._type.schema.root, "", version, name_of)))
    return found if len(found) <= MAX_SUBJECTS else [*found[:MAX_SUBJECTS], f"and {len(found) - MAX_SUBJECTS} more"]


def _subjects(node: Any, struct: Struct, container: str, version: int, name_of: TopicName) -> Iterator[str]:
    topic = ""
    partitions: list[int] = []
    below: list[str] = []
    for field in struct.fields:
        if version not in field.versions:
            continue
        value, key = getattr(node, field.attribute), message_parts.key_of(field, container, struct)
        if field.struct is not None and field.is_array:
            for row in value or ():
                index = next((getattr(row, each.attribute) for each in field.struct.fields if _is_index(each, field)), None)
                if index is None:
                    below += _subjects(row, field.struct, field.attribute, version, name_of)
                else:
                    partitions.append(index)
        elif key == "partition":
            partitions += value if field.is_array else [value]
        elif key == "topic":
            names = value if field.is_array else [value]
            names = [each if isinstance(each, str) else "" if each in (None, ZERO_UUID) else name_of(each) for each in names or ()]
            topic = topic or ", ".join(filter(None, names))
        elif key in ("group", "transactional_id", "coordinator_key") and value:
            kind = {"group": "group ", "transactional_id": "transaction "}.get(key, "")
            below += [f"{kind}{each}" for each in (value if field.is_array else [value])]
    if topic:
        more = ",…" if len(partitions) > MAX_PARTITIONS else ""
        yield topic + (f"-{','.join(map(str, partitions[:MAX_PARTITIONS]))}{more}" if partitions else "")
    yield from below


def _is_index(field: Any, container: Any) -> bool:
    return not field.is_array and message_parts.key_of(field, container.attribute, container.struct) == "partition"


def request_text(exchange: Exchange, name_of: TopicName = bytes.hex) -> str:
    """A request and the outcome, without its time: `broker 1  Produce v9  my-client  orders-0  NOT_LEADER_OR_FOLLOWER`."""
    request = exchange.decoded_request()
    about = "?" if request is None else " ".join(subjects(request, exchange.version, name_of))
    client = exchange.client_id if exchange.client_id else "(no client id)"
    columns = [f"broker {exchange.broker}", f"{exchange.api} v{exchange.version}", client, about, outcome(exchange)]
    return "  ".join(filter(None, columns))


def outcome(exchange: Exchange) -> str:
    """The first error in the response, `ok`, or `no response`."""
    if exchange.response is None:
        return "no response"
    return exchange.error or ("a response that cannot be decoded" if exchange.decoded_response() is None else "ok")


def event_text(event: JsonObject, rank: Rank = equal_rank) -> str | None:
    """What happened in the cluster; None for what is not shown. Of many partitions those of the topics with the lowest rank are named."""
    data = event["data"]
    match event["kind"]:
        case "change":
            return _change_text(data, rank)
        case "hold":
            return f"hold {data['id']} of {data['phase']} is made"
        case "released":
            return f"hold {data['id']} of {data['phase']} is released"
        case "fault":
            return f"fault {data['id']} is made: {fault_text(data)}"
        case "crashed":
            return f"broker {data['broker']} is killed at {data.get('phase') or 'hold ' + str(data['hold'])}"
        case "broker":
            return f"broker {data['id']}: {data['state']}"
        case "expired":
            return f"the ZooKeeper session of broker {data['broker']} is expired"
        case "clock":
            if "advanced_ms" in data:
                return f"the clock is advanced by {data['advanced_ms'] / 1000:g} s; {data['fired']} timers fire"
            return "the clock is frozen" if data["frozen"] else "the clock runs"
        case "zookeeper":
            return _zookeeper_text(data)
        case "coordinator":
            return _coordinator_text(data)
        case "controller":
            return f"the controller is moved to broker {data['id']}"
    return None


def _zookeeper_text(data: JsonObject) -> str:
    if "cut" not in data:
        return f"requests of broker {data['broker']} to ZooKeeper wait for {data['delay_ms']} ms"
    return f"broker {data['broker']} is cut off from ZooKeeper" if data["cut"] else f"broker {data['broker']} reaches ZooKeeper again"


_GROUP_STEPS = {
    "GroupRebalanceBegun": "rebalance begins", "GroupJoinCompleted": "all members have joined",
    "GroupAssignmentReceived": "assignment comes", "GroupAssignmentStored": "assignment is stored", "GroupEmptied": "no members are left",
}
_TRANSACTION_STEPS = {
    "ProducerEpochStored": "producer is initialised", "ProducerFenced": "producer is fenced", "TransactionBegun": "begins",
    "TransactionPartitionsAdded": "has more partitions", "TransactionEndPrepared": "is to end",
    "TransactionMarkersWritten": "markers are written", "TransactionCompleted": "is complete", "TransactionTimedOut": "times out",
}


def _coordinator_text(data: JsonObject) -> str:
    """`group billing: rebalance begins (generation 3)`, `transaction copy-1: is complete (commit, producer 4 epoch 0)`."""
    phase = data["phase"]
    if "group" in data:
        step = f"member {data['member_id']} {data['reason']}" if phase == "GroupMemberRemoved" else _GROUP_STEPS.get(phase, phase)
        return f"group {data['group']}: {step} (generation {data['generation']})"
    outcome = f"{data['outcome']}, " if "outcome" in data else ""
    step = _TRANSACTION_STEPS.get(phase, phase)
    return f"transaction {data['transactional_id']}: {step} ({outcome}producer {data['producer_id']} epoch {data['producer_epoch']})"


def _change_text(data: JsonObject, rank: Rank) -> str | None:
    match data["change"]:
        case "StatesChanged":
            rows = [
                f"{row['topic']}-{row['partition']}: " + (
                    f"leader {row['leader']}, isr {row['isr']}, leader epoch {row['leader_epoch']}" if "leader" in row else "no state"
                )
                for row in sorted(data["partitions"], key=lambda row: (rank(row["topic"]), row["topic"], row["partition"]))[:MAX_SUBJECTS]
            ]
            more = len(data["partitions"]) - len(rows) + data["more"]
            return "; ".join(rows) + (f"; and {more} more" if more else "")
        case "TermBegan":
            return f"broker {data['controller_id']} is controller with epoch {data['controller_epoch']}"
        case "TermEnded":
            return f"broker {data['controller_id']} is not controller any more"
        case "TopicAdded":
            return f"topic {data['topic']} is there"
        case "TopicRemoved":
            return f"topic {data['topic']} is gone"
        case "TopicDeletionQueued":
            return f"topic {data['topic']} is to be deleted"
        case "ReassignmentsBegan" | "ReassignmentsEnded":
            names = ", ".join(f"{row['topic']}-{row['partition']}" for row in data["partitions"])
            return f"reassignment {'begins' if data['change'] == 'ReassignmentsBegan' else 'ends'}: {names}"
        case "BrokersRegistered":
            return f"brokers {data['broker_ids']} are registered"
        case "BrokersUnregistered":
            return f"brokers {data['broker_ids']} are not registered any more"
    return None


def fault_text(shown: JsonObject) -> str:
    """A fault, from how the control API shows it: what it is about and what it does."""
    about = " ".join(f"{key}={value}" for key, value in shown["filter"].items() if (key, value) != ("direction", "request"))
    does = " ".join(key if value is True else f"{key}={value}" for key, value in shown["effect"].items())
    limits = [f"first={shown['first']}" if shown["first"] is not None else "", f"after={shown['after']}" if shown["after"] else ""]
    limits.append(f"probability={shown['probability']}" if shown["probability"] < 1 else "")
    return ", ".join(filter(None, [about or "every request", does, " ".join(filter(None, limits))]))


def _severity(exchange: Exchange, older: Container[str]) -> int:
    """How probably its error is the one that is looked for; 0 without an error."""
    result = outcome(exchange)
    if result in ("ok", "no response"):
        return 0
    return 1 if result in USUAL_ERRORS else 2 if exchange.peer in older else 3


def timeline(
    exchanges: Iterable[Exchange], events: Iterable[JsonObject], begun_ms: int, name_of: TopicName = bytes.hex, *,
    rank: Rank = equal_rank, older: Container[str] = (), limit: int = MAX_LINES,
) -> list[str]:
    """Requests and events in the order of time; the first error is marked with `>`. Equal requests in a row are one line.

    Errors that every client meets, and then those of `older` clients (their host:port), are marked only if there are no others. Of more
    than `limit` lines the first and the last are shown, and always the marked one.
    """
    rows = [(each.at_ms, 1, request_text(each, name_of), _severity(each, older)) for each in exchanges]
    rows += [(event["at_ms"], 0, f"* {text}", 0) for event in events if (text := event_text(event, rank)) is not None]
    rows.sort(key=lambda row: row[:2])
    lines: list[list[Any]] = []
    worst, has_error = max((row[3] for row in rows), default=0), False
    for at_ms, is_request, text, severity in rows:
        is_first = not has_error and 0 < severity == worst
        has_error = has_error or is_first
        if lines and is_request and lines[-1][1] == text and not is_first:
            lines[-1][2] += 1
        else:
            lines.append([at_ms, text, 1, is_first])
    shown = [
        f"{FIRST_ERROR if is_first else ' '} {(at_ms - begun_ms) / 1000:+9.3f} s  {text}{f'  (x{count})' if count > 1 else ''}"
        for at_ms, text, count, is_first in lines
    ]
    if len(shown) <= limit:
        return shown
    head, tail = shown[: limit // 4], shown[-(limit - limit // 4) :]
    between = [line for line in shown[limit // 4 : -(limit - limit // 4)] if line.startswith(FIRST_ERROR)]
    return [*head, f"  … {len(shown) - limit} lines …", *between, *tail]
