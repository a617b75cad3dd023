"""What clients sent and what they got: errors first, each with what changed in the cluster just before, then requests in order.

Brokers are no clients: what they send on a connection tells them apart, as in the rules (`klamm.protocol.exchanges.peers`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.lake.tables import API_ERRORS, EVENT_TABLE, MESSAGES
from klamm.pipeline.report.reading import FRAMES, Place, Row, RunTables, api_name, by_node, error_name, to_ms
from klamm.protocol.exchanges.peers import is_broker

CLIENTS = 40
LISTED = 1000
"""Number of requests in the list."""
LISTED_ERRORS = 300
"""Number of requests with an error in the list; the others are the latest ones."""
SHOWN = 12
"""Number of kinds of errors of a client that are shown, each with the frames of the first."""
JUST_BEFORE_NS = 5_000_000_000
CHANGES = 3
"""Number of changes that are named before an error."""
SAME_NS = 50_000_000
"""Changes of one kind within this time are one."""

_CHANGES = {
    "controller_elected": "broker {broker} became controller", "controller_resigned": "controller {node_id} resigned",
    "broker_up": "broker {broker} came", "broker_down": "broker {broker} was gone", "broker_started": "broker {node_id} started",
}
"""What an event changes, as text."""


class ClientError(NamedTuple):
    """An error that a client got from an API: its first response with these error codes."""

    responses: int
    """With these error codes."""
    request: Place
    response: Place
    at_ms: float
    api: str
    errors: str
    """Names of the error codes, with their numbers where they are more than one; "at least" if the response was cut."""
    fault: str
    """The fault that hit the request; empty where none did."""
    before: list[str]
    """What changed in the cluster just before, the latest last."""


class Client(NamedTuple):
    """A client, by its client id and software."""

    name: str
    software: str
    requests: int
    errors: int
    """Number of responses with an error code."""
    shown: list[ClientError]
    """The first of each kind, at most SHOWN, by time."""
    left: int
    """Number of other kinds."""


class Sent(NamedTuple):
    """What all clients sent."""

    clients: list[Client]
    """Those with most errors first, at most CLIENTS."""
    number: int
    """Of clients."""
    requests: int
    """Of clients."""
    of_brokers: int
    """Requests of brokers and controllers."""
    listed: list[Row]
    """at_ms, client, broker, api, version, result, ms, fault, request (a Place): the first requests with an error or a fault and the latest
    ones, by time.
    """


_CONNECTION = ("node_id", "process", "conn_id")
_Key = tuple[int, int, int]
_Who = tuple[str, str]
_Counted = tuple[_Key, _Who, int | None, int]
"""Connection, client, API and direction."""
_LISTED = ("node_id", "seq", "ts_ns", "client_id", "client_sw", "api_key", "api_version")


def sent(tables: RunTables, timeline: pa.Table) -> Sent:
    """What clients sent in the run. `timeline` has the rows of LEADER_TIMELINE."""
    counts = _counts(tables)
    of_brokers = _of_brokers(tables, counts)
    requests: Counter[_Who] = Counter()
    others = 0
    for (key, who, _, direction), count in counts.items():
        if direction == Direction.REQUEST_IN:
            if key in of_brokers:
                others += count
            else:
                requests[who] += count
    every = _errors(tables, of_brokers)
    errors = Counter(_who(row) for row in every)
    kinds = _kinds(every)
    order = sorted(requests, key=lambda who: (-errors[who], -requests[who], who))[:CLIENTS]
    changes = _Changes(tables, timeline) if every else None
    faults = _faults(tables)
    clients = []
    for who in order:
        shown = [] if changes is None else [_shown(rows, faults, changes) for rows in kinds[who][:SHOWN]]
        clients.append(Client(who[0] or "no client id", who[1], requests[who], errors[who], shown, len(kinds[who][SHOWN:])))
    wanted = [Place(row["node_id"], row["request_seq"]) for row in every[:LISTED_ERRORS]]
    wanted += list(faults)[:LISTED_ERRORS]
    return Sent(clients, len(requests), sum(requests.values()), others, _listed(tables, of_brokers, wanted, faults))


def _of_brokers(tables: RunTables, counts: Collection[_Counted]) -> set[_Key]:
    """The connections of brokers."""
    keys: dict[_Key, set[int]] = defaultdict(set)
    names: dict[_Key, set[_Who]] = defaultdict(set)
    for key, who, api, direction in counts:
        if direction == Direction.REQUEST_IN and api is not None:
            keys[key].add(api)
            names[key].add(who)
    followers = {
        _key(row)
        for rows in tables.by_file(MESSAGES, (*_CONNECTION, "replica_id"))
        for row in rows.filter(pc.greater_equal(rows["replica_id"], 0)).group_by(list(_CONNECTION)).aggregate([]).to_pylist()
    }
    return {
        key for key, apis in keys.items()
        if is_broker([name for name, _ in names[key]], apis, follows=key in followers,
                     software=next((software.partition("/")[0] for _, software in names[key] if software), None))
    }


def _accepted(rows: pa.Table, direction: Direction | None = None) -> pa.Table:
    """The rows of connections that brokers accepted."""
    wanted = pc.equal(rows["kind"], "accepted")
    return rows.filter(wanted if direction is None else pc.and_(wanted, pc.equal(rows["dir"], direction)))


def _counts(tables: RunTables) -> Counter[_Counted]:
    """Number of frames."""
    counts: Counter[_Counted] = Counter()
    names = (*_CONNECTION, "client_id", "client_sw", "api_key", "dir")
    for rows in tables.by_file(FRAMES, (*names, "kind")):
        for row in _accepted(rows).group_by(list(names)).aggregate([([], "count_all")]).to_pylist():
            counts[_key(row), _who(row), row["api_key"], row["dir"]] += row["count_all"]
    return counts


def _key(row: Row) -> _Key:
    return row["node_id"], row["process"], row["conn_id"]


def _who(row: Row) -> _Who:
    return row["client_id"] or "", row["client_sw"] or ""


def _errors(tables: RunTables, of_brokers: Collection[_Key]) -> list[Row]:
    """The responses with an error that clients got, by time: their places and codes."""
    responses: dict[Place, Row] = {}
    names = (*_CONNECTION, "seq", "request_seq", "ts_ns", "client_id", "client_sw", "api_key", "flags", "error_code", "count")
    for rows in tables.by_file(API_ERRORS, (*names, "kind", "dir")):
        for row in _accepted(rows, Direction.RESPONSE_OUT).select(list(names)).to_pylist():
            if _key(row) in of_brokers or row["request_seq"] is None:
                continue
            of_response = responses.setdefault(Place(row["node_id"], row["seq"]), {**row, "codes": Counter()})
            of_response["codes"][row["error_code"]] += row["count"]
    return sorted(responses.values(), key=lambda row: (row["ts_ns"], row["node_id"], row["seq"]))


def _kinds(errors: Iterable[Row]) -> dict[_Who, list[list[Row]]]:
    """The responses of each client that have the same error codes of the same API, in the order of the first ones."""
    found: dict[_Who, dict[tuple[int, frozenset[int]], list[Row]]] = defaultdict(dict)
    for row in errors:
        found[_who(row)].setdefault((row["api_key"], frozenset(row["codes"])), []).append(row)
    return defaultdict(list, {who: list(kinds.values()) for who, kinds in found.items()})


def _faults(tables: RunTables) -> dict[Place, str]:
    """By request: the fault that hit it, and what that does."""
    found: dict[Place, str] = {}
    for row in tables.where(EVENT_TABLE, ("node_id", "cause_seq", "input"), kind=["fault_injected"]):
        told = json.loads(row["input"] or "{}")
        does = " ".join(f"{name}={value}" for name, value in told.items() if name != "name")
        if row["cause_seq"] is not None:
            found.setdefault(Place(row["node_id"], row["cause_seq"]), f"{told.get('name', 'a fault')}: {does}")
    return found


def _shown(rows: Sequence[Row], faults: Mapping[Place, str], changes: _Changes) -> ClientError:
    row = rows[0]
    node, at = row["node_id"], row["ts_ns"]
    request, response = Place(node, row["request_seq"]), Place(node, row["seq"])
    api, errors = api_name(row["api_key"]), _names(row["codes"], row["flags"])
    return ClientError(len(rows), request, response, to_ms(at), api, errors, faults.get(request, ""), changes.before(at))


def _names(codes: Mapping[int, int], flags: int) -> str:
    """The errors of a response. What the journal has cut off may have more of them."""
    names = ", ".join(error_name(code) if count == 1 else f"{count} × {error_name(code)}" for code, count in sorted(codes.items()))
    return f"at least {names}" if flags & Flag.CUT else names


def _some(texts: Sequence[str]) -> str:
    different = list(dict.fromkeys(texts))
    more = f", and {len(different) - CHANGES} more" if len(different) > CHANGES else ""
    return ", ".join(different[:CHANGES]) + more


class _Changes:
    """What changed in the cluster: leaders, controllers, brokers."""

    def __init__(self, tables: RunTables, timeline: pa.Table) -> None:
        changes = []
        for row in timeline.to_pylist():
            leader = f"leader {row['leader']}" if row["leader"] >= 0 else "no leader"
            kind = "internal topic" if row["topic"].startswith("__") else "leader"
            text = f"{row['topic']}-{row['partition']} got {leader} (epoch {row['leader_epoch']})"
            changes.append((row["from_ts_ns"], kind, text))
        events = tables.where(EVENT_TABLE, ("ts_ns", "node_id", "broker", "kind"), kind=_CHANGES)
        changes += [(row["ts_ns"], row["kind"], _CHANGES[row["kind"]].format_map(row)) for row in events]
        self._changes = sorted(changes)

    def before(self, at_ns: int) -> list[str]:
        """The last CHANGES of the JUST_BEFORE_NS before this time. Those of one kind at about the same time are one."""
        end = bisect_right(self._changes, at_ns, key=itemgetter(0))
        begin = bisect_right(self._changes, at_ns - JUST_BEFORE_NS, key=itemgetter(0))
        together: dict[tuple[int, str], list[str]] = {}
        latest: dict[str, int] = {}
        for changed_ns, kind, text in self._changes[begin:end]:
            if changed_ns - latest.get(kind, 0) > SAME_NS:
                latest[kind] = changed_ns
            together.setdefault((latest[kind], kind), []).append(text)
        return [f"{(at_ns - at) / 1e9:.3f} s before: {_some(texts)}" for (at, _), texts in list(together.items())[-CHANGES:]]


def _listed(tables: RunTables, of_brokers: Collection[_Key], wanted: Sequence[Place], faults: Mapping[Place, str]) -> list[Row]:
    """The wanted requests and the latest ones of clients, with what came of them, by time."""
    listed = {Place(row["node_id"], row["seq"]): row for row in _at(tables, wanted, "seq", Direction.REQUEST_IN, _LISTED)}
    latest: list[Row] = []
    for rows in tables.by_file(FRAMES, (*_LISTED, "process", "conn_id", "kind", "dir")):
        asked = _accepted(rows, Direction.REQUEST_IN)
        asked = asked.take(pc.sort_indices(asked, sort_keys=[("ts_ns", "descending")]))
        space = LISTED - len(listed)
        latest = sorted([*latest, *_first(asked, of_brokers, space)], key=lambda row: -row["ts_ns"])[:space]
    listed |= {Place(row["node_id"], row["seq"]): row for row in latest}
    answers = {
        Place(row["node_id"], row["cause_seq"]): row
        for row in _at(tables, listed, "cause_seq", Direction.RESPONSE_OUT, ("node_id", "cause_seq", "latency_ns"))
    }
    codes: dict[Place, Counter[int]] = defaultdict(Counter)
    flags: dict[Place, int] = {}
    for node, seqs in by_node(listed).items():
        for row in tables.where(API_ERRORS, ("request_seq", "error_code", "count", "flags"), node_id=[node], request_seq=seqs):
            place = Place(node, row["request_seq"])
            codes[place][row["error_code"]] += row["count"]
            flags[place] = row["flags"]
    return [
        {
            "at_ms": to_ms(row["ts_ns"]),
            "client": row["client_id"] or row["client_sw"] or "no client id",
            "broker": place.node_id,
            "api": api_name(row["api_key"]),
            "version": "" if row["api_version"] is None else f"v{row['api_version']}",
            "result": _names(codes[place], flags[place]) if place in codes else "no response" if place not in answers else "",
            "ms": to_ms(answers[place]["latency_ns"]) if place in answers and answers[place]["latency_ns"] is not None else None,
            "fault": faults.get(place, ""),
            "request": place,
        }
        for place, row in sorted(listed.items(), key=lambda item: (item[1]["ts_ns"], item[0]))
    ]


def _first(rows: pa.Table, of_brokers: Collection[_Key], number: int) -> Iterable[Row]:
    """The first rows that are of clients, read in parts: a table may have many rows, most of them of brokers."""
    found = 0
    for part in rows.to_batches(max_chunksize=LISTED):
        for row in part.to_pylist():
            if _key(row) not in of_brokers:
                yield row
                found += 1
                if found == number:
                    return


def _at(tables: RunTables, places: Iterable[Place], column: str, direction: Direction, names: Sequence[str]) -> Iterable[Row]:
    """The frames of this direction whose `column` is the number of one of these places."""
    for node, seqs in by_node(places).items():
        yield from tables.where(FRAMES, {*names, column}, node_id=[node], dir=[direction], **{column: seqs})
