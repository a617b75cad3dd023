"""The driver of a lake: one process at a time writes tables. A folder has a lock for it, an object store a lease (`lease.py`)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klamm.pipeline.lake.access.lease import held
from klamm.pipeline.lake.folder import CHECKPOINTS, LAYERS, MANIFEST, Lake, PipelineFailed
from klamm.pipeline.lake.layout import refuse_newer
from klamm.pipeline.lake.store import Store, local_folder


def existing(lake: Lake, *, may_be_older: bool = False) -> Lake:
    """The lake's absolute path, or its URL. Raises PipelineFailed if there is no such folder, or if it is not a lake of this Klamm."""
    if isinstance(lake, str):
        _refuse_empty(lake)
        refuse_newer(lake)
        return lake
    if lake.exists() and not lake.is_dir():
        raise PipelineFailed(f"{lake}: not a folder")
    if not lake.is_dir():
        raise PipelineFailed(f"{lake}: no such folder; brokers write a journal there with `klamm serve --journal {lake}`")
    path = lake.resolve()
    if not any((path / name).is_dir() for name in ("journal", *LAYERS)):
        raise PipelineFailed(f"{lake}: not a lake, because it has no folder `journal`")
    if not may_be_older:
        refuse_manifests(path)
    refuse_newer(path)
    return path


def _refuse_empty(lake: str) -> None:
    if not (local_folder(lake) / "journal").exists() and not {"journal", *LAYERS}.intersection(Store(lake).folders("")):
        raise PipelineFailed(f"{lake}: not a lake, because nothing is below journal/ there; --journal FOLDER names one of this machine")


def has_manifests(lake: Path) -> bool:
    """Whether an older Klamm made the tables: they have manifests in place of a log."""
    return any(True for layer in LAYERS for _ in (lake / layer).glob(f"*/{MANIFEST}"))


def refuse_manifests(lake: Path) -> None:
    """Raise PipelineFailed if an older Klamm made the tables."""
    if has_manifests(lake):
        raise PipelineFailed(f"{lake}: an older Klamm made its tables; `klamm pipeline run {lake}` takes them over")


@contextmanager
def written(lake: Lake, *, may_be_older: bool = False) -> Iterator[Lake]:
    """The absolute path of a lake, or its URL, in which no other process writes tables meanwhile. Raises PipelineFailed."""
    path = existing(lake, may_be_older=may_be_older)
    if isinstance(path, str):
        with held(path):
            yield path
        return
    try:
        (path / CHECKPOINTS).mkdir(exist_ok=True)
        lock = os.open(path / CHECKPOINTS / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as problem:
        raise PipelineFailed(
            f"{lake}: {problem.strerror}; tables grow beside the journal: copy the lake to where it can be written"
        ) from problem
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise PipelineFailed(f"{lake}: another process of the pipeline writes its tables") from problem
        yield path
    finally:
        os.close(lock)
