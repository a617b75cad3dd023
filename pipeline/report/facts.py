"""The facts that the report shows about a run, read from its tables.

A picture has at most a few thousand marks: only the busiest partitions are shown, time is cut into buckets, and the page says how much was
left out.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.damage import refuse_missing
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.tables import (
    API_ERRORS,
    API_MATRIX,
    CLIENT_SCORECARD,
    EVENT_TABLE,
    GROUP_GENERATIONS,
    LATENCY,
    LEADER_TIMELINE,
    OFFSET_COMMITS,
    QUARANTINE,
    REASSIGN_SPANS,
    RULE_STATS,
    VERDICTS,
)
from klamm.pipeline.report.clients import Sent, sent
from klamm.pipeline.report.reading import FRAMES, Place, Row, RunTables, StoredTables, api_name, by_node, error_name, to_ms
from klamm.pipeline.report.source import ReportSource
from klamm.pipeline.simulation.tables import SIM_LEADERS, SIM_SUMMARY
from klamm.protocol.apis import ApiKey
from klamm.seams.value_class import dataclass

PARTITIONS = 40
"""Number of partitions in a timeline."""
GROUPS = 40
"""Number of groups in a timeline."""
CLIENTS = 40
BUCKETS = 80
"""Number of time buckets."""
VIOLATIONS = 5
"""Number of violations of a rule that are shown with their evidence."""
MARKS = 2000
REBALANCE, STABLE = "rebalance", "stable"
"""What a group does: its members join and wait for their assignment, or they have it."""
COPY = "copy"
"""The phase of a reassignment in which new replicas copy."""


class RuleResult(NamedTuple):
    """The result of a rule for a run."""

    rule: str
    checked: int
    violated: int
    violations: list[Row]
    """The first ones of VERDICTS."""
    lacks: str = ""
    """What the journals do not show and the rule needs; empty if it is applicable."""


class Accused(NamedTuple):
    """Who broke which rules."""

    who: str
    """A client, with its software, or a broker."""
    is_client: bool
    rules: dict[str, int]
    """Rule → violations, of those that are named."""


class Simulation(NamedTuple):
    """The simulation that was written to the lake last."""

    name: str
    leaders: list[Row]
    """broker, when (before, after), leaders."""
    steps: list[Row]
    """SIM_SUMMARY, a row for each step."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the pictures and tables of the report show. Times are milliseconds since 1970."""

    run: str
    runs: list[str]
    """All runs of the lake, the latest last."""
    engine: str
    """What made the tables, in a few words."""
    notes: list[str]
    """About what is not in the tables, one line each."""
    begin_ms: float
    end_ms: float
    stopped_ms: float
    """When the stop of the whole cluster began; the end if it was not stopped."""
    counts: Mapping[str, int]
    """Rows of frames, events and quarantine."""
    brokers: list[int]
    controllers: list[Row]
    """broker, controller_epoch, from_ms, to_ms: who was the controller."""
    leaders: list[Row]
    """topic_partition, leader, leader_epoch, controller_epoch, from_ms, to_ms: of the partitions whose leaders changed most often."""
    partitions: int
    """How many partitions have leaders in this run."""
    led: list[Row]
    """leader, at_ms, partitions: how many partitions a broker leads at a time."""
    phases: list[Row]
    """topic_partition, phase, step, throttle, from_ms, to_ms: of reassignments, COPY among the phases."""
    reassigned: int
    generations: list[Row]
    """group, phase (REBALANCE or STABLE), generation, leader, members, partitions, commits, broker, from_ms, to_ms: of the groups with most
    generations."""
    groups: int
    sent: Sent
    errors: list[Row]
    """at_ms, to_ms, what, code, count: what is the API with the error's name."""
    latencies: list[Row]
    """api, percentile, ms, count."""
    matrix: list[Row]
    """client, api, version, requests, errors, outside, quarantined."""
    clients: int
    speakers: list[Row]
    """CLIENT_SCORECARD, the busiest clients first, each with `spoken`: API → versions."""
    rules: list[RuleResult]
    accused: list[Accused]
    """Brokers, and then clients, those with most violations first."""
    is_of_clients: bool
    """A proxy or a capture wrote the journals: they have frames of clients, and no events of brokers or of a controller."""
    quarantine: list[Row]
    """reason, count."""
    simulation: Simulation | None
    versions: list[str]
    """Of the brokers, as they said at their start."""


