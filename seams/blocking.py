"""Classes for threads that are made from classes for asyncio: the same methods, with the same arguments, results and errors; they block.

`class AdminClient(Blocking, of=AsyncAdminClient)` has the public methods and properties of `AsyncAdminClient`, with their signatures and
docstrings, and `with` where that has `async with`. What the class or a base of it defines stays as it is. Each object has an object of the
other class, `_inner`, and waits with `_result_of` for what that does.

Editors and type checkers read the signatures in the stub beside the module, which tests/blocking_stubs.py writes.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")

SPECIAL = {"__init__": "__init__", "__repr__": "__repr__", "__aenter__": "__enter__", "__aexit__": "__exit__"}
"""Special methods of the asyncio class → those of the class for threads."""


class Blocking:
    """A class for threads with the methods of an asyncio class."""

    blocking_of: ClassVar[type]
    """The asyncio class."""
    blocking_names: ClassVar[Mapping[str, str]]
    """Names in signatures and docstrings of the asyncio class → the names that stand there instead."""
    blocking_members: ClassVar[Mapping[str, str]]
    """The names of its members that are made from the asyncio class: the name there → here."""
    _inner: Any

    def __init_subclass__(cls, *, of: type | None = None, inner: type | None = None, names: Mapping[str, str] | None = None) -> None:
        """`inner` is the class of `_inner`, a subclass of `of`. `names` are other classes of asyncio that methods return, with the classes
        for threads that `_result_of` makes of them. Without `of` it is a subclass of a class for threads.
        """
        super().__init_subclass__()
        if of is None:
            return
        cls.blocking_of, cls.blocking_names = of, {of.__name__: cls.__name__, **(names or {})}
        own = frozenset(name for base in cls.__mro__[: cls.__mro__.index(Blocking)] for name in vars(base))
        inherited = [item for base in reversed(of.__mro__[:-1]) for item in vars(base).items()]
        members = {name: member for name, member in inherited if name in SPECIAL or not name.startswith("_")}
        cls.blocking_members = {name: made for name in members if (made := SPECIAL.get(name, name)) not in own}
        for inner_name, name in cls.blocking_members.items():
            setattr(cls, name, _blocking(cls, inner or of, name, inner_name, members[inner_name]))

    def _result_of(self, call: Callable[[], Any]) -> Any:
        """What this call of `_inner` returns or, if that is awaitable, what comes of it. Blocks until then."""
        raise NotImplementedError


def blocking_text(cls: type[Blocking], text: str) -> str:
    """A piece of a signature or docstring of the asyncio class, as the class for threads has it."""
    for inner, outer in cls.blocking_names.items():
        text = re.sub(rf"\b{inner}\b", outer, text)
    return text.replace("async with", "with")


def result_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for an event loop. Raises what it raises, RuntimeError if it waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine} waits for an event loop")


def _blocking(cls: type[Blocking], inner: type, name: str, inner_name: str, member: Any) -> Any:
    """A member that does what this one of the asyncio class does, and blocks."""
    if isinstance(member, property):
        return property(lambda self: self._result_of(lambda: getattr(self._inner, name)), doc=blocking_text(cls, member.__doc__ or ""))
    if not inspect.isfunction(member):
        return member

    def begin(self: Blocking, *arguments: Any, **named: Any) -> None:
        self._inner = inner(*arguments, **named)

    def enter(self: Blocking) -> Blocking:
        self._result_of(self._inner.__aenter__)
        return self

    def run(self: Blocking, *arguments: Any, **named: Any) -> Any:
        return self._result_of(lambda: getattr(self._inner, inner_name)(*arguments, **named))

    functions: dict[str, Callable[..., Any]] = {"__init__": begin, "__enter__": enter}
    made = functools.update_wrapper(functions.get(name, run), member)
    made.__name__, made.__qualname__, made.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    made.__doc__ = member.__doc__ and blocking_text(cls, member.__doc__)
    result = member.__annotations__.get("return")
    if isinstance(result, str) and blocking_text(cls, result) != result:
        made.__signature__ = inspect.signature(member).replace(return_annotation=blocking_text(cls, result))  # type: ignore[attr-defined]
    return made
