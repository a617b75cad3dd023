"""A lake: a folder with the `journal` of brokers and the tables made from it. One process at a time writes tables."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Lake = Path | str
"""A lake's address: a folder, or a URL such as `s3://bucket/lake`."""

CHECKPOINTS = "_checkpoints"
MANIFEST = "_manifest.jsonl"
LAYERS = ("bronze", "silver", "gold")

SPARKS_OWN = ("py4j", "pyspark", "grpc")
"""Packages whose exceptions come from Spark."""


class PipelineFailed(Exception):
    """A failure that the user can correct, or numbers that do not add up; the text is one line."""


def existing(lake: Lake, *, may_be_older: bool = False) -> Lake:
    """The lake's absolute path, or its URL. Raises PipelineFailed if there is no such folder, or if it is not a lake of this Klamm."""
    from klamm.pipeline.lake.layout import refuse_newer

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
    from klamm.pipeline.lake.store import Store, local_folder

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
        from klamm.pipeline.lake.lease import held

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


@contextmanager
def spark_failures() -> Iterator[None]:
    """Exceptions of Spark, with or without Connect, become PipelineFailed with their reason, such as a full disk."""
    try:
        yield
    except (ConnectionError, EOFError) as problem:
        raise PipelineFailed(
            "Spark's JVM ended while it worked: it was killed, or had too little memory (--memory); the command can be repeated"
        ) from problem
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] in SPARKS_OWN:
            raise PipelineFailed(f"Spark: {_reason(problem)}") from problem
        raise


_LOST_TASK = re.compile(r".*Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor (?P<executor>\w+)\): ")
"""Where Spark's text names the host of a task that failed."""


def _reason(problem: Exception) -> str:
    """The most telling line of Spark's text: the last line that names an error, otherwise the first line; with the worker's host."""
    lost = _LOST_TASK.search(str(problem))
    text = str(problem) if lost is None else str(problem)[lost.end() :]
    lines = [line.strip().removeprefix("Caused by: ").removeprefix(": ") for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.split(": ")[0].endswith(("Failed", "Error", "Exception")) and ": " in line]
    reason = (ours or lines or [type(problem).__name__])[-1 if ours else 0]
    return reason if lost is None or lost["executor"] == "driver" else f"worker {lost['host']}: {reason}"