def collect(source: ReportSource) -> Facts:
    """The facts of a run."""
    tables = source.tables
    begin, end, nodes = _extent(tables.by_file(FRAMES, ("ts_ns", "node_id")))
    timeline = tables.read(LEADER_TIMELINE, LEADER_TIMELINE.names)
    spans = tables.read(REASSIGN_SPANS, REASSIGN_SPANS.names)
    matrix, clients = _matrix(tables.read(API_MATRIX, API_MATRIX.names))
    leaders, partitions = _leaders(timeline, end)
    rules, verdicts = _rules(tables)
    phases, reassigned = _phases(spans, end)
    generations, groups = _generations(
        tables.read(GROUP_GENERATIONS, GROUP_GENERATIONS.names), tables.by_file(OFFSET_COMMITS, (*_COMMITTED, "error_code")), end
    )
    return Facts(
        tables.run, source.runs, source.engine, source.notes, to_ms(begin), to_ms(end), to_ms(_stopped(tables, nodes, end)),
        {"frames": tables.rows(FRAMES), "events": tables.rows(EVENT_TABLE), "quarantine": tables.rows(QUARANTINE)},
        nodes,
        _controllers(tables.read(EVENT_TABLE, ("ts_ns", "kind", "node_id", "controller_epoch")), end),
        leaders, partitions, _led(timeline, begin, end), phases, reassigned, generations, groups, sent(tables, timeline),
        _errors(tables.by_file(API_ERRORS, ("ts_ns", "api_key", "error_code", "count", "dir", "flags")), begin, end),
        _latencies(tables.read(LATENCY, LATENCY.names)), matrix, clients,
        _speakers(tables),
        rules, _accused(tables, verdicts), _is_of_clients(tables), _reasons(tables.read(QUARANTINE, ("reason",))), _simulation(source.lake),
        _versions(tables.read(EVENT_TABLE, ("kind", "output"))),
    )


def _extent(frames: Iterable[pa.Table]) -> tuple[int, int, list[int]]:
    """First and last time, and the brokers; jumps of clocks are not corrected."""
    limits, nodes = [], set()
    for rows in frames:
        limits.append(pc.min_max(rows["ts_ns"]).as_py())
        nodes.update(pc.unique(rows["node_id"]).to_pylist())
    begin = min(one["min"] for one in limits)
    return begin, max(begin + 1, *(one["max"] for one in limits)), sorted(nodes)


def _stopped(tables: RunTables, nodes: Iterable[int], end: int) -> int:
    """When the stop of the cluster began: the first shutdown after which no broker came and at most one was left. Else the end."""
    changes = tables.where(EVENT_TABLE, ("ts_ns", "kind", "broker", "node_id"), kind=["broker_up", "broker_down", "broker_started"])
    came = max((row["ts_ns"] for row in changes if row["kind"] != "broker_down"), default=0)
    known = {*nodes, *(row["broker"] for row in changes if row["kind"] != "broker_started")}
    down = {row["broker"] for row in changes if row["kind"] == "broker_down" and row["ts_ns"] > came}
    asked = tables.where(FRAMES, ("ts_ns",), api_key=[ApiKey.CONTROLLED_SHUTDOWN], dir=[Direction.REQUEST_IN])
    begun = [row["ts_ns"] for row in asked if row["ts_ns"] > came]
    return min(begun) if begun and down and len(known - down) <= 1 else end


def _controllers(events: pa.Table, end: int) -> list[Row]:
    """Terms of controllers: each ends when it resigns, or when the next one is elected."""
    if not events.num_rows:
        return []
    chosen = events.filter(pc.is_in(events["kind"], pa.array(["controller_elected", "controller_resigned"]))).sort_by("ts_ns").to_pylist()
    terms: list[Row] = []
    for row in chosen:
        if terms and terms[-1]["to_ms"] is None and (row["kind"] == "controller_elected" or row["node_id"] == terms[-1]["broker"]):
            terms[-1]["to_ms"] = to_ms(row["ts_ns"])
        if row["kind"] == "controller_elected":
            terms.append(
                {"broker": row["node_id"], "controller_epoch": row["controller_epoch"], "from_ms": to_ms(row["ts_ns"]), "to_ms": None}
            )
    if terms and terms[-1]["to_ms"] is None:
        terms[-1]["to_ms"] = to_ms(end)
    return terms


def _topic_partition(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}"


def _busiest(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """The rows of the partitions that have most of them, at most MARKS, and how many partitions there are."""
    counts = Counter(map(_topic_partition, rows))
    shown = {name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:PARTITIONS]}
    return [row for row in rows if _topic_partition(row) in shown][:MARKS], len(counts)


_IN_ORDER = [("from_ts_ns", "ascending"), ("node_id", "ascending"), ("seq", "ascending")]


