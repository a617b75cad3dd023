"""A Spark session that starts quickly, here or on a cluster.

Settings of the JVM have to be known before it starts: the first session of a process decides. Locally Spark gets few shuffle partitions,
no web page, the simplest compiler and collector, and the archive of classes that `klamm pipeline warm` made, which the
JVM ignores when it does not fit. What the JVM prints goes to a file and is shown only when the start fails. With `remote` there is no JVM:
a Spark Connect server does the work.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from klamm.machine.cache_folder import cache_folder, keep
from klamm.machine.extras import install_command
from klamm.machine.java import Java
from klamm.pipeline.spark.cluster import code_zip, environment
from klamm.pipeline.spark.java import class_archive, java_for_spark
from klamm.pipeline.spark.jvm import JvmEnded, folders, start_jvm
from klamm.pipeline.spark.workers import MODULE, SETTING

LOCAL = "local[*]"
DEFAULT_PORT = 15002
DEFAULT_MASTER_PORT = 7077
REACH_S = 10.0

_QUIET_LOG = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


# Bodies of all APIs share a column: laid apart into one column for each field of the most frequent ones, they would be put together again
# for every other one.
_WHOLE_BODIES = {"spark.sql.variant.inferShreddingSchema": "false", "spark.sql.variant.pushVariantIntoScan": "false"}


class NoSpark(Exception):
    """No session can be opened; the text is one line that says why and what to do."""


def open_session(
    master: str = LOCAL,
    *,
    remote: str | None = None,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
    options: tuple[str, ...] | None = None,
    name: str = "klamm",
) -> Any:
    """A SparkSession: of a Spark Connect server (`remote`, an sc:// address), else of `master`. The caller stops it.

    `memory` is the driver's heap, `settings` are Spark's and go before ours. `options` are for the JVM, in the place of those that use the
    class archive. Raises NoJava and NoSpark.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if remote is not None:
        return _connected(SparkSession, remote, settings or {})
    java = java_for_spark()
    chosen = session_settings(master, java, memory, options) | own_settings(master) | dict(settings or {})
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as printed:
        try:
            _reach_master(master)
            gateway = {}
            if SparkContext._gateway is None:
                submitted = {**chosen, "spark.master": master, "spark.app.name": name}
                gateway = start_jvm(submitted, environment(java), printed.fileno()).environment
            with _environment({**environment(java, {}), **gateway}), _signal_handlers_kept():
                return builder.getOrCreate()
        except Exception as problem:  # py4j and PySpark raise many classes for a JVM that does not start
            printed.seek(0)
            raise NoSpark(f"Spark does not start on {master}: {_reason(problem, printed.read().decode(errors='replace'))}") from problem


def session_settings(master: str, java: Java, memory: str, options: tuple[str, ...] | None = None) -> dict[str, str]:
    """Spark's settings for a session that Klamm opens."""
    local = master.startswith("local")
    # The heap has its size from the start, half of it for what is young and room for classes: else much time goes into collecting. Threads
    # are many and most do little, so what is young is not dealt out to them in large pieces, of which they would use a part.
    jvm = ["-XX:+UseParallelGC", "-XX:-UseAdaptiveSizePolicy", "-XX:NewRatio=1", "-XX:TLABSize=256k", "-XX:-ResizeTLAB"]
    # Methods are compiled a little later than usual, for most run a few times only; and what is compiled fits into memory.
    jvm += ["-XX:MetaspaceSize=256m", "-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=2"]
    # One that is out of memory ends: a thread that fails without memory would leave others waiting for ever.
    jvm += ["-XX:ReservedCodeCacheSize=240m", "-XX:+ExitOnOutOfMemoryError"]
    if re.fullmatch(r"[0-9]+[kmgt]", memory, re.IGNORECASE):  # Spark knows more ways to write a size
        jvm.append(f"-Xms{memory}")
    jvm += [f"-Dlog4j2.configurationFile={_log_settings()}"]
    jvm += archive_options(java) if options is None else options
    chosen = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(jvm),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark remembers of past work for pages that nobody sees: by default the plans of a thousand queries.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        # Nobody looks at Spark's page of a query, and nobody looks for faults of its optimizer.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.lightweightPlanChangeValidation": "false",
        **_WHOLE_BODIES,
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }
    if local:
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            # Who did not ask for a result in time makes Spark wait for ever, also on a machine that stood still.
            "spark.python.authenticate.socketTimeout": "600s",
            # Memory for what is sent to workers and for rows is allocated in pieces of this size, however little there is to send or keep.
            "spark.broadcast.blockSize": "128k",
            "spark.buffer.pageSize": "1m",
            # Files are listed here: a job that does it costs more than hundreds of folders.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        }
    if not _is_one_process(master):
        chosen["spark.submit.pyFiles"] = str(code_zip())
    return chosen


def archive_options(java: Java) -> tuple[str, ...]:
    """Options of the JVM that use the archive of classes; none if there is no archive. Its warnings would go to standard output."""
    flags = class_archive(java).flags()
    return (*flags, "-Xlog:disable") if flags else ()


