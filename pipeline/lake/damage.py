"""Finds the file of a table that cannot be read, after something failed: which file it is, and how it is made again.

Readers of Parquet say of a damaged file that its magic bytes are missing, or that a path does not exist. So when reading the tables of a
lake has failed, every file that the logs of tables name is read here. Nothing is read before something failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import FROM_JOURNAL, SPARKS_OWN, Lake, PipelineFailed
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import GOLD, SILVER

READERS = ("pyarrow", "duckdb", *SPARKS_OWN)
"""Packages that read tables, and whose exceptions may come from a damaged file."""


@contextmanager
def damage_named(lake: Lake) -> Iterator[None]:
    """If reading tables fails and a file is missing or damaged, PipelineFailed says which one, and what makes it again.

    Exceptions of other kinds stay as they are, and so do those of a connection that broke: then it is Spark's JVM that has ended.
    """
    try:
        yield
    except Exception as problem:
        is_about_files = isinstance(problem, OSError) or type(problem).__module__.partition(".")[0] in READERS
        damaged = next(damaged_parts(lake), None) if is_about_files and not isinstance(problem, ConnectionError) else None
        if damaged is None:
            raise
        raise PipelineFailed(damaged) from problem


EVERY = tuple(table.path for table in (*SILVER, *GOLD))


def refuse_missing(lake: Lake, tables: Iterable[str] = EVERY, runs: Collection[str] | None = None) -> None:
    """Raise PipelineFailed if a file of these runs, or of all, is missing or has another size than its table says. Nothing is read."""
    store = Store(lake)
    for table in tables:
        entries = delta_log.entries(lake, table, runs)
        sizes = store.sizes(table, [entry.path for entry in entries])
        for entry in entries:
            size = sizes[entry.path]
            if size != entry.bytes:
                what = "is missing" if size is None else f"is damaged: it has {size} bytes of {entry.bytes}"
                raise PipelineFailed(f"{store.address(entry.path)} {what}; {_remedy(lake, entry)}")


def damaged_parts(lake: Lake) -> Iterator[str]:
    """A line for each file that is missing or damaged. All files of all tables are read."""
    for table in delta_log.tables(lake):
        for entry in delta_log.entries(lake, table):
            why = _damage(lake, entry)
            if why is not None:
                yield f"{why}; {_remedy(lake, entry)}"


def _damage(lake: Lake, entry: Entry) -> str | None:
    import pyarrow as pa

    if entry.rows == 0:
        return None
    file = Store(lake).address(entry.path)
    try:
        with opened(file) as parquet:
            rows = sum(parquet.read_row_group(number).num_rows for number in range(parquet.num_row_groups))
    except FileNotFoundError:
        return f"{file} is missing"
    except (OSError, pa.ArrowException) as problem:
        return f"{file} is damaged ({' '.join(str(problem).split())[:120]})"
    return None if rows == entry.rows else f"{file} is damaged: {rows} of {entry.rows} rows are there"


def _remedy(lake: Lake, entry: Entry) -> str:
    """What makes a file of a table again, unless readers have it only because they see an older version."""
    with delta_log.newest_version(lake):
        if entry.path not in {one.path for one in delta_log.entries(lake, entry.table, {entry.run})}:
            return "another process has replaced it meanwhile: repeat the command; if that does not help, `klamm pipeline run` first"
    layer, place = entry.table.partition("/")[0], Store(lake).address
    if layer == "gold":
        return f"remove {place('gold')} and repeat `klamm pipeline run`: it is made again from silver"
    has_bronze = any(delta_log.rows(lake, f"bronze/{name}", {entry.run}) for name in ("frames", "events"))
    if layer == "silver" and has_bronze:
        return f"remove {place('silver')} and repeat `klamm pipeline run`: silver and gold are made again from bronze"
    return f"move {place('bronze')} and {place('silver')} away and repeat `klamm pipeline run`: {FROM_JOURNAL}"