def _leaders(timeline: pa.Table, end: int) -> tuple[list[Row], int]:
    rows = timeline.sort_by(_IN_ORDER).to_pylist() if timeline.num_rows else []
    shown, partitions = _busiest(rows)
    return [
        {
            "topic_partition": _topic_partition(row),
            "leader": str(row["leader"]) if row["leader"] >= 0 else "none",
            "leader_epoch": row["leader_epoch"],
            "controller_epoch": row["controller_epoch"],
            "from_ms": to_ms(row["from_ts_ns"]),
            "to_ms": to_ms(end if row["to_ts_ns"] is None else row["to_ts_ns"]),
        }
        for row in shown
    ], partitions


def _led(timeline: pa.Table, begin: int, end: int) -> list[Row]:
    """How many partitions each broker leads at the end of each part of the time."""
    if not timeline.num_rows:
        return []
    width = (end - begin) / BUCKETS
    changes: dict[str, Counter[int]] = {}
    for leader, since, until in zip(*(timeline[name].to_pylist() for name in ("leader", "from_ts_ns", "to_ts_ns")), strict=True):
        name = str(leader) if leader >= 0 else "none"
        per_bucket = changes.setdefault(name, Counter())
        per_bucket[min(BUCKETS, max(0, int((since - begin) / width)))] += 1
        if until is not None:
            per_bucket[min(BUCKETS, max(0, int((until - begin) / width)))] -= 1
    rows = []
    for leader, per_bucket in sorted(changes.items()):
        count = 0
        for bucket in range(BUCKETS + 1):
            count += per_bucket[bucket]
            rows.append({"leader": leader, "at_ms": to_ms(int(begin + bucket * width)), "partitions": count})
    return rows


def _phases(spans: pa.Table, end: int) -> tuple[list[Row], int]:
    rows = spans.sort_by(_IN_ORDER).to_pylist() if spans.num_rows else []
    shown, partitions = _busiest(rows)
    phases = [
        {
            "topic_partition": _topic_partition(row),
            "phase": row["phase"],
            "step": row["step"],
            "throttle": "throttled" if row["throttle"] else "not throttled",
            "from_ms": to_ms(row["from_ts_ns"]),
            "to_ms": to_ms(end if row["to_ts_ns"] is None else row["to_ts_ns"]),
        }
        for row in shown
    ]
    return _with_copying(phases, to_ms(end)), partitions


def _with_copying(phases: list[Row], end_ms: float) -> list[Row]:
    """The phases, and between A and what follows it the time in which new replicas copy: the controller waits then and has no phase."""
    rows: list[Row] = []
    for name in dict.fromkeys(row["topic_partition"] for row in phases):
        own = [row for row in phases if row["topic_partition"] == name]
        for row, after in zip(own, [*own[1:], None], strict=True):
            rows.append(row)
            until = end_ms if after is None else after["from_ms"]
            if row["phase"] in ("A1", "A2") and until > row["to_ms"]:
                rows.append(row | {"phase": COPY, "from_ms": row["to_ms"], "to_ms": until})
    return rows


_COMMITTED = ["group_id", "node_id", "generation", "seq"]
"""What names a request that commits offsets in a generation of a group."""


def _generations(table: pa.Table, offsets: Iterable[pa.Table], end: int) -> tuple[list[Row], int]:
    """Of each generation the time until its first member has its assignment, and the time until the next rebalance begins."""
    rows = table.sort_by("joined_ts_ns").to_pylist() if table.num_rows else []
    counts = Counter(row["group_id"] for row in rows)
    shown = {name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:GROUPS]}
    commits = _commits([row for row in rows if row["group_id"] in shown], offsets)
    phases: list[Row] = []
    for name in shown:
        own = [row for row in rows if row["group_id"] == name]
        for row, after in zip(own, [*own[1:], None], strict=True):
            until = end if after is None else max(after["from_ts_ns"], row["joined_ts_ns"])
            stable = until if row["stable_ts_ns"] is None else min(row["stable_ts_ns"], until)
            about = {"group": name, "broker": row["node_id"]}
            about |= {name: row[name] for name in ("generation", "leader", "members", "partitions")}
            about["commits"] = commits[row["node_id"], row["seq"]]
            for phase, since, to in ((REBALANCE, row["from_ts_ns"], stable), (STABLE, stable, until)):
                if to > since:
                    phases.append(about | {"phase": phase, "from_ms": to_ms(since), "to_ms": to_ms(to)})
    return sorted(phases, key=lambda row: (row["from_ms"], row["group"]))[:MARKS], len(counts)


