"""Classes for threads that are made from classes for asyncio."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Self

import pytest

from klamm.admin import AdminClient, AsyncAdminClient
from klamm.seams.blocking import Blocking, result_at_once
from klamm.tests import blocking_stubs


class Tap:
    """A tap for asyncio; `async with` closes the Tap."""

    def __init__(self, litres: int, *, is_open: bool = False) -> None:
        self.litres = litres
        self._is_open = is_open

    @property
    def is_open(self) -> bool:
        """Whether this Tap is open."""
        return self._is_open

    async def turn(self, times: int = 1) -> Tap:
        """Open it. Returns the Tap."""
        await asyncio.sleep(0)
        self._is_open = True
        self.litres -= times
        return self

    open_again = turn

    def broken(self) -> None:
        """Raise."""
        raise ValueError("broken")

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False

    async def left(self) -> int:
        return self.litres


class BlockingTap(Blocking, of=Tap):
    """A tap for threads."""

    def _result_of(self, call: Callable[[], Any]) -> Any:
        async def work() -> Any:
            result = call()
            return await result if inspect.isawaitable(result) else result

        result = asyncio.run(work())
        return self if isinstance(result, Tap) else result

    def left(self) -> str:
        return f"{self._inner.litres} l"


BLOCKING_TAP: Any = BlockingTap
"""It has no stub."""


def test_methods_and_properties_do_what_the_asyncio_class_does_and_block() -> None:
    tap = BLOCKING_TAP(5)
    assert not tap.is_open
    assert tap.turn(times=2) is tap
    assert tap.open_again() is tap
    assert tap.is_open
    assert tap._inner.litres == 2


def test_a_context_is_entered_and_left_in_the_thread() -> None:
    tap = BLOCKING_TAP(5)
    with tap as entered:
        assert entered is tap
        assert tap.is_open
    assert not tap.is_open


def test_what_a_class_defines_itself_stays() -> None:
    tap = BLOCKING_TAP(5)
    assert tap.left() == "5 l"


def test_a_subclass_has_the_methods_of_its_class_and_its_own() -> None:
    class Leaking(BLOCKING_TAP):
        def left(self) -> str:
            return "nothing"

    tap = Leaking(5)
    assert tap.turn() is tap
    assert tap.left() == "nothing"


def test_an_error_arrives_as_it_is() -> None:
    tap = BLOCKING_TAP(5)
    with pytest.raises(ValueError, match="broken"):
        tap.broken()


def test_signatures_and_docstrings_are_those_of_the_asyncio_class_with_the_names_of_the_class_for_threads() -> None:
    turned = vars(BlockingTap)["turn"]
    assert str(inspect.signature(turned)) == "(self, times: 'int' = 1) -> 'BlockingTap'"
    assert turned.__doc__ == "Open it. Returns the BlockingTap."
    assert turned.__qualname__ == "BlockingTap.turn"
    assert vars(BlockingTap)["is_open"].__doc__ == "Whether this BlockingTap is open."
    assert str(inspect.signature(BlockingTap)) == "(litres: 'int', *, is_open: 'bool' = False) -> 'None'"


def test_a_coroutine_that_waits_has_no_result_at_once() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for an event loop"):
        result_at_once(waits())


def test_the_stubs_of_blocking_classes_are_current() -> None:
    for module in blocking_stubs.MODULES:
        assert blocking_stubs.path_of(module).read_text() == blocking_stubs.text(module), "write them: make pages"


def test_a_stub_has_each_public_method_of_the_asyncio_class_with_its_docstring() -> None:
    tree = ast.parse(blocking_stubs.path_of("klamm.admin.client").read_text())
    stub = {node.name: ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name, member in inspect.getmembers(AsyncAdminClient, inspect.isfunction):
        if not name.startswith("_") and name != "alter_interbroker_throttled_rate":
            assert stub[name] == inspect.getdoc(member) == inspect.getdoc(getattr(AdminClient, name))
