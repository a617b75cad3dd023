"""The methods of `BrokerControl` as routes below `/own`, which the owner of a process calls. Their signatures say what goes over HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from klamm.control.bodies import Body
from klamm.control.broker_control import BrokerControl
from klamm.control.verbs.routes import Route
from klamm.control.verbs.table import Place


class OwnCall(NamedTuple):
    """A method that is called over HTTP: the type of its arguments as a body, and that of its result."""

    path: str
    arguments: type[Any]
    result: Any


@cache
def own_call(method: Callable[..., Any]) -> OwnCall:
    """How this method of `BrokerControl` is called."""
    hints = get_type_hints(method)
    fields = [
        (name, hints[name]) if each.default is each.empty else (name, hints[name], each.default)
        for name, each in inspect.signature(method).parameters.items() if name != "self"
    ]
    name = method.__name__
    return OwnCall(f"/own/{name}", msgspec.defstruct(name, fields, bases=(Body,), frozen=True), hints["return"])


def own_routes() -> list[Route]:
    """The routes of all coroutines of `BrokerControl`."""
    methods = inspect.getmembers(BrokerControl, inspect.iscoroutinefunction)
    return [_route(method) for name, method in methods if not name.startswith("_")]


def _route(method: Callable[..., Any]) -> Route:
    described = own_call(method)

    async def act(served: Any, body: Any) -> Any:
        result = await method(served.control, **{name: getattr(body, name) for name in described.arguments.__struct_fields__})
        return msgspec.to_builtins(result, str_keys=True)

    act.__annotations__ = {"body": described.arguments}
    return Route(Place("POST", described.path, (method.__doc__ or "").strip()), act)
