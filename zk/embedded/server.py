"""A real ZooKeeper that this process owns: a standalone server in a JVM, on a free port of the loopback interface.

`start` writes a configuration, starts the JVM with few jars and with flags for a fast start, and waits until the server responds (it is
identified by its data folder). Without `data_dir` the data is in a temporary folder, which is removed at the end. The JVM ends with its
owner (see `owned_process`). It is always killed, which is safe because ZooKeeper writes its log first. If it ends without `stop` (it was
killed, or its disk is full; then ZooKeeper exits with 0), `wait_for_end` returns the reason. The first start with a Java build also creates
a class archive (`machine/class_archive.py`) in the background, with a second JVM of low priority. ZooKeeper logs nothing, because no log
library is on its class path. If it ends during the start, it is started again with the logging jars of the same folder, to find the reason.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from klamm.machine.cache_folder import cache_folder
from klamm.machine.class_archive import ClassArchive
from klamm.machine.folder_lock import lock_file
from klamm.machine.java import Java
from klamm.zk.embedded.java import EmbeddedZooKeeperError, find_jars, find_runtime
from klamm.zk.embedded.owned_process import OwnedProcess

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
# Only the first compiler, the simplest garbage collector, and no shared performance counters, for a small server with a short life. If it
# is out of memory, it exits. Otherwise it would continue without some of its threads. The thread that waits for sockets also reads and
# writes them, and no digest of all znodes is updated with each write: together a quarter less CPU time.
_JVM_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.nio.numWorkerThreads=0",
    "-Dzookeeper.digest.enabled=false",
)
_PORT_ATTEMPTS = 5
_LOCK_PATIENCE_S = 5.0
_UNUSED_S = 60 * 24 * 3600
# ZooKeeper extends its log by one megabyte at a time.
REASON_TIMEOUT_S = 30.0
"""Limit for the second start that finds the reason of a failure. On a busy machine a JVM needs seconds to start."""

_FULL_BYTES = 1 << 20
# An exception as Java prints it: name and text.
_THROWN = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error): ")


class EmbeddedZooKeeper:
    """An embedded server. `address` is `host:port` after the start. It does not need an event loop; every method blocks."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        jars: str | os.PathLike[str] | None = None,
        force_sync: bool = False,
        heap_mb: int = 1024,
        start_timeout_ms: int = 30_000,
        archive_folder: Path | None = None,
    ) -> None:
        """`data_dir` is a folder that keeps the data, `jars` the folder with ZooKeeper's jars. With `force_sync` the data also survives a
        crash of the machine.
        """
        self._data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._jars = jars
        self._force_sync = force_sync
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_ms / 1000
        self._archive_folder = archive_folder
        self._process: OwnedProcess | None = None
        self._lock: int | None = None
        self._builder: threading.Thread | None = None
        self.address = ""

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; None if it is not started."""
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start the server if it is not running, and return its address. Raises EmbeddedZooKeeperError."""
        if self.running:
            return self.address
        self.stop()
        java, jars = find_runtime(), find_jars(self._jars)
        flags = [*_JVM_FLAGS, f"-Xmx{self._heap_mb}m"]
        archive = class_archive(java, jars, flags, cache_folder() if self._archive_folder is None else self._archive_folder)
        command = [str(java.launcher), *flags, *archive.flags(), *self._sync_flags(), "-cp", _class_path(jars), _MAIN]
        try:
            self._lock = _lock_folder(self._data_dir) if self._data_dir is not None else None
            for attempt in range(_PORT_ATTEMPTS):
                if self._start(command, last=attempt == _PORT_ATTEMPTS - 1):
                    break
        except OSError as problem:
            raise EmbeddedZooKeeperError(f"the embedded ZooKeeper cannot start: {problem}") from problem
        finally:
            if self._lock is not None and not self.running:
                os.close(self._lock)
                self._lock = None
        if not archive.is_built():
            self._builder = threading.Thread(
                target=_build_class_archive, args=(archive, java, jars, flags), name="zookeeper-class-archive", daemon=True
            )
            self._builder.start()
        return self.address

    def wait_for_end(self) -> str | None:
        """Block until the server has ended. Returns the reason in one line; None if `stop` was called or it was not started."""
        process = self._process
        if process is None:
            return None
        code = process.wait(None)
        return f"the embedded ZooKeeper ended: {_cause(code, process.output)}" if process is self._process else None

    def stop(self) -> None:
        """Kill the server and remove its temporary folder. A second call has no effect."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def wait_class_archive(self, timeout_s: float) -> bool:
        """Wait for a class archive that is built in the background. True if none is being built any more."""
        if self._builder is not None:
            self._builder.join(timeout_s)
            return not self._builder.is_alive()
        return True

    def _sync_flags(self) -> list[str]:
        return [f"-Dzookeeper.forceSync={'yes' if self._force_sync else 'no'}", "-Dzookeeper.preAllocSize=1024"]

    def _start(self, command: Sequence[str], last: bool) -> bool:
        """One attempt. False if another process has taken the port."""
        trash = None if self._data_dir is not None else Path(tempfile.mkdtemp(prefix="klamm-zookeeper-"))
        folder = trash if trash is not None else Path(self._data_dir or "")
        port = _free_port()
        try:
            config = _write_config(folder, port)
            output = folder / "zookeeper.out"
            process = OwnedProcess([*command, str(config)], output, trash, inherited=() if self._lock is None else (self._lock,))
        except BaseException:
            if trash is not None:
                shutil.rmtree(trash, ignore_errors=True)
            raise
        deadline = time.monotonic() + self._start_timeout_s
        try:
            while not _serves(port, folder):
                if process.poll() is not None:
                    if not last and _is_taken(port):
                        process.stop()
                        return False
                    reason = self._reason(command) or f"exit code {process.poll()}"
                    raise EmbeddedZooKeeperError(f"the embedded ZooKeeper ended during its start: {reason}")
                if time.monotonic() > deadline:
                    raise EmbeddedZooKeeperError(f"the embedded ZooKeeper did not respond within {self._start_timeout_s:g} s")
                time.sleep(0.004)
        except BaseException:
            process.stop()
            raise
        self._process, self.address = process, f"{HOST}:{port}"
        return True

    def _reason(self, command: Sequence[str]) -> str:
        """The errors that the server logs if it is started again with all jars of its folder, including the log library."""
        jars = find_jars(self._jars)
        with tempfile.TemporaryDirectory(prefix="klamm-zookeeper-") as folder:
            everything = [os.path.join(jars[0].parent, "*") if part == _class_path(jars) else part for part in command]
            config = _write_config(Path(folder), _free_port(), self._data_dir)
            output = Path(folder, "zookeeper.out")
            process = OwnedProcess([*everything, str(config)], output)
            try:
                process.wait(REASON_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return ""
            finally:
                process.stop()
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line.strip() for line in lines if line.strip()]
        telling = [line for line in lines if _THROWN.match(line)] or [line for line in lines if "ERROR" in line] or lines
        return "; ".join(dict.fromkeys(telling[:2]))


def _cause(code: int, output: Path) -> str:
    """Why a running server has ended: its exit code, whether its disk is full, the last output of the JVM."""
    causes = [f"killed by {signal.Signals(code - 128).name}" if code - 128 in set(signal.Signals) else f"exit code {code}"]
    with suppress(OSError):
        disk = os.statvfs(output.parent)
        if disk.f_bavail * disk.f_frsize < _FULL_BYTES:
            causes.append(f"no space left on the device of {output.parent}")
        said = output.read_text(encoding="utf-8", errors="replace").splitlines()
        causes += [line for line in said if line.strip() and not line.startswith("SLF4J")][-1:]
    return "; ".join(causes)


def _class_path(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _write_config(folder: Path, port: int, data_dir: Path | None = None) -> Path:
    """Write zoo.cfg. Short ticks allow session timeouts of one second; the command `conf` identifies the server."""
    settings = {
        "dataDir": data_dir if data_dir is not None else folder,
        "clientPort": port,
        "clientPortAddress": HOST,
        "tickTime": 500,
        "minSessionTimeout": 1000,
        "maxSessionTimeout": 60_000,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "conf,srvr,mntr,ruok,envi",
    }
    file = folder / "zoo.cfg"
    file.write_text("".join(f"{key}={_escaped(str(value))}\n" for key, value in settings.items()), encoding="ascii")
    return file


def _escaped(text: str) -> str:
    """The text for a Java properties file: ASCII, with numeric escapes for the backslash and all other characters."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    return "".join(chr(unit) if unit < 128 and unit != ord("\\") else f"\\u{unit:04x}" for unit in units)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
        return False


