"""The journals of a lake as those read them who make no tables: `check --quick`, and the report of a lake without tables."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from klamm.journal.reading import ask_to_seal, count_rows, segments
from klamm.journal.segments import Segment
from klamm.pipeline.lake.bronze import own_segments, pending
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.journal_copy import is_elsewhere
from klamm.pipeline.lake.store import local_folder


class Journals(NamedTuple):
    """What the journals of a lake have."""

    runs: list[str]
    """The one that was written last is the last."""
    segments: list[Segment]
    """That can be read now."""
    notes: list[str]
    """About what cannot be read now, one line each."""

    def of(self, runs: Sequence[str]) -> list[Segment]:
        """The segments of these runs."""
        return [segment for segment in self.segments if segment.run in runs]


def journals(lake: Lake, done: Container[tuple[str, str]] = ()) -> Journals:
    """The journals of a lake; brokers that run finish their segments first. Segments of an object store that are `done` are left out."""
    here = local_folder(lake)
    late = ask_to_seal(here)
    readable = pending(lake, done if is_elsewhere(lake) else ())
    known = set(readable)
    found, renamed = own_segments(readable)
    others, _ = own_segments([segment for segment in segments(here) if segment not in known])
    written: dict[str, int] = {}
    for segment in (*found, *others):
        written[segment.run] = max(written.get(segment.run, 0), segment.path.stat().st_mtime_ns)
    runs = sorted(written, key=lambda run: (written[run], run))
    return Journals(runs, found, [*(f"{path.relative_to(here)}: not sealed in time" for path in late), *renamed])


def has_frames(found: Sequence[Segment]) -> bool:
    """Whether segments have a frame. Only the first that has one is read."""
    return any(frames([segment]) for segment in found)


def frames(found: Sequence[Segment]) -> int:
    """The number of frames of segments."""
    return sum(count_rows(segment.path) for segment in found if segment.table == "frames")