def _is_one_process(master: str) -> bool:
    """All work is done by the driver's JVM and the Python workers beside it."""
    return master == "local" or master.startswith("local[")


LONGEST_FOLDER = 60
"""Characters of a folder in which sockets can have the names that Spark gives them; the system's limit is 107 with the name."""


def own_settings(master: str) -> dict[str, str]:
    """More settings, of a session in which nobody but Klamm works.

    On this machine JVM and Python speak over files, not ports: a client that connects to such a port by mistake, because it looks for
    a broker that is gone, makes Spark wait for ever. And workers are forked from a process of ours.
    """
    # There is one extension on the class path, MLlib's, which takes half a second for functions that nobody calls here.
    chosen = {"spark.sql.extensions.test.loadFromCp": "false"}
    if not _is_one_process(master):
        return chosen
    chosen[SETTING] = MODULE
    folder = _socket_folder()
    if len(folder) <= LONGEST_FOLDER:
        chosen |= {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}
    return chosen


@cache
def _socket_folder() -> str:
    """A folder that only this user can look into; it goes with this process."""
    folder = tempfile.mkdtemp(prefix="klamm-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folders.append(folder)
    return folder


def _connected(builder: Any, remote: str, settings: Mapping[str, str]) -> Any:
    try:
        _reach(remote)
        session = builder.builder.remote(remote).getOrCreate()
        session.version  # noqa: B018  # asks the server: a session object alone connects to nothing
    except ImportError as problem:
        raise NoSpark(f"--remote needs the packages of Spark Connect: {install_command('connect')}") from problem
    except Exception as problem:  # grpc and PySpark raise many classes for a server that is not there
        raise NoSpark(f"no Spark Connect server at {remote}: {_reason(problem, '')}") from problem
    for key, value in {**_WHOLE_BODIES, **settings}.items():
        session.conf.set(key, value)
    session.addArtifact(str(code_zip()), pyfile=True)
    return session


def _reach(remote: str) -> None:
    """Raise OSError where nobody listens: PySpark itself tries again for minutes."""
    address = urlsplit(remote)
    if address.scheme == "sc" and address.hostname:
        socket.create_connection((address.hostname, DEFAULT_PORT if address.port is None else address.port), REACH_S).close()


def _reach_master(master: str) -> None:
    """Raise OSError where none of the masters of a `spark://` URL listens: Spark itself tries again for a minute, and does not say why."""
    if not master.startswith("spark://"):
        return
    addresses = [urlsplit(f"//{address}") for address in master.removeprefix("spark://").split(",")]
    failures = []
    for address in addresses:
        try:
            socket.create_connection((address.hostname or "", address.port or DEFAULT_MASTER_PORT), REACH_S / len(addresses)).close()
        except OSError as problem:
            failures.append(problem)
        else:
            return
    raise failures[-1]


def _log_settings() -> Path:
    """The file that makes Spark's log quiet."""
    path = cache_folder("spark") / "log4j2.properties"
    if not path.exists() or path.read_text() != _QUIET_LOG:
        keep(path, _QUIET_LOG.encode())
    return path


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """PySpark replaces the handler of SIGINT by one that asks the JVM first. The handler that was set before is set again."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _environment(ours: Mapping[str, str]) -> Iterator[None]:
    """Variables that PySpark reads meanwhile, and that the Python workers inherit."""
    before = {key: os.environ.get(key) for key in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _reason(problem: BaseException, printed: str) -> str:
    """The line that says most: what the JVM printed last as an error, else the first line of the exception."""
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    stripped = (line.strip() for line in printed.splitlines())
    lines = [line for line in stripped if line and not line.startswith(_SAYS_NOTHING)]
    errors = [line for line in lines if "Exception" in line or "rror" in line]
    telling = errors or (lines if isinstance(problem, JvmEnded) else [])
    return telling[-1] if telling else (str(problem).strip() or type(problem).__name__).splitlines()[0]


_SAYS_NOTHING = (
    "at ",
    "Error occurred during initialization of VM",
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred.",
)
"""Lines of a JVM around the one with the reason."""


FEW = 100_000
"""Up to this number of rows most of the time goes into planning queries and starting tasks."""

_FOR_FEW_ROWS = {
    # Compiling a query takes longer than interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # What is in one partition stays in one: a join or a window over it needs no shuffle, and a broadcast would be a job of its own. Spark
    # takes a join for as large as the product of its sides.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.maxSinglePartitionBytes": "9223372036854775807b",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    # Filters that say which values cannot be null cost more than the rows that they leave out.
    "spark.sql.constraintPropagation.enabled": "false",
}


@contextlib.contextmanager
def few_rows(spark: Any, are_few: bool = True) -> Iterator[None]:
    """Queries of this session are meanwhile planned for few rows, `FEW` and less, where they `are_few`."""
    if not are_few:
        yield
        return
    before = {key: spark.conf.get(key) for key in _FOR_FEW_ROWS}
    for key, value in _FOR_FEW_ROWS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
