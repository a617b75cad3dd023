"""An exception in the log of the brokers is found with its record."""

from __future__ import annotations

from pathlib import Path

from klamm.chaos.broker_log import exceptions, tracebacks

RECORD = "2026-11-26 02:05:22,156 ERROR   klamm.control.verbs.http: a request failed"
LINES = [
    "2026-11-26 02:05:22,154 INFO    klamm.controller: broker 2 resigns (epoch 2)",
    RECORD,
    "  Traceback (most recent call last):",
    '    File "session.py", line 200, in call',
    "      return await send(request)",
    "  ConnectionLost: ZooKeeper error -4",
    "  ",
    "  During handling of the above exception, another exception occurred:",
    "  ",
    "  Traceback (most recent call last):",
    '    File "http.py", line 106, in _guard',
    "  StoreLost: the session is over",
    "2026-11-26 02:05:22,158 WARNING klamm.server.configs: cannot watch config changes",
]


def test_a_traceback_is_named_by_its_record_and_its_last_exception() -> None:
    assert list(tracebacks(LINES)) == [f"{RECORD}: StoreLost: the session is over"]


def test_a_traceback_at_the_end_is_found() -> None:
    assert list(tracebacks(LINES[:-1])) == [f"{RECORD}: StoreLost: the session is over"]


def test_a_log_without_tracebacks_has_none(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    assert exceptions(log) == []
    log.write_text("\n".join((LINES[0], LINES[-1])))
    assert exceptions(log) == []
    log.write_text("\n".join(LINES))
    assert len(exceptions(log)) == 1
