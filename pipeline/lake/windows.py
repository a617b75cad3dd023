"""Windows of a run that goes on for long: what was judged once is final, and costs nothing later.

A run that lasts longer than a window is cut at places, the same for all tables: a time, and for each broker the number of the first row
behind it. Rows before the last place at which the run was cut are final: their verdicts and sums are in parts of gold that are not made
again. Rows behind it are judged again whenever rows are added, until a whole window and the margin behind it have gone by.

Rules see more than they judge: `MARGIN_NS` around a window, because a response or its absence may say whether a request was treated well,
and of all that came before what brokers were told and what the controller did (`HISTORY`), which is little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.store import Store
from klamm.protocol.apis import OF_CONTROLLERS, ApiKey

if TYPE_CHECKING:
    import pyarrow as pa

WIDTH_NS = 3_600_000_000_000
"""Longest time of a window."""

MARGIN_NS = 360_000_000_000
"""Time around a window that rules see: longer than a rule waits for a response (330 s)."""

ROWS = 2_000_000
"""A window has about this number of rows, if it is longer than twice the margin with them."""

STEP_ROWS = 4_000_000
"""Of a long run that was never judged, about this number of rows is judged at a time."""


def keys(apis: Iterable[int]) -> str:
    """The keys of these APIs, for `IN`."""
    return ", ".join(str(int(api)) for api in apis)


_COORDINATORS_CALLS = (
    ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS, ApiKey.DELETE_GROUPS,
)
"""Calls that make generations of groups, producers and transactions."""

_OF_CONTROLLERS = f"api_key IN ({keys(OF_CONTROLLERS)})"

HISTORY = {
    "messages": _OF_CONTROLLERS,
    "quarantine": _OF_CONTROLLERS,
    "fields": f"api_key IN ({keys((*OF_CONTROLLERS, *_COORDINATORS_CALLS))})",
    "events": "kind NOT IN ('conn_open', 'conn_close', 'decision')",
    "partition_state": "dir IN (0, 2)",
    "broker_state": "dir IN (0, 2)",
    "reassign": "true",
}
"""Table → SQL: its rows that rules see however old they are: what controllers sent and did, which generations and producers there are."""

NUMBERED = ("messages", "quarantine", "events")
"""Tables of silver that have all rows of a journal, each row once."""

FINAL = " (final)"
"""Behind the id of a run, in a judgement: rows before the place at which the run is cut now."""


class WindowSizes(NamedTuple):
    """How runs are cut. The margin is as long as rules may wait."""

    width_ns: int = WIDTH_NS
    margin_ns: int = MARGIN_NS
    rows: int = ROWS
    step_rows: int = STEP_ROWS


SIZES = WindowSizes()


class Cut(NamedTuple):
    """A place in the journals of a run: a time (ns), and broker → the first row behind it. Of brokers that are not named all rows are."""

    ns: int
    seqs: dict[int, int]

    @property
    def begin_ns(self) -> int | None:
        """The time; None if it is the beginning of a run."""
        return self.ns if self.ns > 0 else None

    @property
    def behind(self) -> str:
        """SQL: whether a row of columns `node_id` and `seq` is behind it."""
        firsts = " ".join(f"WHEN {node} THEN {seq}" for node, seq in sorted(self.seqs.items()))
        return f"seq >= CASE node_id {firsts} ELSE 0 END" if firsts else "true"


BEGIN = Cut(-(1 << 63), {})
"""All rows are behind it."""


class Closed(NamedTuple):
    """What is known of a run up to the place at which it was cut last."""

    seen: Cut
    """The margin before the place: what is judged later sees rows from here on."""
    until: Cut
    rows: int
    """Number of rows before `until.ns`: if there are more now, some came late."""


class WindowPart(NamedTuple):
    """Rows of a window that go into one part of each table of gold."""

    name: str
    """What stands for the run in a judgement."""
    rows: str
    """SQL: whether a row of the columns `node_id` and `seq` is one of them."""
    since_ns: int | None
    """Where they begin; None: with the run."""
    until_ns: int | None
    """Where they end, if they are final."""

    @property
    def is_final(self) -> bool:
        """Whether the part is not made again."""
        return self.until_ns is not None

    @property
    def is_named(self) -> str:
        """SQL: whether the column `part`, the name of the part of a row, names this one."""
        return "part <> run_id" if self.is_final else "part = run_id"

    def batch(self, name: str) -> str:
        """The batch of the part: that of a part which is replaced, or a name of its own."""
        return name if self.until_ns is None else f"{name}-{self.until_ns}"


PARAMETERS = {
    "recent": "true",
    "from_begin": "true",
    "part": "run_id",
}
"""Parameters of queries, and their values where runs are judged as a whole.