def _commits(generations: Sequence[Row], offsets: Iterable[pa.Table]) -> Counter[tuple[int, int]]:
    """(Broker, first row of a generation) → OffsetCommit requests of the generation that succeeded."""
    begins: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for row in generations:
        begins[row["group_id"], row["node_id"], row["generation"]].append(row["seq"])
    groups = pa.array({row["group_id"] for row in generations}, pa.string())
    counts: Counter[tuple[int, int]] = Counter()
    for rows in offsets:
        done = rows.filter(pc.and_(pc.equal(rows["error_code"], 0), pc.is_in(rows["group_id"], groups)))
        for row in done.group_by(_COMMITTED).aggregate([]).to_pylist():
            # A group that was deleted begins again with generation 1.
            before = [seq for seq in begins[row["group_id"], row["node_id"], row["generation"]] if seq < row["seq"]]
            if before:
                counts[row["node_id"], max(before)] += 1
    return counts


def _errors(errors: Iterable[pa.Table], begin: int, end: int) -> list[Row]:
    """Error codes of the responses that brokers sent, by API and time. `counted` says whether the journal has cut some of them."""
    width = (end - begin) / BUCKETS
    counts: Counter[tuple[int, int, int]] = Counter()
    cut: set[tuple[int, int, int]] = set()
    for rows in errors:
        sent = rows.filter(pc.equal(rows["dir"], 1))
        since = pc.cast(pc.subtract(sent["ts_ns"], begin), pa.float64(), safe=False)
        sent = sent.append_column("bucket", pc.cast(pc.divide(since, width), pa.int64(), safe=False))
        for row in sent.group_by(["bucket", "api_key", "error_code", "flags"]).aggregate([("count", "sum")]).to_pylist():
            place = row["bucket"], row["api_key"], row["error_code"]
            counts[place] += row["count_sum"]
            if row["flags"] & Flag.CUT:
                cut.add(place)
    return [
        {
            "at_ms": to_ms(int(begin + bucket * width)),
            "to_ms": to_ms(int(begin + (bucket + 1) * width)),
            "what": f"{api_name(key)}: {error_name(code)}",
            "code": code,
            "count": count,
            "counted": "at least" if (bucket, key, code) in cut else "exactly",
        }
        for (bucket, key, code), count in sorted(counts.items())[:MARKS]
    ]


