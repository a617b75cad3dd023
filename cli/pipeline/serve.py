"""`klamm pipeline serve`: a Spark Connect server that later commands use with --remote."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import FrameType

import click

from klamm.cli.pipeline.options import MEMORY, settings_options
from klamm.cli.shell.failures import StoppedEarly
from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import Whole

START_S = 120.0
POLL_S = 0.1


@click.command("serve", short_help="Run a Spark Connect server for --remote until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. Every client can run any code here.")
@click.option("--port", type=Whole(1, 65535), default=15002, show_default=True)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Where the server's jobs run.")
@MEMORY
@settings_options
def command(host: str, port: int, master: str, memory: str, settings: dict[str, str]) -> None:
    """Run a Spark Connect server until Ctrl-C. Commands with --remote sc://HOST:PORT need no start of Spark.

    The server has to see lakes under the same paths. It has no authentication: let it listen on loopback only.
    """
    from klamm.pipeline.lake.folder import PipelineFailed
    from klamm.pipeline.spark.cluster import connect_command, environment
    from klamm.pipeline.spark.java import java_for_spark
    from klamm.pipeline.spark.session import session_settings
    from klamm.pipeline.spark.user_settings import merged

    java = java_for_spark()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            raise PipelineFailed(f"{host}:{port}: {problem.strerror}") from problem
    folder = tempfile.TemporaryDirectory(prefix="klamm-serve-")
    command = connect_command(merged(session_settings(master, java, memory, settings), settings), Path(folder.name), host, port, master)
    server = subprocess.Popen(command, env=environment(java), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    received: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        server.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    ready = _listens(server, host, port)
    folder.cleanup()
    if ready:
        say(f"sc://{host}:{port}")
    code = server.wait()
    if received and not ready:
        raise StoppedEarly(received[0])
    if code not in (0, 143, 130, -signal.SIGTERM, -signal.SIGINT):
        raise PipelineFailed(f"the Spark Connect server ended with code {code}")


def _listens(server: subprocess.Popen[bytes], host: str, port: int) -> bool:
    """Wait until the server accepts connections; False when it ends before."""
    end = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((host, port)) == 0:
                return True
        time.sleep(POLL_S)
    return False
