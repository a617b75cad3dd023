"""Frames of long journals are decoded by several processes of this machine, because Python decodes on one core only.

    python -m klamm.pipeline.quick.decoders FOLDER

is such a process. For each line with a task on standard input it writes the rows of each table to a file in the folder, and one line to
standard output. It ends with its input.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from klamm.journal.reading import open_segment
from klamm.journal.segments import Segment
from klamm.machine.absent_package import make_absent
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.tables import MESSAGES, Table
from klamm.pipeline.silver_files import Add, decode_into

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_BYTES = 24_000_000
"""Bytes of segments that another process pays for: about 80,000 frames, which take two seconds."""

MOST_PROCESSES = 8
"""Each has about 200 MB."""

COMMAND = (sys.executable, "-m", "klamm.pipeline.quick.decoders")
BODY = "body_json"

STRIDE = 16
"""Batches of a segment that stand together when several processes decode it."""


def without_bodies(add: Add) -> Add:
    """What takes rows of a table, and passes them to `add` without the column that no rule reads, the largest one."""

    def added(table: Table, rows: pa.RecordBatch) -> None:
        add(table, rows.drop_columns([BODY]) if table is MESSAGES else rows)

    return added


class Task(NamedTuple):
    """A part of a segment: of each `parts` * STRIDE batches those at place `part`."""

    path: str
    part: int
    parts: int


class Decoded(NamedTuple):
    """What became of one task."""

    task: Task
    rows: int
    torn: str | None
    """What the segment says of its end; each part of a segment tells it."""
    files: dict[str, str]
    """Table → a file of Arrow with its rows."""


def cores() -> int:
    """The cores that this process may use; where the system does not say so, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes_for(found: Sequence[Segment]) -> int:
    """How many processes decode these segments; 1 means this process alone."""
    size = sum(segment.path.stat().st_size for segment in found)
    return max(1, min(cores(), MOST_PROCESSES, size // LEAST_BYTES))


def tasks(found: Sequence[Segment], processes: int) -> list[Task]:
    """The parts of segments, so many that all processes end at about the same time; the largest first."""
    parts = max(1, -(-2 * processes // max(1, len(found))))
    largest = sorted(found, key=lambda segment: -segment.path.stat().st_size)
    return [Task(str(segment.path), part, parts) for segment in largest for part in range(parts)]


def batches_of(task: Task, tell: Callable[[str | None], None] = lambda torn: None) -> Iterator[pa.RecordBatch]:
    """The batches of a task; `tell` is called at the end with what the segment says of its end."""
    reader = open_segment(Path(task.path))
    for number, batch in enumerate(reader):
        if number // STRIDE % task.parts == task.part:
            yield batch
    tell(reader.torn)


def decoded_elsewhere(work: Sequence[Task], processes: int, folder: str) -> Generator[Decoded]:
    """The tasks as this number of processes has done them; files in `folder` are the caller's to remove. Raises PipelineFailed."""
    idle = queue.SimpleQueue[subprocess.Popen[bytes]]()

    def do(task: Task) -> Decoded:
        child = idle.get()
        try:
            return Decoded(task, *_asked(child, task))
        finally:
            idle.put(child)

    children = [subprocess.Popen([*COMMAND, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for _ in range(processes)]
    with ExitStack() as stack:
        for child in children:
            idle.put(stack.enter_context(child))
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        try:
            for one in as_completed([threads.submit(do, task) for task in work]):
                yield one.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.kill()  # which also ends the thread that waits for its answer


def _asked(child: subprocess.Popen[bytes], task: Task) -> list[Any]:
    """The answer of a process: the rows, what the segment says of its end, and the files."""
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(orjson.dumps([*task]) + b"\n")  # without a buffer, and a pipe takes a line whole
        line = child.stdout.readline()
    except OSError:
        line = b""
    if not line.endswith(b"\n"):
        raise PipelineFailed(f"a process that decodes frames ended with code {child.wait()}")
    answer = orjson.loads(line)
    if not isinstance(answer, list):
        raise PipelineFailed(answer)
    return answer


class _Files:
    """The files of one task."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._writers: dict[str, pa.RecordBatchFileWriter] = {}
        self.paths: dict[str, str] = {}

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        import pyarrow as pa

        writer = self._writers.get(table.name)
        if writer is None:
            path = self.paths[table.name] = str(self._folder / f"{os.getpid()}-{self._number}-{table.name}.arrow")
            writer = self._writers[table.name] = pa.ipc.new_file(path, rows.schema)
        writer.write(rows)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def _decode(task: Task, folder: Path, number: int) -> list[Any]:
    rows, torn = 0, None

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches_of(task, tell):
            rows += batch.num_rows
            yield batch

    def tell(said: str | None) -> None:
        nonlocal torn
        torn = said

    files = _Files(folder, number)
    try:
        decode_into(without_bodies(files.add), counted())
    finally:
        files.close()
    return [rows, torn, files.paths]


def main(folder: Path) -> None:
    """Do the tasks of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    gc.disable()
    for number, line in zip(count(), sys.stdin.buffer, strict=False):
        answer: Any
        try:
            answer = _decode(Task(*orjson.loads(line)), folder, number)
        except (OSError, PipelineFailed) as problem:
            answer = f"frames cannot be decoded: {' '.join(str(problem).split())}"
        try:
            os.write(sys.stdout.fileno(), orjson.dumps(answer) + b"\n")
        except BrokenPipeError:  # the process that asked was killed
            return


if __name__ == "__main__":
    make_absent("pandas")  # pyarrow would import it, which takes half a second
    main(Path(sys.argv[1]))
