"""`klamm journal ship`, and what `klamm serve --ship-to` runs: sealed segments of a folder go to a lake in a store, as bronze.

No process of a broker does this: only the shipper waits for a store that is slow or gone. A segment is put if it is absent
(`shipped.py`), then a line in the file `shipped` beside it says so. If the shipper is killed between the two, the next one puts the
segment again and finds its own rows there. The segments of a broker go in their order. If the store fails at one, the others wait behind
it, and all is tried again after longer and longer times. Segments become bronze in memory, so a full disk does not stop the shipper.

With a time to keep, segments that are in the store and older than this are removed here, except for the newest of each broker and table:
the broker goes on with its numbers.

The reason why a journal ended before its process is sent too: no segment has it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from klamm.journal.reading import early_ends, last_number, node_folders, retained_to, seal_leftovers, segments
from klamm.journal.segments import ENDED, RETAINED, SHIPPED, Segment
from klamm.machine.replaced_file import replace_file
from klamm.pipeline.lake.bronze import PendingSegments, batch_name, own_segments
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.journal_copy import JOURNAL
from klamm.pipeline.lake.store import ObjectStore, Store
from klamm.pipeline.shipped import OtherRows, packed, put

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks for sealed segments, and before the second try if the store fails."""
LONGEST_WAIT_S = 60.0
"""Seconds between two tries if a store has failed for long."""
PATIENCE = timedelta(seconds=5)
"""How long a try lasts."""
_VARIES = re.compile(r"[\d.]+\s?(ns|µs|ms|s)\b|\d+ retries")
"""What differs in the reasons of the same failure."""


class SentSegments:
    """The segments of a folder that are in a place, as the folders of its brokers note it. `(run, batch) in sent` says it of one."""

    def __init__(self, folder: Path, target: str) -> None:
        self._target = target
        self._names: set[tuple[str, str]] = set()
        self._told = ""
        for node in node_folders(folder):
            for line in _lines(node):
                name, _, place = line.partition(" ")
                if place == target:
                    self._names.add((node.parent.name.removeprefix("run="), f"{node.name}/{name}"))

    def __contains__(self, segment: object) -> bool:
        return segment in self._names

    def add(self, segment: Segment) -> None:
        """Note a segment. If the disk refuses that, it is sent again after the next start, and found in its place."""
        self._names.add((segment.run, batch_name(segment)))
        notes, problem = segment.path.parent / SHIPPED, ""
        try:
            with notes.open("a") as file:
                file.write(f"{segment.name} {self._target}\n")
        except OSError as refused:
            problem = refused.strerror or str(refused)
        if problem and problem != self._told:
            log.warning("%s: %s; segments are sent, and once more after the next start", notes, problem)
        self._told = problem

    def remove(self, segment: Segment) -> None:
        """Forget a segment that is not in its folder any more."""
        kept = [line for line in _lines(segment.path.parent) if not line.startswith(f"{segment.name} ")]
        replace_file(segment.path.parent / SHIPPED, "".join(f"{line}\n" for line in kept).encode(), flush=False)
        self._names.discard((segment.run, batch_name(segment)))


def _lines(node: Path) -> list[str]:
    """What a broker's folder notes, without a torn last line."""
    try:
        return (node / SHIPPED).read_text(errors="replace").split("\n")[:-1]
    except FileNotFoundError:
        return []


