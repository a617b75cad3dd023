"""How many tasks of a running job have ended, for people who wait for it: Spark is asked twice a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.5
"""Seconds between two questions."""


@contextmanager
def ended_tasks(spark: SparkSession, step: Callable[[int], None]) -> Iterator[None]:
    """While the one job runs that is within, call `step` with the number of tasks that have ended since the last call.

    A Spark Connect server does not say it: then there is no call.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    over = threading.Event()
    asking = threading.Thread(target=_ask, args=(context.statusTracker(), step, over), name="tasks", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def _ask(tracker: Any, step: Callable[[int], None], over: threading.Event) -> None:
    told = 0
    while not over.wait(EVERY_S):
        try:
            jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        except Exception:  # noqa: BLE001 - the JVM has ended, and the job fails with the reason
            return
        ended = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if ended > told:
            step(ended - told)
            told = ended
