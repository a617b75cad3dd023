"""A journal in memory that takes events as the real writer does, and what must hold of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.controller.event_loop.loop import Controller
from klamm.journal.columns import EVENTS, WHERE
from klamm.server.journal.journaled_store import JournaledStore
from klamm.server.journal.journaling import ControllerJournal
from klamm.tests.journal.kinds import KINDS

_COLUMNS = frozenset(column.name for column in EVENTS) - {column.name for column in WHERE} - {"kind", "cause_seq", "input", "output"}
_BY_EVENTS = {"the controller_event", "the controller_event, or nothing", "the controller_event, of the controller's row"}


@dataclass(frozen=True)
class RecordedRow:
    """One row. The values of `columns` are not null."""

    seq: int
    kind: str
    columns: dict[str, Any]
    cause_seq: int | None
    input_json: str | None
    output_json: str | None

    @property
    def input(self) -> Any:
        return None if self.input_json is None else json.loads(self.input_json)

    @property
    def output(self) -> Any:
        return None if self.output_json is None else json.loads(self.output_json)

    def about(self, *names: str) -> tuple[Any, ...]:
        return tuple(self.columns.get(name) for name in names)


class RecordedJournal:
    """Rows of one broker; JSON is made when they are read, as late as a writer's thread may."""

    def __init__(self) -> None:
        self._raw: list[tuple[int, str, dict[str, Any], int | None, object, object]] = []
        self._next = 1

    def event(self, kind: str, *, cause_seq: int | None = None, input: object = None, output: object = None, **columns: Any) -> int:
        assert columns.keys() <= _COLUMNS, "a column that there is not"
        self._raw.append((self._next, kind, columns, cause_seq, input, output))
        self._next += 1
        return self._next - 1

    def frame(self) -> int:
        """A frame took the next number."""
        self._next += 1
        return self._next - 1

    @property
    def rows(self) -> list[RecordedRow]:
        return [
            RecordedRow(seq, kind, {name: value for name, value in fields.items() if value is not None}, cause, _text(before), _text(after))
            for seq, kind, fields, cause, before, after in self._raw
        ]

    def of(self, *kinds: str) -> list[RecordedRow]:
        """The rows of some kinds."""
        return [row for row in self.rows if row.kind in kinds]

    def check(self) -> list[RecordedRow]:
        """All rows; they are as `KINDS` says."""
        rows = self.rows
        kinds = {row.seq: row.kind for row in rows}
        for row in rows:
            kind = KINDS[row.kind]
            assert {name for name in kind.columns if not name.endswith("?")} <= row.columns.keys(), f"not filled: {row}"
            assert row.columns.keys() <= {name.rstrip("?") for name in kind.columns}, f"filled: {row}"
            assert (row.input is not None) == bool(kind.input), row
            assert (row.output is not None) == bool(kind.output), row
            if row.cause_seq is not None:
                assert row.cause_seq < row.seq and kind.cause, row
            if kind.cause in _BY_EVENTS and row.cause_seq is not None:
                assert kinds[row.cause_seq] == "controller_event", row
        return rows


def _text(value: object) -> str | None:
    return value() if callable(value) else value  # type: ignore[return-value]


def journaled(journals: dict[int, RecordedJournal], **more: Any) -> Callable[..., Controller]:
    """Makes controllers that keep a journal, one for each broker."""

    def make(broker_id: int, store: Any, *args: Any, **options: Any) -> Controller:
        observer = ControllerJournal(journals.setdefault(broker_id, RecordedJournal()), broker_id, "3.9", **more)
        return Controller(broker_id, JournaledStore(store, observer), *args, observer=observer, **options)

    return make