`:recent` is whether a row of the columns `node_id` and `seq` is in the time that rules see, not only as history; `:from_begin` whether that
time begins with the run; `:part` the name of the part that a row is in, null if it is not judged."""


def filled(query: str, window: Window | None = None, sign: str = ":") -> str:
    """The query with values for its parameters: those of a window, or of runs that are judged as a whole. Spark and DuckDB know what is in
    them. In translated queries the `sign` of a parameter is another one."""
    for name, value in (PARAMETERS if window is None else window.values).items():
        query = query.replace(sign + name, value)
    return query


class Window(NamedTuple):
    """What is judged at once: rows between `since` and `until` become final, those behind `until` do not, or are left out."""

    run: str
    seen: Cut
    since: Cut
    until: Cut
    end: Cut | None
    """Where what rules see ends; None: with the last row, and the rows behind `until` are judged too."""
    closing: Closed
    """What is known when it was judged."""

    @property
    def parts(self) -> list[WindowPart]:
        """The rows that become final, if any do, and those that do not, if they are judged."""
        final = WindowPart(self.run + FINAL, f"{self.since.behind} AND NOT ({self.until.behind})", self.since.begin_ns, self.until.ns)
        later = WindowPart(self.run, self.until.behind, self.until.begin_ns, None)
        return [*([final] if self.until.ns > self.since.ns else []), *([later] if self.end is None else [])]

    @property
    def place(self) -> str:
        """SQL: the name of the part of a row of the columns `run_id`, `node_id` and `seq`."""
        return f"if({self.until.behind}, run_id, concat(run_id, '{FINAL}'))"

    @property
    def judged(self) -> str:
        """SQL: whether a row is judged."""
        return " OR ".join(f"({part.rows})" for part in self.parts)

    @property
    def recent(self) -> str:
        """SQL: whether a row is in the time that rules see, not only as history."""
        return self._to_the_end(self.seen.behind)

    @property
    def values(self) -> dict[str, str]:
        """The values of `PARAMETERS`."""
        from_begin = "true" if self.since == BEGIN else "false"
        return {"recent": self.recent, "from_begin": from_begin, "part": f"if({self.judged}, {self.place}, NULL)"}

    def sees(self, table: str) -> str:
        """SQL: whether rules see a row of a table of silver."""
        return self._to_the_end(f"({self.seen.behind} OR {HISTORY.get(table, 'false')})")

    def _to_the_end(self, rows: str) -> str:
        return rows if self.end is None else f"{rows} AND NOT ({self.end.behind})"

    def reads(self, entry: Entry) -> bool:
        """Whether a file of a table may have rows that rules see."""
        if entry.first_ts_ns is None or entry.last_ts_ns is None:
            return True
        is_old = entry.last_ts_ns < self.seen.ns and entry.table.rpartition("/")[2] not in HISTORY
        return not is_old and (self.end is None or entry.first_ts_ns < self.end.ns)


def windows(lake: Lake, run: str, last: Closed | None, sizes: WindowSizes = SIZES) -> Iterator[Window]:
    """The windows of a run that are to be judged one after another, behind what is `last` known; none if the run is not to be cut.

    The last one has the rows that do not become final, the others have only such that do.
    """
    parts = _parts(lake, run)
    if not parts:
        return
    begin, end = min(bounds[0] for _, bounds in parts), max(bounds[1] for _, bounds in parts)
    rate = sum(entry.rows for entry, _ in parts) / max(1, end - begin)
    width = max(2 * sizes.margin_ns, min(sizes.width_ns, round(sizes.rows / rate)))
    closed = last or Closed(BEGIN, BEGIN, 0)
    origin = begin if last is None else last.until.ns
    count = (end - sizes.margin_ns - origin) // width
    if count < 1 and last is None:
        return
    at_once = max(1, round(sizes.step_rows / (rate * width)))
    while True:
        step = min(at_once, count)
        count -= step
        is_last = count < 1
        until_ns = origin + step * width
        after, beyond = closed, closed.until
        if step > 0:  # rows become final
            wanted = (until_ns - sizes.margin_ns, until_ns, until_ns + sizes.margin_ns)
            seen, until, beyond = _cuts(lake, parts, closed.until, wanted)
            after = Closed(seen, until, rows_before(lake, parts, until_ns))
        yield Window(run, closed.seen, closed.until, after.until, None if is_last else beyond, after)
        if is_last:
            return
        closed, origin = after, until_ns


def is_valid(lake: Lake, run: str, closed: Closed) -> bool:
    """No row came late: as many rows are before the place as when it was reached. Rows that are gone for good do not count."""
    return rows_before(lake, _parts(lake, run), closed.until.ns) <= closed.rows


Part = tuple[Entry, tuple[int, int]]
"""A file and the first and the last time of its rows."""


def _parts(lake: Lake, run: str) -> list[Part]:
    entries = [entry for table in NUMBERED for entry in delta_log.entries(lake, f"silver/{table}", {run}) if entry.rows]
    return [
        (entry, (entry.first_ts_ns, entry.last_ts_ns))
        for entry in entries
        if entry.first_ts_ns is not None and entry.last_ts_ns is not None
    ]


def rows_before(lake: Lake, parts: Collection[Part], ns: int) -> int:
    """Number of rows before this time. Only files are read that the time is within."""
    import pyarrow.compute as pc

    count = 0
    for entry, (first, last) in parts:
        if last < ns:
            count += entry.rows
        elif first < ns:
            count += pc.sum(pc.less(_columns(lake, entry, ["ts_ns"])["ts_ns"], ns)).as_py() or 0
    return count


def _cuts(lake: Lake, parts: Collection[Part], since: Cut, times_ns: Sequence[int]) -> list[Cut]:
    """Journal positions at these times; all are later than `since`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [dict(since.seqs) for _ in times_ns]
    for entry, (first, last) in parts:
        if last < since.ns or first >= max(times_ns):
            continue
        rows = _columns(lake, entry, ["node_id", "seq", "ts_ns"])
        for ns, seqs in zip(times_ns, found, strict=True):
            before = rows.filter(pc.less(rows["ts_ns"], pa.scalar(ns, pa.int64())))
            for row in before.group_by("node_id").aggregate([("seq", "max")]).to_pylist():
                seqs[row["node_id"]] = max(seqs.get(row["node_id"], 0), row["seq_max"] + 1)
    return [Cut(ns, seqs) for ns, seqs in zip(times_ns, found, strict=True)]


def _columns(lake: Lake, entry: Entry, names: list[str]) -> pa.Table:
    return opened(Store(lake).address(entry.path)).read(names)