class Shipper:
    """Puts the sealed segments of a folder into a lake. A method that raised can be called again."""

    def __init__(self, folder: Path, target: str, keep_ns: int | None = None, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """`keep_ns`: remove segments that are in the store and older; None: never. `clock_ns` is the clock of the files' times."""
        self._folder, self._target = folder, target.rstrip("/")
        self._store, self._keep_ns, self._clock_ns = Store(self._target), keep_ns, clock_ns
        if isinstance(self._store, ObjectStore):
            self._store.patience = PATIENCE
        self._sent = SentSegments(folder, self._target)
        self._pending = PendingSegments(folder, self._sent)
        self._refused: set[Path] = set()
        self._ends: set[Path] = set()
        self._told = ""

    def waiting(self) -> list[Segment]:
        """The sealed segments that are not in the store, in the order in which they go."""
        seal_leftovers(self._folder)
        found = [one for one in self._pending.look() if one.path not in self._refused]
        own, lines = own_segments(found)
        self._refused |= {one.path for one in found}.difference(one.path for one in own)
        for line in lines:
            log.error("%s", line)
        return own

    def left(self) -> str:
        """What is only in the folder, for people; empty if all of it is in the store."""
        waiting = self.waiting()
        refused = sum(path.exists() for path in self._refused)
        lines = [f"{_counted(len(waiting))} in {self._folder} to be sent, the first is {waiting[0].path}"] if waiting else []
        return "; ".join([*lines, f"{_counted(refused)} cannot be sent as they are"] if refused else lines)

    def send(self, step: Callable[[], None] = lambda: None) -> int:
        """Send what waits; returns how many segments. `step` is called after each. Raises PipelineFailed if the store fails."""
        sent = 0
        for segment in self.waiting():
            try:
                self._put(segment)
            except FileNotFoundError:  # it was removed meanwhile
                continue
            sent += 1
            step()
        self._send_ends()
        self._remove_old()
        return sent

    def _put(self, segment: Segment) -> None:
        try:
            made = packed(segment)
        except PipelineFailed as problem:
            self._refuse(segment, problem)
            return
        try:
            with self._named():
                put(self._store, segment, made)
        except OtherRows as problem:
            self._refuse(segment, problem)
        else:
            self._sent.add(segment)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A failure of a folder names the lake, as one of an object store does."""
        try:
            yield
        except OSError as problem:
            raise PipelineFailed(f"{self._target}: {problem.strerror or problem}") from problem

    def _send_ends(self) -> None:
        """Send why journals ended before their processes."""
        for folder in node_folders(self._folder):
            for path in {folder / f"{ENDED}{process}" for process in early_ends(folder)} - self._ends:
                content, name = path.read_bytes(), f"{JOURNAL}/{folder.parent.name}/{folder.name}/{path.name}"
                with self._named():
                    if not self._store.put_new(name, content):
                        log.error("%s is not sent: %s/%s says something else", path, self._target, name)
                self._ends.add(path)

    def _refuse(self, segment: Segment, problem: PipelineFailed) -> None:
        self._refused.add(segment.path)
        log.error("%s is not sent: %s", segment.path, problem)

    def _remove_old(self) -> None:
        """Remove the segments that are in the store and older than the time to keep, but for the newest of each broker and table."""
        if self._keep_ns is None:
            return
        found = segments(self._folder)
        newest = {(one.run, one.node, one.table): one.path for one in found if one.sealed}
        for one in found:
            if (one.run, batch_name(one)) not in self._sent or newest[one.run, one.node, one.table] == one.path:
                continue
            if self._clock_ns() - one.path.stat().st_mtime_ns >= self._keep_ns:
                number = max(retained_to(one.path.parent), last_number(one))
                replace_file(one.path.parent / RETAINED, str(number).encode(), flush=False)
                one.path.unlink(missing_ok=True)
                self._sent.remove(one)

    def follow(self, stop: threading.Event, look_s: float = LOOK_S) -> None:
        """Send until `stop` is set, whatever fails. A failure is one line, and its end another one."""
        wait_s = look_s
        while not stop.wait(wait_s):
            try:
                sent = self.send()
            except PipelineFailed as problem:
                self._tell(str(problem))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            except Exception as problem:
                if not isinstance(problem, OSError):
                    log.exception("shipping raised an exception; it is tried again")
                else:
                    self._tell(f"{problem.filename or self._folder}: {problem.strerror or problem}")
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            else:
                if self._told:
                    log.warning("%s works again; %s sent", self._target, _counted(sent))
                    self._told = ""
                wait_s = look_s

    def _tell(self, reason: str) -> None:
        """A line about a failure, unless the last one said the same."""
        if _VARIES.sub("", reason) != self._told:
            self._told = _VARIES.sub("", reason)
            log.warning("%s; segments wait in %s, and are tried again", reason, self._folder)


def _counted(segments: int) -> str:
    return f"{segments} segment{'' if segments == 1 else 's'}"