def _serves(port: int, folder: Path) -> bool:
    """Whether the server at `port` responds, and uses `folder`."""
    response = b""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(b"conf")
            while part := connection.recv(4096):
                response += part
    except OSError:
        return False
    return f"dataDir={folder}{os.sep}version-2\n".encode() in response


def _lock_folder(folder: Path) -> int:
    """Lock a data folder, because two servers would destroy it. The JVM inherits the file descriptor, so the lock is held until the JVM
    ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_file(folder / "lock", _LOCK_PATIENCE_S)  # if its owner was just killed, the old JVM may still be ending
    if lock is None:
        raise EmbeddedZooKeeperError(f"the folder {folder} is in use by another embedded ZooKeeper")
    return lock


def class_archive(java: Java, jars: Sequence[Path], flags: Sequence[str], folder: Path) -> ClassArchive:
    """The class archive for this Java build, class path and flags. Raises OSError if a jar does not exist."""
    stats = [(jar, jar.stat()) for jar in jars]
    return ClassArchive(java, "zookeeper", [*(f"{jar} {stat.st_size} {stat.st_mtime_ns}" for jar, stat in stats), *flags], folder)


def _build_class_archive(archive: ClassArchive, java: Java, jars: Sequence[Path], flags: Sequence[str]) -> None:
    def train(extra: list[str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="klamm-zookeeper-"))
        port = _free_port()
        command = ["nice", "-n", "19", str(java.launcher), *flags, *extra, "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"]
        process = OwnedProcess(
            [*command, "-cp", _class_path(jars), _MAIN, str(_write_config(folder, port))], folder / "zookeeper.out", folder
        )
        try:
            deadline = time.monotonic() + 60
            while not _serves(port, folder) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if process.poll() is None:
                _exercise(f"{HOST}:{port}")
                os.kill(process.pid, signal.SIGTERM)
                process.wait(120)
        except subprocess.TimeoutExpired:
            log.debug("The training run of the embedded ZooKeeper did not end")
        finally:
            process.stop()

    try:
        if archive.build(train):
            archive.remove_unused(_UNUSED_S)
        elif not archive.is_built():
            log.debug("No class archive for the embedded ZooKeeper: its training run wrote none")
    except OSError as problem:
        log.debug("No class archive for the embedded ZooKeeper: %s", problem)


def _exercise(address: str) -> None:
    """Send the requests that clients send, so that their classes are in the archive."""
    from kazoo.client import KazooClient  # only needed for the first start, and the import takes time

    client = KazooClient(address, timeout=30)
    client.start(60)
    try:
        client.create("/a/b", b"1", makepath=True)
        client.get("/a/b", watch=lambda _: None)
        client.set("/a/b", b"2", version=0)
        client.get_children("/a", watch=lambda _: None)
        client.exists("/c", watch=lambda _: None)
        client.create("/c", b"", ephemeral=True)
        transaction = client.transaction()
        transaction.check("/a", 0)
        transaction.set_data("/a/b", b"3")
        transaction.create("/a/c", b"")
        transaction.delete("/a/b")
        transaction.commit()
    finally:
        client.stop()
        client.close()
