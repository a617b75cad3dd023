"""Opens Spark sessions, here or on a cluster.

Settings of the JVM must be known before it starts, so the first session of a process decides; `settings.py` has them all. What the JVM
prints goes to a file, and is shown only if the start fails. With `remote` there is no JVM: a Spark Connect server does the work.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from klamm.machine.cache_folder import cache_folder, keep
from klamm.machine.extras import install_command
from klamm.machine.java import Java
from klamm.pipeline.spark import s3a
from klamm.pipeline.spark.cluster import code_zip, environment, own_archive, spark_home
from klamm.pipeline.spark.java import java_for_spark
from klamm.pipeline.spark.jvm import GATEWAY_PORT, JvmEnded, folders, has_jvm, missing_privates, start_jvm
from klamm.pipeline.spark.settings import JARS, JAVA_OPTIONS, WORKER_PYTHON, Kind, When, chosen, jvm_flags
from klamm.pipeline.spark.user_settings import merged, warn_of_unknown, without_secrets, without_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOCAL = "local[*]"

IN_IMAGES = "k8s://"
"""Masters whose executors have a Python of their own, that of their image."""

TRIES = 3
"""How often a task runs that fails, for example because a Python worker was killed. Spark itself runs it once on a local master."""
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


class NoSpark(Exception):
    """No session can be opened; the text is one line that says why and what to do."""


def open_session(
    master: str = LOCAL,
    *,
    remote: str | None = None,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
    name: str = "klamm",
    variables: MutableMapping[str, str] | None = None,
) -> SparkSession:
    """A SparkSession: of a Spark Connect server (`remote`, an sc:// address), else of `master`. The caller stops it.

    `memory` is the driver's heap, `settings` are Spark's and override ours. `variables` is `os.environ` where the process belongs to
    Klamm: during the start it tells PySpark of the JVM that was started here. Without it the process's environment stays as it is, and
    PySpark starts its JVM itself. In a program of spark-submit, its JVM, its master and its settings are used. Raises NoJava and NoSpark.
    """
    from pyspark.sql import SparkSession

    settings = settings or {}
    if remote is not None:
        return _connected(SparkSession, remote, settings)
    java = java_for_spark()
    if variables is not None and GATEWAY_PORT in variables:
        return _submitted(SparkSession.builder, java, memory, settings)
    master = with_tries(master)
    selected = merged(session_settings(master, java, memory, settings) | own_settings(master), settings)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in selected.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as printed:
        try:
            _reach_master(master)
            submitted = {**selected, "spark.master": master, "spark.app.name": name}
            with _jvm(variables, java, submitted, printed.fileno()), _signal_handlers_kept():
                session = builder.getOrCreate()
        except Exception as problem:  # py4j and PySpark raise many classes for a JVM that does not start
            printed.seek(0)
            reason = without_secrets(_reason(problem, printed.read().decode(errors="replace")), settings)
            raise NoSpark(f"Spark does not start on {master}: {reason}") from problem
    if settings:
        warn_of_unknown(session.sparkContext, settings)
    return session


def _submitted(builder: SparkSession.Builder, java: Java, memory: str, settings: Mapping[str, str]) -> SparkSession:
    """The session of a program that spark-submit started. What neither it nor `settings` sets is as in sessions of Klamm's own."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    theirs = SparkConf()
    master = theirs.get("spark.master") or LOCAL
    ours = session_settings(master, java, memory, {JARS: theirs.get(JARS) or "", **settings})
    for key, value in {**{key: value for key, value in ours.items() if not theirs.contains(key)}, **settings}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as problem:  # as in `open_session`
        raise NoSpark(f"Spark does not start on {master}: {without_secrets(_reason(problem, ''), settings)}") from problem
    if not is_one_process(master) and own_archive() is None:
        session.sparkContext.addPyFile(str(code_zip()))
    warn_of_unknown(session.sparkContext, settings)
    return session


@contextlib.contextmanager
def _jvm(variables: MutableMapping[str, str] | None, java: Java, submitted: Mapping[str, str], output: int) -> Iterator[None]:
    """The JVM that PySpark finds meanwhile; if there is none, PySpark starts one itself."""
    if variables is None:
        yield
        return
    gateway: Mapping[str, str] = {}
    missing = missing_privates()
    if missing:
        log.warning("this PySpark has no %s: it starts its JVM by itself", missing)
    elif not has_jvm():
        gateway = start_jvm(submitted, environment(java), output).environment
    own = environment(java, {}) | {"PYSPARK_PYTHON": submitted.get(WORKER_PYTHON, "python3")}
    with _changed(variables, {**own, **gateway}):
        yield


def with_tries(master: str) -> str:
    """A local master with the number of tries of a task: `local[2]` becomes `local[2,3]`. Others have it from Spark's settings."""
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TRIES}]", master)