def _latencies(latency: pa.Table) -> list[Row]:
    """Of the responses that brokers sent; of several brokers the slowest."""
    slowest: dict[tuple[str, str], int] = {}
    counts: Counter[str] = Counter()
    for row in latency.to_pylist():
        if row["dir"] != 1:
            continue
        api = row["api"] or api_name(row["api_key"])
        counts[api] += row["count"]
        for column, percentile in (("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("max_ns", "max")):
            slowest[api, percentile] = max(slowest.get((api, percentile), 0), row[column])
    return [{"api": api, "percentile": p, "ms": to_ms(max(ns, 1)), "count": counts[api]} for (api, p), ns in sorted(slowest.items())]


def _speakers(tables: RunTables) -> list[Row]:
    spoken: dict[tuple[Any, Any], dict[str, set[str]]] = {}
    for row in tables.read(API_MATRIX, ("client_sw", "client_id", "api", "api_key", "api_version")).to_pylist():
        apis = spoken.setdefault((row["client_sw"], row["client_id"]), {})
        version = "?" if row["api_version"] is None else str(row["api_version"])
        apis.setdefault(row["api"] or api_name(row["api_key"]), set()).add(version)
    rows = tables.read(CLIENT_SCORECARD, CLIENT_SCORECARD.names).to_pylist()
    busiest = sorted(rows, key=lambda row: -row["requests"])[:CLIENTS]
    return [row | {"spoken": _in_order(spoken.get((row["client_sw"], row["client_id"]), {}))} for row in busiest]


def _in_order(apis: dict[str, set[str]]) -> dict[str, list[str]]:
    """APIs by name, each with its versions from the lowest on."""
    return {api: sorted(versions, key=lambda one: (len(one), one)) for api, versions in sorted(apis.items())}


def _matrix(matrix: pa.Table) -> tuple[list[Row], int]:
    cells: dict[tuple[str, str, int | None], Counter[str]] = {}
    for row in matrix.to_pylist():
        client = row["client_sw"] or row["client_id"] or "unknown client"
        cell = cells.setdefault((client, row["api"] or api_name(row["api_key"]), row["api_version"]), Counter())
        for name in ("requests", "errors", "outside", "quarantined"):
            cell[name] += row[name]
    totals: Counter[str] = Counter()
    for (client, _, _), cell in cells.items():
        totals[client] += cell["requests"]
    shown = {client for client, _ in totals.most_common(CLIENTS)}
    rows = [
        {"client": client, "api": api, "version": "?" if version is None else f"v{version}", **{n: cell[n] for n in NUMBERS}}
        for (client, api, version), cell in sorted(cells.items(), key=lambda item: tuple(map(str, item[0])))
        if client in shown
    ]
    return rows[:MARKS], len(totals)


NUMBERS = ("requests", "errors", "outside", "quarantined")


def _rules(tables: RunTables) -> tuple[list[RuleResult], list[Row]]:
    """The results, and all violations that are named."""
    violations: dict[str, list[Row]] = {}
    verdicts = tables.read(VERDICTS, VERDICTS.names).to_pylist()
    for row in verdicts:
        of_rule = violations.setdefault(row["rule"], [])
        if len(of_rule) < VIOLATIONS:
            of_rule.append(row)
    sums: dict[str, Counter[str]] = {}
    lacks: dict[str, str] = {}
    for row in tables.read(RULE_STATS, ("rule", "checked", "violated", "lacks")).to_pylist():
        sums.setdefault(row["rule"], Counter()).update(checked=row["checked"], violated=row["violated"])
        lacks[row["rule"]] = row["lacks"] and lacks.get(row["rule"], row["lacks"])
    return [
        RuleResult(rule, sums[rule]["checked"], sums[rule]["violated"], violations.get(rule, []), lacks[rule]) for rule in sorted(sums)
    ], verdicts


def _accused(tables: RunTables, verdicts: Sequence[Row]) -> list[Accused]:
    """Warnings are about clients, the others about brokers."""
    frames: dict[Place, Row] = {}
    warned = [Place(row["node_id"], row["seq"]) for row in verdicts if row["severity"] == "warn" and row["seq"] is not None]
    for node, seqs in by_node(warned).items():
        for row in tables.where(FRAMES, ("seq", "client_id", "client_sw"), node_id=[node], seq=seqs):
            frames[Place(node, row["seq"])] = row
    counts: dict[tuple[bool, str], Counter[str]] = {}
    for row in verdicts:
        is_client = row["severity"] == "warn"
        who = _client_of(frames.get(Place(row["node_id"], row["seq"]), {})) if is_client else f"broker {row['node_id']}"
        counts.setdefault((is_client, who), Counter())[row["rule"]] += 1
    return [
        Accused(who, is_client, dict(sorted(rules.items())))
        for (is_client, who), rules in sorted(counts.items(), key=lambda item: (item[0][0], -item[1].total(), item[0][1]))
    ]


def _client_of(frame: Row) -> str:
    """The name of a client, and its software."""
    name, software = frame.get("client_id") or "", frame.get("client_sw") or ""
    return f"{name} ({software})" if name and software else name or software or "a client without a name"


_OF_CONNECTIONS = {"conn_open", "conn_close", "authenticated"}


def _is_of_clients(tables: RunTables) -> bool:
    kinds = set(pc.unique(tables.read(EVENT_TABLE, ("kind",))["kind"]).to_pylist())
    return bool(kinds) and kinds <= _OF_CONNECTIONS


def _simulation(lake: Lake) -> Simulation | None:
    names = [entry.run for entry in delta_log.entries(lake, SIM_SUMMARY.path)]
    if not names:
        return None
    refuse_missing(lake, (SIM_SUMMARY.path, SIM_LEADERS.path), names[-1:])
    tables = StoredTables(lake, names[-1])
    steps = tables.read(SIM_SUMMARY, SIM_SUMMARY.names).sort_by("step").to_pylist()
    last = steps[-1]["step"] if steps else 0
    leaders = [
        {"broker": row["broker"], "when": "before" if row["step"] == 0 else "after", "leaders": row["leaders"]}
        for row in tables.read(SIM_LEADERS, ("step", "broker", "leaders")).to_pylist()
        if row["step"] in (0, last)
    ]
    return Simulation(names[-1], sorted(leaders, key=lambda row: row["broker"])[:MARKS], steps)


def _versions(events: pa.Table) -> list[str]:
    versions = set()
    for row in events.filter(pc.equal(events["kind"], "broker_started")).to_pylist() if events.num_rows else []:
        try:
            versions.add(str(json.loads(row["output"])["version"]))
        except (TypeError, ValueError, KeyError):  # another program may have written the journal
            continue
    return sorted(versions)


def _reasons(quarantine: pa.Table) -> list[Row]:
    counts = Counter(quarantine["reason"].to_pylist())
    return [{"reason": reason, "count": count} for reason, count in counts.most_common()]
