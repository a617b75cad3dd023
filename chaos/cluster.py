"""The cluster of a run: a child process with `klamm serve` and its control API, its log and, where it is possible, its small disks.

The child and all its brokers end with this process, also if that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from klamm.chaos import small_disks
from klamm.chaos.schedule import Options
from klamm.control.client import ControlClient, ControlFailed
from klamm.control.json_object import JsonObject
from klamm.zk.embedded.owned_process import OwnedProcess

START_S = 120.0
STOP_S = 10.0
LOOK_S = 0.02
DISK_BYTES = 64 << 20
DISK_BYTES_A_MINUTE = 16 << 20
CONFIGS = {
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "controlled.shutdown.max.retries": "3",
    "controlled.shutdown.retry.backoff.ms": "200",
    "leader.imbalance.check.interval.seconds": "10",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.retention.check.interval.ms": "1000",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "min.insync.replicas": "2",
    "log.retention.ms": "-1",
    "log.segment.bytes": str(1 << 20),
    "log.segment.delete.delay.ms": "500",
    "auto.create.topics.enable": "false",
}
"""Deaths and lags are noticed soon, segments are small."""
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
"""Of the topics of the load: what groups and transactions rest on stays."""


class CannotStart(Exception):
    """The cluster of the run did not start. The message is one line."""


class ServedCluster:
    """`with` starts it and ends it. `api` is its control API."""

    def __init__(
        self, klamm: Sequence[str], options: Options, minutes: float, folder: Path | None = None, *, keeps_journal: bool = False
    ) -> None:
        """`klamm` is the command of the command line. `folder` gets the logs of the brokers and of the process, and stays; without it
        there is a temporary one. What an earlier run left there is removed.
        """
        self._keeps_journal = keeps_journal
        self.options = options
        self._klamm = klamm
        self._given = folder
        self.folder = Path()
        self._disk_bytes = DISK_BYTES + int(minutes * DISK_BYTES_A_MINUTE)
        self._process: OwnedProcess | None = None
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        if self._given is not None:
            self._given.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="klamm-chaos-")) if self._given is None else self._given
        for left in (self.data, self.journal):
            shutil.rmtree(left, ignore_errors=True)
        for file in (self._out, self.log):
            file.unlink(missing_ok=True)
        try:
            line = self._start()
        except BaseException:
            self._end()
            raise
        self.bootstrap_servers = line["bootstrap_servers"]
        self.api = ControlClient(line["control"])
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def data(self) -> Path:
        """The log directories of the brokers."""
        return self.folder / "data"

    @property
    def journal(self) -> Path:
        """The lake with the journals of the brokers, if they keep one."""
        return self.folder / "journal"

    @property
    def log(self) -> Path:
        """What the process wrote."""
        return self.folder / "serve.log"

    @property
    def _out(self) -> Path:
        return self.folder / "serve.out"

    @property
    def ids(self) -> range:
        """Ids of all brokers."""
        return range(1, self.options.brokers + 1)

    @property
    def pid(self) -> int:
        """Of the process that runs the cluster."""
        assert self._process is not None
        return self._process.pid

    def end_of_process(self) -> str | None:
        """How the process ended by itself; None while it runs."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else f"the process of the cluster ended with exit code {code}"

    def fill_disk(self, broker: int) -> None:
        """No byte of the small disk of this broker is free afterwards."""
        small_disks.fill(self.pid, self._disk(broker), self._disk_bytes)

    def free_disk(self, broker: int) -> None:
        """What `fill_disk` took is free again."""
        small_disks.free(self.pid, self._disk(broker))

    def _disk(self, broker: int) -> Path:
        return self.data / f"broker-{broker}" / "small"

    def _start(self) -> JsonObject:
        options = self.options
        command = [*self._klamm, "serve", "--port", "0", "--json", "--control-port", "0", "--brokers", str(options.brokers)]
        command += [part for name, value in CONFIGS.items() for part in ("--config", f"{name}={value}")]
        command += ["--processes"] * options.processes
        command += ["--journal", str(self.journal)] * self._keeps_journal
        if not options.small_disks:
            command += ["--data-dir", str(self.data)]
        else:
            for broker in self.ids:
                disk = self._disk(broker)
                disk.mkdir(parents=True, exist_ok=True)
                command += ["--broker-config", f"{broker}:log.dirs={disk.with_name('large')},{disk / 'logs'}"]
            command = small_disks.in_namespace([self._disk(broker) for broker in self.ids], self._disk_bytes, command)
        out = self._out
        shell = ["sh", "-c", 'out=$1 log=$2; shift 2; exec "$@" >"$out" 2>"$log"', "klamm-chaos", str(out), str(self.log)]
        self._process = OwnedProcess([*shell, *command], self.folder / "start.log")
        return self._first_line(out)

    def _first_line(self, out: Path) -> JsonObject:
        """The line of `klamm serve`. Raises CannotStart."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            text = out.read_text(encoding="utf-8") if out.exists() else ""
            if text.endswith("\n"):
                line: JsonObject = json.loads(text)
                if "error" not in line:
                    return line
                raise CannotStart(line["error"])
            if self.end_of_process() is not None:
                break
            time.sleep(LOOK_S)
        told = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if self.log.exists() else []
        raise CannotStart(f"the cluster did not start: {told[-1] if told else self.end_of_process() or 'it took too long'}")

    def stop(self) -> None:
        """Stop all brokers in order. Their files stay until the `with` block ends, or for good in a folder that was given."""
        if self._process is not None:
            with contextlib.suppress(ControlFailed, AttributeError):
                self.api.delete("faults")
                self.api.delete("holds")
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            self._process.stop()
            self._process = None

    def _end(self) -> None:
        self.stop()
        if self._given is None:
            shutil.rmtree(self.folder, ignore_errors=True)