def session_settings(master: str, java: Java, memory: str, theirs: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a session that Klamm opens, also for servers and programs of others. `theirs` are the user's."""
    whens = {When.ALWAYS} | ({When.LOCAL} if master.startswith("local") else set())
    whens |= set() if is_one_process(master) else {When.ELSEWHERE}
    facts = {
        "memory": memory,
        "python": None if master.startswith(IN_IMAGES) else sys.executable,
        "log_settings": str(_log_settings()),
        "code": None if is_one_process(master) else str(code_zip()),
    }
    of_store = s3a.settings(os.environ) if s3a.has_s3a(theirs.get(JARS), spark_home()) else {}
    return chosen(Kind.SPARK, whens, facts) | {JAVA_OPTIONS: jvm_flags(whens, facts)} | of_store


def is_one_process(master: str) -> bool:
    """Whether all work is done by the driver's JVM and the Python workers beside it."""
    return master == "local" or master.startswith("local[")


LONGEST_FOLDER = 60
"""Characters of a folder in which sockets can have the names that Spark gives them; the system's limit is 107 with the name."""


def own_settings(master: str) -> dict[str, str]:
    """More settings, of a session that only Klamm uses."""
    if not is_one_process(master):
        return {}
    folder = _socket_folder()
    fits = len(folder) <= LONGEST_FOLDER
    return chosen(Kind.SPARK, {When.ALONE}, {"sockets": folder, "has_sockets": "true"} if fits else {})


@cache
def _socket_folder() -> str:
    """A folder that only this user can look into. It is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="klamm-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folders.append(folder)
    return folder


def _connected(builder: SparkSession.Builder, remote: str, settings: Mapping[str, str]) -> SparkSession:
    try:
        _reach(remote)
        session = builder.builder.remote(remote).getOrCreate()
        session.version  # noqa: B018  # asks the server: a session object alone connects to nothing
    except ImportError as problem:
        raise NoSpark(f"--remote needs the packages of Spark Connect: {install_command('connect')}") from problem
    except Exception as problem:  # grpc and PySpark raise many classes for a server that is not there
        reason = _reason(problem, "").replace(remote, without_token(remote))
        raise NoSpark(f"no Spark Connect server at {without_token(remote)}: {reason}") from problem
    for key, value in settings.items():
        try:
            session.conf.set(key, value)
        except Exception as problem:  # of grpc and PySpark, as above
            reason = without_secrets(_reason(problem, ""), settings)
            raise NoSpark(f"{key} cannot be set on the server at {without_token(remote)}: {reason}") from problem
    session.addArtifact(str(code_zip()), pyfile=True)
    return session


def _reach(remote: str) -> None:
    """Raise OSError if nobody listens there: PySpark itself would try again for minutes."""
    address = urlsplit(remote)
    if address.scheme == "sc" and address.hostname:
        socket.create_connection((address.hostname, DEFAULT_PORT if address.port is None else address.port), REACH_S).close()


def master_problem(master: str) -> str | None:
    """Why no master of a `spark://` URL can be reached; None if one can, or if the master is of another kind."""
    try:
        _reach_master(master)
    except OSError as problem:
        return _reason(problem, "")
    return None


def _reach_master(master: str) -> None:
    """Raise OSError if no master of a `spark://` URL listens: Spark itself would try for a minute and give no reason."""
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
    """Restore the handler of SIGINT afterwards: PySpark replaces it by one that asks the JVM first."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _changed(variables: MutableMapping[str, str], ours: Mapping[str, str]) -> Iterator[None]:
    """These variables have our values meanwhile."""
    before = {key: variables.get(key) for key in ours}
    variables.update(ours)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                variables.pop(key, None)
            else:
                variables[key] = value


def _reason(problem: BaseException, printed: str) -> str:
    """The most telling line: the last error that the JVM printed, otherwise the first line of the exception."""
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


@contextlib.contextmanager
def with_settings(spark: SparkSession, ours: Mapping[str, str]) -> Iterator[None]:
    """These settings of the session have our values meanwhile."""
    before = {key: spark.conf.get(key) for key in ours}
    for key, value in ours.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
