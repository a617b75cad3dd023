"""A `klamm broker` process: started from a properties file of its own, stopped, killed, frozen and thawed.

The environment variable BROKER_COMMAND puts another broker in its place, an Apache Kafka say, to see whether a test asks the right thing:
the command to which the name of the properties file is appended.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from klamm.tests.harness.ports import free_port
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_until_stopped

COMMAND = shlex.split(os.environ.get("BROKER_COMMAND", f"{Path(sys.executable).parent / 'klamm'} broker"))
SESSION_TIMEOUT_MS = 6000
START_S = 30.0
BASE = {
    "zookeeper.connection.timeout.ms": 15000,
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.max.retries": 1,
    "controlled.shutdown.retry.backoff.ms": 200,
}


class KlammBroker:
    """One process. Property names are given with underscores for dots."""

    def __init__(self, tree: Tree, folder: Path, broker_id: int, **properties: object) -> None:
        self.tree, self.id, self.folder = tree, broker_id, folder / f"broker-{broker_id}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings: dict[str, object] = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "zookeeper.connect": tree.hosts,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "log.dirs": self.folder / "data",
            **BASE,
        }
        self.settings.update({name.replace("_", "."): value for name, value in properties.items()})
        self.port = int(str(self.settings["listeners"]).split(",")[0].rsplit(":", 1)[1])
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self) -> KlammBroker:
        """Start the process and return at once."""
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*COMMAND, str(file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        return self

    def start(self) -> KlammBroker:
        """Start the process; returns when it is registered, listens, and there is a controller."""
        old = self.tree.broker_epoch(self.id)
        self.launch()
        self.wait(lambda: self.tree.broker_epoch(self.id) not in (-1, old) and self.listens() and self.tree.controller() != -1, "ready")
        return self

    def wait(self, condition: object, what: str, within_s: float = START_S) -> None:
        """Block until `condition()` holds; fails when the process ends meanwhile."""
        assert callable(condition)
        end = time.monotonic() + within_s
        while not condition():
            if not self.alive():
                raise AssertionError(f"broker {self.id} ended with {self.exit_code()}: {self.tail()}")
            if time.monotonic() > end:
                raise AssertionError(f"broker {self.id} not {what} within {within_s:.0f} s: {self.tail()}")
            time.sleep(0.01)

    def listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def exit_code(self) -> int | None:
        """The exit code of the last process, None when it runs or never did."""
        return None if self.process is None else self.process.poll()

    def stop(self, within_s: float = 20) -> int:
        """SIGTERM; returns the exit code. A process that does not end in time is killed and fails the test."""
        assert self.process is not None
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"broker {self.id} did not end within {within_s:.0f} s: {self.tail()}") from None
        return self.process.wait()

    def kill(self) -> None:
        """kill -9; its ZooKeeper session goes on until it expires."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself
            self.process.wait()

    def freeze(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)
        wait_until_stopped(self.process.pid)

    def thaw(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def tail(self) -> str:
        return self.log.read_bytes()[-1500:].decode(errors="replace") if self.log.exists() else ""
