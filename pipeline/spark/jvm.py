"""Starts the JVM of this process's Spark sessions, so that it can be ended at any time.

PySpark can start it too. But if PySpark is interrupted while it waits for the JVM, it removes the folder to which the JVM is about to write
its port. That error ends the thread of the JVM that watches for the end of this process, and the JVM runs for ever. A JVM that is started
here keeps its folder until this process ends. It ends when its standard input is closed, also if this process is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from klamm.pipeline.spark.cluster import submit_command

LOOK_S = 0.02
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""The variable by which PySpark finds a JVM that runs already; spark-submit sets it too."""
TERM_S = 0.5
"""How long a JVM may take to end in order, with its temporary folders removed, before it is killed."""


class JvmEnded(Exception):
    """The JVM ended during its start."""


class Gateway(NamedTuple):
    """How Python reaches the JVM."""

    port: int
    secret: str

    @property
    def environment(self) -> dict[str, str]:
        """PySpark reads it and starts no JVM of its own."""
        return {GATEWAY_PORT: str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}


_process: subprocess.Popen[bytes] | None = None
folders: list[str] = []
"""Removed when the JVM is ended."""


def missing_privates() -> str:
    """The first internal of PySpark that `start_jvm` relies on and that this PySpark lacks; empty if it has all of them."""
    from pyspark import SparkContext, java_gateway

    if not hasattr(SparkContext, "_gateway"):
        return "SparkContext._gateway"
    read = getattr(getattr(java_gateway, "launch_gateway", None), "__code__", None)
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH"):
        if read is None or name not in read.co_consts:
            return f"{name} in launch_gateway"
    return ""


def has_jvm() -> bool:
    """Whether this process has a JVM already."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def start_jvm(settings: Mapping[str, str], environ: Mapping[str, str], output: int) -> Gateway:
    """Start the JVM, which prints to the descriptor `output`. Raises JvmEnded. If a signal raises an exception meanwhile, the JVM ends."""
    from pyspark.serializers import UTF8Deserializer, read_int

    folder = tempfile.mkdtemp(prefix="klamm-jvm-")
    address = Path(folder, "address")
    own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)}
    command = submit_command(settings, Path(folder), "pyspark-shell")
    pool = ThreadPoolExecutor(1)
    try:
        process = pool.submit(_start, command, {**environ, **own}, output).result()
        while not address.exists():
            if process.poll() is not None:
                raise JvmEnded(f"the JVM ended with exit code {process.returncode}")
            time.sleep(LOOK_S)
        with address.open("rb") as written:  # the JVM gives a file this name when all is in it
            return Gateway(read_int(written), UTF8Deserializer().loads(written))
    except BaseException:
        pool.shutdown()
        end_jvm()
        raise
    finally:
        pool.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: Sequence[str], environ: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    """Start the process. It runs in a thread, where no signal raises an exception: a process that is started is always known."""
    global _process
    _process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env=dict(environ),
        start_new_session=True,  # Ctrl-C is for the command, which ends the JVM
    )
    return _process


def end_jvm() -> None:
    """End the JVM, in order if it can within TERM_S. Nothing happens if there is none."""
    global _process
    process, _process = _process, None
    if process is None or process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)  # with the shells and the JVM that only computes the command
    try:
        process.wait(TERM_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
