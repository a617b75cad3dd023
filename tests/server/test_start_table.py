"""Each step of a broker's start fails in turn, on a real ZooKeeper: nothing is left, and the same configuration starts afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.server import broker_server
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.lifecycle.start_table import START, RunningBroker
from klamm.server.lifecycle.steps import Action, Interrupted, Step, Steps
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.waits import eventually
from klamm.tests.server import brokers
from klamm.tests.server.brokers import knows
from klamm.zk.session.session import ZkSession

NAMES = [step.name for step in START]


class Refused(Exception):
    """A step fails in a way that nobody expects."""


async def _refuse(broker: RunningBroker) -> None:
    raise Refused


async def _wait_for_ever(broker: RunningBroker) -> None:
    await asyncio.Event().wait()


def with_step(name: str, then: Action[RunningBroker], *, before: bool = False) -> tuple[Step[RunningBroker], ...]:
    """The table of a broker's start in which this step does `then` after what it does, or in its place."""

    def changed(step: Step[RunningBroker]) -> Step[RunningBroker]:
        async def start(broker: RunningBroker) -> None:
            for action in (None if before else step.start, then):
                waiting = None if action is None else action(broker)
                if waiting is not None:
                    await waiting

        return Step(step.name, start, step.undo) if step.name == name else step

    return tuple(changed(step) for step in START)


class Machine:
    """What one broker may leave: its configuration names a port, two log directories and a journal."""

    def __init__(self, folder: Path, address: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.address = address
        self.made: list[BrokerServer] = []
        self._before = self._working()

    def broker(self, **properties: object) -> BrokerServer:
        settings: dict[str, object] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log_dirs": f"{self.folder}/one,{self.folder}/two",
            "klamm_journal_dir": self.folder / "journal",
        }
        self.made.append(brokers.node(self.address, 5, **(settings | properties)))  # type: ignore[arg-type]
        return self.made[-1]

    def _working(self) -> set[object]:
        """Tasks but the one that asks, and threads but those that the event loop keeps for all of its owners."""
        threads = {thread for thread in threading.enumerate() if not thread.name.startswith(("asyncio_", "uvloop_"))}
        return {*asyncio.all_tasks(), *threads} - {asyncio.current_task()}

    def _files(self) -> list[str]:
        """The open files below the folder. A lock of a folder lasts as long as its file is open."""
        links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        return [link for link in map(_target, links) if link.startswith(str(self.folder))]

    async def is_as_before(self) -> None:
        """Wait until nothing of the brokers is left: no task, thread, open file (so no lock), listening socket or ephemeral znode."""
        await eventually(lambda: not (self._working() - self._before), "tasks and threads have ended")
        assert self._files() == []
        socket.create_server(("127.0.0.1", self.port)).close()
        zk = ZkSession(self.address, 6000)
        await zk.start(10_000)
        try:
            assert await zk.children("/brokers/ids") in ([], None)
            assert await zk.get("/controller") is None
        finally:
            await zk.stop()


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


@pytest.fixture
async def machine(zookeeper: str, chroot: str, tmp_path: Path) -> Machine:
    return Machine(tmp_path, zookeeper + chroot)


async def starts(machine: Machine, **properties: object) -> None:
    """The same configuration starts and stops, and leaves nothing either."""
    broker = machine.broker(**properties)
    await broker.start()
    await knows(broker, 5)
    await broker.stop()
    await machine.is_as_before()


@pytest.mark.parametrize("before", [True, False], ids=["in its place", "after it"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_step_that_fails_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, before: bool) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(broker_server, "START", with_step(name, _refuse, before=before))
        broker = machine.broker()
        with pytest.raises(Refused):
            await broker.start()
    await machine.is_as_before()
    await starts(machine)


@pytest.mark.parametrize("name", NAMES)
async def test_a_start_that_is_cancelled_at_a_step_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    reached = asyncio.Event()

    async def wait(broker: RunningBroker) -> None:
        reached.set()
        await _wait_for_ever(broker)

    monkeypatch.setattr(broker_server, "START", with_step(name, wait))
    starting = asyncio.ensure_future(machine.broker().start())
    await reached.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await machine.is_as_before()


@pytest.mark.parametrize("name", NAMES)
async def test_a_broker_that_is_closed_at_a_step_of_its_start_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def close(broker: RunningBroker) -> None:
        await machine.made[-1].close()

    monkeypatch.setattr(broker_server, "START", with_step(name, close))
    with pytest.raises(StartFailed, match=r"^the broker was closed while it started$"):
        await machine.broker().start()
    await machine.is_as_before()


@pytest.mark.parametrize("name", NAMES)
async def test_a_step_that_fails_leaves_nothing_of_a_broker_that_registers_with_the_controller(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    properties = {"registerbroker_enable": "true", "klamm_broker_registration": "controller"}
    monkeypatch.setattr(broker_server, "START", with_step(name, _refuse))
    with pytest.raises(Refused):
        await machine.broker(**properties).start()
    await machine.is_as_before()


async def test_what_a_halted_broker_was_starting_ends_with_its_reason(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_server, "START", with_step("register", lambda broker: broker.halt("no disk is left")))
    with pytest.raises(StartFailed, match=r"^no disk is left$"):
        await machine.broker().start()


# --- the steps themselves


def note(notes: list[str], what: str) -> Callable[[list[str]], None]:
    return lambda _: notes.append(what)


async def test_steps_are_taken_in_order_and_undone_in_reverse() -> None:
    notes: list[str] = []
    steps = Steps([Step(name, note(notes, name), note(notes, f"no {name}")) for name in ("a", "b")], notes)
    await steps.take()
    await steps.undo()
    await steps.undo()
    assert notes == ["a", "b", "no b", "no a"]


async def test_a_step_whose_undo_fails_does_not_keep_the_others() -> None:
    notes: list[str] = []

    def fail(_: list[str]) -> None:
        raise Refused

    steps = Steps([Step("a", None, note(notes, "no a")), Step("b", None, fail)], notes)
    await steps.take()
    with pytest.raises(Refused):
        await steps.undo()
    assert notes == ["no a"]


async def test_what_a_step_does_after_the_others_were_undone_is_undone_too() -> None:
    notes: list[str] = []
    go_on = asyncio.Event()

    async def slow(_: list[str]) -> None:
        await go_on.wait()
        notes.append("a")

    steps = Steps([Step("a", slow, note(notes, "no a")), Step("b", note(notes, "b"))], notes)
    taking = asyncio.ensure_future(steps.take())
    await asyncio.sleep(0)
    await steps.undo()
    go_on.set()
    with pytest.raises(Interrupted):
        await taking
    assert notes == ["no a", "a", "no a"]
