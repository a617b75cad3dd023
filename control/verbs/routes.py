"""The routes of the control API: the table of verbs (`table.py`) with the methods of `Control`. The server answers by them, `openapi.py`
describes them, and tests compare `klamm control` and `klamm.testing` with them.

The verb's signature has what the table has not: the type of the `body` if it has one, and query parameters with their types. It returns a
value for JSON.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import Any, Concatenate, get_args

from klamm.control.verbs.model import Control
from klamm.control.verbs.table import TABLE, Place

Verb = Callable[Concatenate[Any, ...], Awaitable[Any]]
NUMBERS = frozenset(("number", "broker"))
"""Names in paths that are numbers; others are texts."""


class Route:
    """One route."""

    def __init__(self, place: Place, verb: Verb) -> None:
        self.method, self.path, self.summary, self.processes, _ = place
        self.act = verb
        """(control, names of the path and query parameters by name, body)"""
        self.names = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        parameters = inspect.signature(verb, eval_str=True).parameters
        self.body: type[Any] | None = parameters["body"].annotation if "body" in parameters else None
        self.query: Mapping[str, type[Any]] = {
            name: _type_of(each.annotation) for name, each in parameters.items() if name not in ("self", "body", *self.names)
        }


def _type_of(annotation: Any) -> type[Any]:
    """The type without None."""
    found: type[Any] = get_args(annotation)[0] if isinstance(annotation, UnionType) else annotation
    return found



ROUTES = tuple(Route(place, getattr(Control, verb)) for verb, place in TABLE.items())
