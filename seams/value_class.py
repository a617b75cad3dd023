"""`@dataclass(frozen=True, slots=True)`, made in a quarter of the time.

Klamm has about 150 frozen dataclasses: events, phases, steps, rows of tables. The decorator of the standard library writes
the source of six methods for each of them and compiles each by itself, about 0.5 ms a class; together that was a fifth of the CPU
of a broker's start. Here only `__init__` is written and compiled, as its signature is the class's own. The other methods are the
same functions for all classes, over a tuple of the fields. What is less common (`__post_init__`, keyword-only fields,
`init=False`) is left to the standard library.

For a type checker this is the decorator of the standard library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """Like `dataclasses.dataclass(frozen=True, slots=True)`; use that one for other kinds of dataclasses.

        Instances are compared, hashed, printed, copied and pickled as with the standard library. `dataclasses.replace`, `fields`,
        `asdict` and class patterns of `match` work. There are two differences: `__init__` has no annotations at run time, and
        classes that are derived without the decorator are frozen too.
        """
        if not (frozen and slots):
            raise TypeError("value classes are frozen and have slots; for other classes use dataclasses.dataclass")
        return _value_class


def _value_class(cls: type) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise the standard library inspects the signature to write one
    fields = dataclasses.fields(dataclasses.dataclass(init=False, repr=False, eq=False)(cls))
    if not _is_plain(cls, fields):
        return dataclasses.dataclass(frozen=True, slots=True)(cls)
    made = _with_slots(cls, [field.name for field in fields])
    own = made.__dict__
    methods = _methods(fields)
    for name, method in methods.items():
        if own.get(name) is None:  # a class with an `__eq__` of its own has None for `__hash__`
            setattr(made, name, method)
    if "__init__" not in own:
        made.__init__ = _init(made, fields)  # type: ignore[misc]
    return made


def _is_plain(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> bool:
    return not hasattr(cls, "__post_init__") and all(field.init and not field.kw_only and field.hash is None for field in fields)


def _with_slots(cls: type, names: list[str]) -> type:
    """Create the class again, with slots for its own fields, because an existing class cannot get slots."""
    inherited = {name for base in cls.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
    namespace = {name: value for name, value in cls.__dict__.items() if name not in names and name not in ("__dict__", "__weakref__")}
    namespace["__slots__"] = tuple(name for name in names if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    """`__init__`, which puts each argument into its slot."""
    names: dict[str, Any] = {"_missing": dataclasses.MISSING}
    parameters, lines = ["self"], []
    for field in fields:
        name, value = field.name, field.name
        names[f"_set_{name}"] = getattr(cls, name).__set__
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        else:
            parameters.append(name)
        lines.append(f"    _set_{name}(self, {value})")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or "    pass"), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


def _methods(fields: tuple[dataclasses.Field[Any], ...]) -> dict[str, Any]:
    """The methods for equality, hash and repr over the fields that take part, and those that refuse changes."""
    compared = _getter([field.name for field in fields if field.compare])
    shown = [field.name for field in fields if field.repr]

    def equal(self: Any, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(compared(self))

    def text(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in shown])})"

    return {
        "__eq__": equal,
        "__hash__": hashed,
        "__repr__": text,
        "__setattr__": _refuse_to_assign,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _refuse_to_assign(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
