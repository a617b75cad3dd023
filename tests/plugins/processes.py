"""Runs the tests of a run in several processes: a plugin of pytest, `--processes N`.

The tests are collected once. Then this process forks, and each of its copies has all modules and tests already: with workers that collect
for themselves, each would take 14 s of CPU time before its first test. Each process begins with a part of the list. One that is done takes
half of what another one has left, so that neighbours, which share fixtures, mostly stay together. A process always knows its next tests:
it has to know what the following test needs before it removes fixtures.

A process that ends early fails the test that it ran, and a new one takes over the rest of its part.
"""

from __future__ import annotations

import os
import random
import traceback
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

AHEAD = 3
"""Tests that a process has been told and not finished, so that it does not wait for this one."""


class Parts:
    """Which tests, by their place in the list, are still to be given to which process."""

    def __init__(self, tests: int, processes: int) -> None:
        self._parts = [deque(range(tests * number // processes, tests * (number + 1) // processes)) for number in range(processes)]

    def take(self, number: int) -> int | None:
        """The next test of a process; None if no test is left."""
        own = self._parts[number]
        if not own:
            largest = max(self._parts, key=len)
            own.extendleft(largest.pop() for _ in range((len(largest) + 1) // 2))
        return own.popleft() if own else None

    def give_back(self, number: int, tests: Sequence[int]) -> None:
        self._parts[number].extendleft(reversed(tests))


class ForkedProcess:
    """One of the processes, and the tests that it was told. A test of None says that there are no more."""

    def __init__(self, session: pytest.Session, number: int, others: Iterable[Connection]) -> None:
        """`others` are the connections to the other processes: this one does not keep them open when the first process is killed."""
        self.number = number
        self.told: deque[int] = deque()
        self.is_told_all = False
        self.connection, other = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for each in (self.connection, *others):
                each.close()
            _run_and_exit(session, number, other)
        other.close()

    def tell(self, test: int | None) -> None:
        if test is None:
            self.is_told_all = True
        else:
            self.told.append(test)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, which its end of the connection says too
            self.connection.send(test)


class Processes:
    """Runs the collected tests."""

    def __init__(self, count: int) -> None:
        self.count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        count = min(self.count, len(session.items))
        if count < 2 or session.config.option.collectonly or session.testsfailed:
            return None
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # the processes have folders in this one
        parts = Parts(len(session.items), count)
        running: dict[Connection, ForkedProcess] = {}
        try:
            for number in range(count):
                self._start(session, number, parts, running)
            while running:
                for connection in wait(list(running)):
                    assert isinstance(connection, Connection)
                    self._receive(session, running[connection], parts, running)
        finally:
            for process in running.values():
                process.connection.close()
                os.waitpid(process.pid, 0)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _start(self, session: pytest.Session, number: int, parts: Parts, running: dict[Connection, ForkedProcess]) -> None:
        process = ForkedProcess(session, number, running)
        running[process.connection] = process
        for _ in range(AHEAD):
            self._tell(session, process, parts)

    def _tell(self, session: pytest.Session, process: ForkedProcess, parts: Parts) -> None:
        if not process.is_told_all:
            process.tell(None if session.shouldfail or session.shouldstop else parts.take(process.number))

    def _receive(self, session: pytest.Session, process: ForkedProcess, parts: Parts, running: dict[Connection, ForkedProcess]) -> None:
        config = session.config
        try:
            kind, content = process.connection.recv()
        except (EOFError, ConnectionResetError):
            del running[process.connection]
            process.connection.close()
            _, status = os.waitpid(process.pid, 0)
            if process.told:
                item = session.items[process.told.popleft()]
                _report(config, item, [_crash(item, os.waitstatus_to_exitcode(status))])
                parts.give_back(process.number, process.told)
                self._start(session, process.number, parts, running)
            return
        match kind:
            case "reports":
                item = session.items[process.told.popleft()]
                self._tell(session, process, parts)
                _report(config, item, [config.hook.pytest_report_from_serializable(config=config, data=data) for data in content])
            case "warning":
                config.hook.pytest_warning_recorded.call_historic(kwargs=content)
            case "fault":
                raise RuntimeError(content)


def _report(config: pytest.Config, item: pytest.Item, reports: list[pytest.TestReport]) -> None:
    config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        config.hook.pytest_runtest_logreport(report=report)
    config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _crash(item: pytest.Item, code: int) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", f"the process of this test ended with {code}", "call")


class Worker:
    """Runs tests in a forked process, and sends their reports."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        to_data = item.config.hook.pytest_report_to_serializable
        self.connection.send(("reports", [to_data(config=item.config, report=report) for report in reports]))
        return True

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any) -> None:
        """Sent as text: not every warning can be pickled."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        message = warnings.WarningMessage(Warning(text), Warning, warning_message.filename, warning_message.lineno)
        content = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        self.connection.send(("warning", content))


def _run_and_exit(session: pytest.Session, number: int, connection: Connection) -> None:
    """What a forked process does. Whatever happens, it does not go on with the work of the first process."""
    try:
        _run(session, number, connection)
    except (EOFError, KeyboardInterrupt):
        pass  # the first process has ended, or everything is to end
    except BaseException:  # noqa: BLE001 - pytest.exit and internal errors of pytest too; the first process raises it
        with suppress(OSError):
            connection.send(("fault", traceback.format_exc()))
    finally:
        os._exit(0)


def _run(session: pytest.Session, number: int, connection: Connection) -> None:
    config = session.config
    manager = config.pluginmanager
    manager.unregister(name="terminalreporter")  # the first process writes
    manager.register(Worker(connection), "worker")
    capture = manager.getplugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()
    with open(os.devnull, "w") as nowhere:  # what is written between two tests
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    capture.start_global_capturing()  # into files of its own
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)
    random.seed()
    try:
        test = connection.recv()
        while test is not None:
            following = connection.recv()
            nextitem = None if following is None else session.items[following]
            config.hook.pytest_runtest_protocol(item=session.items[test], nextitem=nextitem)
            test = following
    finally:
        session._setupstate.teardown_exact(None)
        config.hook.pytest_unconfigure(config=config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in this many processes")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Processes(config.getoption("--processes")), "processes")
