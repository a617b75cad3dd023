"""From a journal to verdicts, tables and a report: wall and CPU seconds and memory of each command, also beside those of another Klamm.

    python -m klamm.benchmarks.verdicts [--sizes 1000 10000 200000 1000000] [--runs 60] [--other OLD/.venv/bin/klamm] [--rounds 1]

Journals are those of `mixed_journal.py`. `quick` is `klamm pipeline check --quick`. `report` is `klamm report` from the journal, which
needs no Spark. `run` is `klamm pipeline run` of a lake without tables, and `again` the same with nothing new; `spark` is `run` where
`--master local[2]` gives all work to Spark's workers. The last rows are those of one lake with so many runs, each a copy of the smallest
journal. The benchmark ends if a command fails, or finds that a rule is violated.

CPU is user and system time of all processes that a command started, to the last one. Memory is the greatest sum of their resident memory,
looked at ten times a second. The load is that of the machine over the last minute when the command ended.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import pyarrow as pa

from klamm.benchmarks import mixed_journal
from klamm.benchmarks.processes import Failed, klamm, note
from klamm.journal.reading import count_rows, segments
from klamm.journal.segments import OpenSegment
from klamm.pipeline.lake.folder import LAYERS
from klamm.pipeline.report.source import LIMIT

SIZES = (1_000, 10_000, 200_000, 1_000_000)
COMMANDS = ("quick", "report", "run", "again", "spark")
_BECOME_SUBREAPER = 36
"""Of prctl: orphans of children become children, so that their CPU time counts."""


class Cost(NamedTuple):
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    load: float


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command to the end of all processes that it started. Raises Failed if its exit code is not 0."""
    before, began = _cpu_of_children_s(), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child, _Memory(child.pid) as memory:
        assert child.stderr is not None
        said = child.stderr.read()
    wall_s = time.monotonic() - began
    _reap()
    if child.returncode:
        raise Failed(f"{' '.join(command)} ended with {child.returncode}: {said.decode(errors='replace')[-600:]}")
    return Cost(wall_s, _cpu_of_children_s() - before, memory.peak_mb, os.getloadavg()[0])


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap() -> None:
    """Wait for the processes that a command left when it ended, such as its JVM."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


class _Memory:
    """Looks at the memory of a process and its descendants until the block ends."""

    def __init__(self, pid: int) -> None:
        self._pid, self._ended, self.peak_mb = pid, threading.Event(), 0.0
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            self.peak_mb = max(self.peak_mb, sum(self._resident()) / 1e6)

    def _resident(self) -> Iterator[int]:
        try:
            first = psutil.Process(self._pid)
            family = [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                yield process.memory_info().rss
            except psutil.NoSuchProcess:
                continue


def copy(lake: Path, copies: int) -> None:
    """Give the journal to more runs."""
    for segment in list(segments(lake)):
        with pa.ipc.open_stream(segment.path.read_bytes()) as stream:
            batches, schema = list(stream), stream.schema
        for number in range(1, copies):
            run = f"{segment.run}-{number}"
            folder = lake / "journal" / f"run={run}" / f"node={segment.node}"
            folder.mkdir(parents=True, exist_ok=True)
            of_run = schema.with_metadata({**(schema.metadata or {}), b"run_id": run.encode()})
            copied = OpenSegment(folder, segment.table, segment.first_seq, of_run)
            index = schema.get_field_index("run_id")
            for batch in batches:
                named = pa.array([run] * batch.num_rows, pa.string()).dictionary_encode().cast(schema.field(index).type)
                copied.write(batch.set_column(index, schema.field(index), named))
            copied.seal()


class Row(NamedTuple):
    """A command that is measured."""

    size: str
    name: str
    arguments: list[str]


def rows(size: str, journal: Path, work: Path, names: Sequence[str]) -> Iterator[Row]:
    """The commands of one journal, in this order. `work` is a lake with the journal, for tables."""
    commands = {
        "quick": ["pipeline", "check", "--quick", "--any-size", str(journal)],
        "report": ["report", str(journal), "-o", str(work / "report.html")],
        "run": ["pipeline", "run", str(work)],
        "again": ["pipeline", "run", str(work)],
        "spark": ["pipeline", "run", "--master", "local[2]", str(work)],
    }
    yield from (Row(size, name, commands[name]) for name in commands if name in names)


def measure(size: str, journal: Path, programs: Sequence[str], rounds: int, names: Sequence[str]) -> None:
    """Print a line for each command and program: the medians of the rounds, in which programs come in turn."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    files: dict[str, int] = {}
    for _ in range(rounds):
        for program in programs:
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder)
                shutil.copytree(journal / "journal", work / "journal")
                for row in rows(size, journal, work, names):
                    if row.name == "spark":  # from the journal
                        _remove_tables(work)
                    costs.setdefault((row.name, program), []).append(cost_of([program, *row.arguments]))
                    note(f"{size} {row.name} {program}: {costs[row.name, program][-1]}")
                files[program] = sum(len(list((work / layer).rglob("*.parquet"))) for layer in LAYERS)
    for (name, program), found in costs.items():
        wall_s, cpu_s, peak_mb, load = (median(values) for values in zip(*found, strict=True))
        which = "this" if program == programs[-1] else "other"
        many = f"{files[program]:,}" if name in ("run", "spark") else ""
        print(f"| {size} | {name} | {which} | {wall_s:.1f} | {cpu_s:.1f} | {peak_mb:,.0f} | {load:.1f} | {many} |", flush=True)


def _remove_tables(lake: Path) -> None:
    for layer in LAYERS:
        shutil.rmtree(lake / layer, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, metavar="FRAMES")
    parser.add_argument("--runs", type=int, default=60, help="number of runs of the lake with many; 0 leaves it out")
    parser.add_argument("--other", metavar="KLAMM", help="the program of another Klamm, which is measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=COMMANDS, choices=COMMANDS)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where journals stay; those that are there are used again")
    chosen = parser.parse_args(arguments)
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1)
    programs = [*([chosen.other] if chosen.other else []), *klamm()]
    with tempfile.TemporaryDirectory() as folder:
        kept = chosen.keep or Path(folder)
        print("| frames | what | Klamm | wall s | CPU s | peak MB | load | files |\n|---|---|---|---|---|---|---|---|", flush=True)
        for size in chosen.sizes:
            names = [name for name in chosen.only if name != "report" or size < LIMIT]
            journal, frames = _journal(kept / f"{size}", size, chosen.seed)
            measure(f"{frames:,}", journal, programs, chosen.rounds, names)
        if chosen.runs:
            journal, frames = _journal(kept / f"{min(SIZES)}-{chosen.runs}", min(SIZES), chosen.seed, chosen.runs)
            names = [name for name in chosen.only if name != "report"]
            measure(f"{chosen.runs} runs, {frames:,}", journal, programs, chosen.rounds, names)


def _journal(lake: Path, frames: int, seed: int, runs: int = 1) -> tuple[Path, int]:
    """The lake with a journal, and its number of frames."""
    if not lake.exists():
        mixed_journal.write(lake, frames, seed)
        copy(lake, runs)
    return lake, sum(count_rows(segment.path) for segment in segments(lake) if segment.table == "frames")


if __name__ == "__main__":
    main()
