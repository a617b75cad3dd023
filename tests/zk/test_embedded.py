"""The embedded ZooKeeper: serving, keeping data, dying with its owner, and what it says when it cannot run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.machine.java import Java, find_java
from klamm.tests.harness.waits import wait_for
from klamm.zk.embedded import owned_process
from klamm.zk.embedded import server as embedded
from klamm.zk.embedded.java import EmbeddedZooKeeperError
from klamm.zk.embedded.owned_process import OwnedProcess
from klamm.zk.embedded.server import EmbeddedZooKeeper, class_archive
from klamm.zk.session.session import ZkSession

SESSION_MS = 10_000
NAME = "dätä \\ 1"
OWNER = """
import json, sys
from klamm.zk.embedded.server import EmbeddedZooKeeper
server = EmbeddedZooKeeper()
address = server.start()
print(json.dumps([address, server.pid, str(server._process._trash)]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A server that keeps its data; stopped at the end."""
    one = EmbeddedZooKeeper(tmp_path / NAME)
    yield one
    one.stop()


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_serves_and_leaves_nothing() -> None:
    server = EmbeddedZooKeeper()
    assert not server.running
    address = server.start()
    assert server.start() == address
    assert server.pid is not None
    assert server._process is not None
    pid, folder = server.pid, server._process._trash
    assert folder is not None
    assert folder.is_dir()
    assert os.getsid(pid) != os.getsid(0), "a Ctrl-C in the terminal must not reach it"
    session = ZkSession(address, 1000)
    await session.start(SESSION_MS)
    assert await session.create("/a", b"1") == "/a"
    await session.stop()
    server.stop()
    assert not server.running
    assert not exists(pid)
    assert not folder.exists()
    server.stop()


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.slow), True], ids=["stopped", "killed"])
async def test_data_survive(server: EmbeddedZooKeeper, killed: bool) -> None:
    for round_ in range(3):
        session = ZkSession(server.start(), SESSION_MS)
        await session.start(SESSION_MS)
        for earlier in range(round_):
            node = await session.get(f"/round{earlier}")
            assert node is not None
            assert node.data == b"x"
        await session.create(f"/round{round_}", b"x")
        await session.stop()
        if killed:
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            wait_for(lambda: not server.running, "the server ends")
        server.stop()


def test_two_servers_never_share_a_folder(server: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_LOCK_PATIENCE_S", 0.1)
    server.start()
    other = EmbeddedZooKeeper(tmp_path / NAME)
    with pytest.raises(EmbeddedZooKeeperError, match="in use by another embedded ZooKeeper"):
        other.start()
    server.stop()
    other.start()
    other.stop()


@pytest.mark.parametrize("end", ["kill -9", "return"])
def test_it_dies_with_its_owner(end: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdin is not None
    try:
        _, pid, folder = json.loads(owner.stdout.readline())
        assert exists(pid)
        assert Path(folder).is_dir()
        if end == "kill -9":
            owner.kill()
        else:
            owner.stdin.close()
        owner.wait(20)
        wait_for(lambda: not exists(pid) and not Path(folder).exists(), "process and folder are gone")
    finally:
        owner.kill()
        owner.stdin.close()
        owner.stdout.close()
        owner.wait()


def test_it_inherits_no_sockets() -> None:
    """A listener of the owner is gone when the owner closes it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.set_inheritable(True)
        address = listener.getsockname()
        server = EmbeddedZooKeeper()
        server.start()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
    finally:
        server.stop()


def test_another_port_is_taken_when_somebody_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        taken = rival.getsockname()[1]
        free_port = embedded._free_port
        asked: list[None] = []

        def unlucky() -> int:
            asked.append(None)
            return taken if len(asked) == 1 else free_port()

        monkeypatch.setattr(embedded, "_free_port", unlucky)
        server = EmbeddedZooKeeper()
        assert server.start() != f"127.0.0.1:{taken}"
        assert len(asked) == 2
        server.stop()


def test_a_server_that_dies_at_its_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "log.1").write_bytes(b"no transactions")
    server = EmbeddedZooKeeper(tmp_path)
    with pytest.raises(EmbeddedZooKeeperError) as failed:
        server.start()
    assert "ended during its start: java.io." in str(failed.value)
    assert "\n" not in str(failed.value)
    assert not server.running


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedZooKeeperError, match="cannot start"):
        EmbeddedZooKeeper(tmp_path / "file" / "data").start()


# the class archive


def test_the_class_archive_is_built_once_in_the_background(tmp_path: Path) -> None:
    first = EmbeddedZooKeeper(archive_folder=tmp_path)
    first.start()
    assert first.wait_class_archive(120)
    first.stop()
    assert find_java().major >= 13
    (built,) = [file for file in tmp_path.iterdir() if file.suffix in (".aot", ".jsa")]
    assert not list(tmp_path.glob("*.new"))
    inode = built.stat().st_ino
    second = EmbeddedZooKeeper(archive_folder=tmp_path)
    second.start()
    assert second._builder is None
    second.stop()
    assert built.stat().st_ino == inode


@pytest.mark.slow
def test_a_damaged_class_archive_does_no_harm(tmp_path: Path) -> None:
    first = EmbeddedZooKeeper(archive_folder=tmp_path)
    first.start()
    first.wait_class_archive(120)
    first.stop()
    (built,) = [file for file in tmp_path.iterdir() if file.suffix in (".aot", ".jsa")]
    built.chmod(0o600)
    built.write_bytes(b"damaged")
    second = EmbeddedZooKeeper(archive_folder=tmp_path)
    second.start()
    second.stop()


def test_the_class_archive_belongs_to_java_jars_and_flags(tmp_path: Path) -> None:
    jar, java = tmp_path / "zookeeper-3.9.jar", Java(Path("/java"), "one", 25)
    jar.write_bytes(b"1")
    original = class_archive(java, [jar], ["-a"], tmp_path).file
    assert class_archive(java, [jar], ["-a"], tmp_path).file == original
    assert class_archive(java, [jar], ["-b"], tmp_path).file != original
    assert class_archive(java._replace(identity="two"), [jar], ["-a"], tmp_path).file != original
    jar.write_bytes(b"22")
    assert class_archive(java, [jar], ["-a"], tmp_path).file != original


def test_stop_wakes_whoever_waits_for_the_end_also_when_the_descriptor_is_used_again_at_once(tmp_path: Path) -> None:
    for _ in range(30):
        process = OwnedProcess(["sleep", "60"], tmp_path / "output")
        waiter = threading.Thread(target=process.wait, args=(None,), daemon=True)
        waiter.start()
        process.stop()
        again = os.pipe()
        waiter.join(20)
        assert not waiter.is_alive()
        for number in again:
            os.close(number)
        assert process.poll() == 128 + signal.SIGKILL


def test_only_its_owner_can_read_what_it_writes(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """SCRAM keys and ACLs are in its log."""
    server.start()
    made = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / NAME / "version-2").iterdir()}
    assert made and set(made.values()) == {0o600}
    assert (tmp_path / NAME / "zookeeper.out").stat().st_mode & 0o777 == 0o600


def test_a_process_that_cannot_be_started_is_one_error_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the system has no more processes: the shell ends before it has a child."""
    monkeypatch.setattr(owned_process, "_SHELL", "exit 1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(EmbeddedZooKeeperError, match="cannot be started in a process of its own"):
        EmbeddedZooKeeper().start()
    assert list(tmp_path.glob("klamm-zookeeper-*")) == []
