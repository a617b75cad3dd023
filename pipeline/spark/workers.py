"""The process from which Spark's Python workers are forked: it has imported what they need, so each of them starts at once.

Spark runs it as `python -m klamm.pipeline.spark.workers pyspark.worker` in sessions that Klamm opens on this machine (`session.py`).
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MODULE = "klamm.pipeline.spark.workers"
SETTING = "spark.python.daemon.module"
FIRST = 1
"""Workers that are started before there is work for them. One: it brings up the process that forks them, which a second one finds there."""


def preload() -> None:
    """Import what workers of the pipeline need; no thread may run behind it, for it would not be there in what is forked."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    import pyspark.worker  # noqa: F401

    import klamm.pipeline.silver_files  # noqa: F401
    from klamm.pipeline.spark.lean_arrow import leave_out_pandas
    from klamm.protocol.second_opinion import other_class

    leave_out_pandas()
    other_class("ApiVersionsRequest")
    gc.freeze()  # the collector of a worker has these objects no more to look through


@contextlib.contextmanager
def started(spark: Any, are_wanted: bool = True) -> Iterator[None]:
    """The first workers start meanwhile, where they `are_wanted` and this module forks them: while the JVM plans, that costs no time."""
    if not are_wanted or spark.conf.get(SETTING, None) != MODULE:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_start, spark)
        yield
        starting.result()


def _start(spark: Any) -> None:
    spark.range(0, FIRST, 1, FIRST).mapInArrow(_nothing, "id long").collect()


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    from pyspark.daemon import manager

    os.setpgid(0, 0)  # as the manager will: Ctrl-C is for the command, not for this process
    preload()
    manager()
