"""The journal of a lake in an object store: a copy on this machine of what is read now, or a journal that a folder of this machine has.

What reads journals reads files. Segments are objects `journal/run=…/node=…/NAME`, as in a folder; only sealed ones belong there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from klamm.journal.segments import OPEN, Segment, journal_folder, segment_of
from klamm.machine.replaced_file import replace_file
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.store import ObjectStore, Store, local_folder

JOURNAL = "journal"


def use_journal(lake: str, folder: Path) -> None:
    """Read the journal of a folder of this machine in place of that in the object store."""
    journal_folder(local_folder(lake)).symlink_to(journal_folder(folder.resolve()))


def is_elsewhere(lake: Lake) -> bool:
    """Whether the journal is in an object store."""
    return isinstance(lake, str) and not journal_folder(local_folder(lake)).is_symlink()


def with_journal(lake: Lake, wanted: Callable[[Segment], bool] = lambda _: True, *, stand_ins: bool = False) -> Path:
    """The folder of this machine with the journal of a lake; of an object store the wanted segments are copied first.

    With `stand_ins`, the others are there with their sizes and times only.
    """
    folder = local_folder(lake)
    if is_elsewhere(lake):
        store = ObjectStore(lake)
        for name, about in store.listed(JOURNAL).items():
            path = folder / name
            segment = segment_of(path)
            if path.exists() or name.endswith(OPEN):
                continue
            if segment is None or wanted(segment):
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, store.read(name) or b"", flush=False)
            elif stand_ins:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.truncate(path, about["size"])
            else:
                continue
            at = about["last_modified"].timestamp()
            os.utime(path, (at, at))
    return folder


def copied(lake: Lake, segment: Segment) -> Segment:
    """The segment with its content in place of a stand-in."""
    if is_elsewhere(lake):
        name = str(segment.path.relative_to(local_folder(lake)))
        replace_file(segment.path, Store(lake).read(name) or b"", flush=False)
    return segment


def journal_stores(lake: Lake) -> list[Store]:
    """Where files of the journal are that are to be removed."""
    return [Store(local_folder(lake)), *([Store(lake)] if is_elsewhere(lake) else [])]
