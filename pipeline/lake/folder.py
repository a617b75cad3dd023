"""What a lake is: a folder, or objects, with the `journal` of brokers and the tables made from it; and what fails there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Lake = Path | str
"""A lake's address: a folder, or a URL such as `s3://bucket/lake`."""

CHECKPOINTS = "_checkpoints"
MANIFEST = "_manifest.jsonl"
LAYERS = ("bronze", "silver", "gold")

FROM_JOURNAL = "all tables are made again from the journal. Segments that were shipped are in bronze only: if there are any, keep it"

SPARKS_OWN = ("py4j", "pyspark", "grpc")
"""Packages whose exceptions come from Spark."""


class PipelineFailed(Exception):
    """A failure that the user can correct, or numbers that do not add up; the text is one line."""


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
