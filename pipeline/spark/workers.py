"""Workers on other machines: whether they can do the work, asked before it begins, and whether any is left while it goes on.

A worker that cannot work fails late and far from the reason: a file "does not exist" that the driver has just written. Spark itself waits
for ever for a cluster whose executors are gone. So each session on a cluster begins with a job that has a task for each core: it reads a
file that the driver wrote to the lake, and says which Klamm it imports. A thread then looks whether there are executors as long as there
are jobs. If something fails later, the executors that are there then are asked again, because some of them may have come since.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from klamm.pipeline.spark.cluster import code_digest
from klamm.pipeline.spark.session import is_one_process, master_problem
from klamm.pipeline.spark.user_settings import without_token

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

WAIT_S = 45.0
"""How long jobs may have no executor before the command fails."""
LONG_WAIT_S = 600.0
"""The same where a resource manager starts executors on demand: it may pull an image first, or have a queue."""
ANSWER_S = 150.0
"""How long executors may take to answer at first; they start Python for it."""
LOOK_S = 1.0
SETTLED_S = 2.0
"""Executors are asked when no other has come for this time."""
CONNECT_TASKS = 8
"""Tasks that ask the executors of a Spark Connect server, which does not say how many cores they have."""
SPARKS_OWN = ("py4j", "pyspark", "grpc")
"""Packages whose exceptions come from Spark."""
TOKEN = "_checkpoints/seen-by-workers"
"""How the names of files begin that workers read in a lake. Each has a name and a content of its own: commands may run at the same time."""


class ClusterFailed(Exception):
    """The cluster cannot work; the text is one line that names the host, or the master, and the cause."""


class LakePlace(Protocol):
    """The place of a lake (`pipeline/lake/store.py`); workers get it as the driver has it."""

    def read(self, name: str) -> bytes | None:
        """The content; None if there is nothing of this name."""

    def put(self, name: str, data: bytes) -> None:
        """Store under this name."""

    def delete(self, name: str) -> None:
        """Remove it."""


class Workers:
    """The executors of a session that is not one process."""

    def __init__(self, spark: SparkSession, cluster: str, lake: LakePlace | None, context: Any = None) -> None:
        """`lake` is what workers have to see, if the command has one. `cluster` is a master, or a Connect server without a context."""
        self._spark, self._lake, self._cluster, self._context = spark, lake, cluster, context
        self._wait_s = LONG_WAIT_S if cluster.startswith(("k8s://", "yarn")) else WAIT_S
        self.lost: str | None = None
        """Why the work was given up."""
        if self._context is not None:
            threading.Thread(target=self._watch, name="executors", daemon=True).start()

    def ask(self) -> None:
        """Raise ClusterFailed if a worker does not see the lake or has another Klamm, or if there are no workers in time."""
        tasks = self._slots()
        with self._token() as token, self._deadline():
            ask = partial(answer, self._lake, token, code_digest())
            rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(ask, "problem string")
            try:
                problems = sorted({row.problem for row in rows.collect()} - {""})
            except Exception as problem:
                if self.lost is not None:
                    raise ClusterFailed(self.lost) from problem
                raise
        if problems:
            raise ClusterFailed(problems[0] + (f" (and {len(problems) - 1} more workers)" if len(problems) > 1 else ""))

    def explain(self, failure: Exception) -> None:
        """After a failure of Spark: raise ClusterFailed if it came from the cluster."""
        if self.lost is None and self._is_stopped():
            self.lost = f"{self._cluster} ended the application: its executors ended as soon as they began; the logs of its workers say why"
        if self.lost is not None:
            raise ClusterFailed(self.lost) from failure
        try:
            self.ask()
        except ClusterFailed as problem:
            raise problem from failure
        except Exception:  # the workers cannot be asked: the first failure says more
            log.debug("the workers do not answer after a failure", exc_info=True)

    def _is_stopped(self) -> bool:
        return self._context is not None and bool(self._context._jsc.sc().isStopped())

    def _slots(self) -> int:
        """The cores of the executors, when all that the cluster has at first are there. Raises ClusterFailed if none comes."""
        if self._context is None:
            return CONNECT_TASKS
        executors, since, until = 0, time.monotonic(), time.monotonic() + self._wait_s
        while time.monotonic() < until:
            now = self._executors()
            if now != executors:
                executors, since = now, time.monotonic()
            if executors and time.monotonic() - since >= SETTLED_S:
                break
            time.sleep(LOOK_S / 5)
        if not executors:
            raise ClusterFailed(self._why_none())
        return max(executors, int(self._context.defaultParallelism))

    def _executors(self) -> int:
        return int(self._context._jsc.sc().getExecutorIds().size())

    @contextlib.contextmanager
    def _token(self) -> Iterator[str]:
        """Write what workers have to read; empty if there is no lake, or one that is only read."""
        if self._lake is None:
            yield ""
            return
        token = secrets.token_hex()
        try:
            self._lake.put(seen_file(token), token.encode())
        except OSError:
            yield ""
            return
        try:
            yield token
        finally:
            self._lake.delete(seen_file(token))

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[None]:
        """Jobs that are not done in time are cancelled."""
        why = f"the executors of {self._cluster} did not answer within {ANSWER_S:.0f} s"
        timer = threading.Timer(ANSWER_S, self._give_up, [why])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, why: str) -> None:
        """Cancel all jobs; they fail for this reason."""
        self.lost = self.lost or why
        with contextlib.suppress(Exception):  # the JVM may be gone
            if self._context is None:
                self._spark.interruptAll()
            else:
                self._context.cancelAllJobs()

    def _watch(self) -> None:
        """Give up when jobs have had no executor for long."""
        since = time.monotonic()
        with contextlib.suppress(Exception):  # the JVM has ended, or the session
            while not self._is_stopped():
                is_idle = not self._context.statusTracker().getActiveJobsIds()
                if is_idle or self._executors():
                    since = time.monotonic()
                elif time.monotonic() - since >= self._wait_s:
                    self._give_up(self._why_none())
                time.sleep(LOOK_S)

    def _why_none(self) -> str:
        problem = master_problem(self._cluster)
        if problem is not None:
            return f"the master {self._cluster} does not answer ({problem}), and its executors are gone"
        return (
            f"{self._cluster} gave no executor for {self._wait_s:.0f} s: no worker has the free cores and memory that were asked for, or "
            "executors end as they start; the page of the master and the logs of its workers say which"
        )


_workers: Workers | None = None


def supervise(spark: SparkSession, lake: LakePlace | None = None, remote: str | None = None) -> None:
    """Check the workers of a new session, and watch them from now on. Nothing happens for a master that is one process.

    `remote` is the Spark Connect server, if it is a session of one. Raises ClusterFailed.
    """
    global _workers
    context = spark.sparkContext if remote is None else None
    cluster = context.master if context is not None else without_token(str(remote))
    _workers = None
    if context is None or not is_one_process(context.master):
        _workers = Workers(spark, cluster, lake, context)
        _workers.ask()


@contextlib.contextmanager
def cluster_failures() -> Iterator[None]:
    """A failure that came from a cluster which cannot work becomes ClusterFailed; others stay as they are."""
    try:
        yield
    except Exception as problem:
        if _workers is not None and type(problem).__module__.partition(".")[0] in SPARKS_OWN:
            _workers.explain(problem)
        raise


def seen_file(token: str) -> str:
    """The file of this content."""
    return f"{TOKEN}-{token[:16]}"


def answer(lake: LakePlace | None, token: str, code: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: a row that says what is wrong with it, or is empty."""
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"problem": [_problem(lake, token, code)]}, pa.schema([("problem", pa.string())]))


def _problem(lake: LakePlace | None, token: str, code: str) -> str:
    host = socket.gethostname()
    if code_digest() != code:
        return f"worker {host} imports another version of Klamm than the driver has, {__file__}"
    if lake is None or not token or lake.read(seen_file(token)) == token.encode():
        return ""
    return f"worker {host} does not see the lake {lake} of the driver: all machines need it under the same path"


