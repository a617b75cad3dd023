"""Value classes behave as frozen dataclasses of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar

import pytest

from klamm.seams.value_class import dataclass as value_class


class _Plain:
    """Two parts and what may be left out."""

    kind: ClassVar[str] = "plain"
    topic: str
    partition: int = -1
    replicas: list[int] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)

    def twice(self) -> int:
        return 2 * self.partition


class _Empty:
    """No field at all."""


class _OwnEquality:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.name.lower() == other.name.lower()


class _OwnText:
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


class _Checked:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("negative")


def _made(body: type, decorate: Any) -> Any:
    """The class of this body, decorated; a copy, since decorators change what they get."""
    names = {name: value for name, value in vars(body).items() if name not in ("__dict__", "__weakref__")}
    names["__annotations__"] = dict(body.__annotations__) if "__annotations__" in vars(body) else {}
    return decorate(frozen=True, slots=True)(type(body.__name__, (), names))


def _both(body: type) -> tuple[Any, Any]:
    return _made(body, value_class), _made(body, dataclasses.dataclass)


CASES = [
    (_Plain, ("t",), ("t", -1)),
    (_Plain, ("t", 1, [2], "s"), ("t", 1, [3], "s")),
    (_Plain, ("t", 1), ("t", 2)),
    (_Plain, ("t", 1, [], "a"), ("t", 1, [], "b")),
    (_Empty, (), ()),
    (_OwnEquality, ("A",), ("a",)),
    (_OwnText, ("A",), ("a",)),
    (_Checked, (1,), (2,)),
]


@pytest.mark.parametrize(("body", "one", "other"), CASES)
def test_a_value_is_equal_and_shown_as_a_frozen_dataclass(body: type, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    ours, standard = _both(body)
    assert (ours(*one) == ours(*other)) is (standard(*one) == standard(*other))
    assert ours(*one) == ours(*one)
    assert ours(*one) != standard(*one)
    assert repr(ours(*one)) == repr(standard(*one))
    assert dataclasses.asdict(ours(*one)) == dataclasses.asdict(standard(*one))
    assert [field.name for field in dataclasses.fields(ours)] == [field.name for field in dataclasses.fields(standard)]
    assert ours.__match_args__ == standard.__match_args__
    assert ours.__slots__ == standard.__slots__
    assert (ours.__hash__ is None) is (standard.__hash__ is None)
    if ours(*one) == ours(*other) and body is not _OwnEquality:
        assert hash(ours(*one)) == hash(ours(*other))


@pytest.mark.parametrize("body", [_Plain, _Empty, _OwnEquality, _OwnText, _Checked])
def test_the_arguments_are_those_of_a_frozen_dataclass(body: type) -> None:
    def parameters(cls: type) -> list[tuple[str, bool]]:
        return [(one.name, one.default is inspect.Parameter.empty) for one in inspect.signature(cls).parameters.values()]

    ours, standard = _both(body)
    assert parameters(ours) == parameters(standard)


def test_a_value_keeps_its_fields() -> None:
    made = _made(_Plain, value_class)("t", 1)
    for name in ("topic", "partition", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(made, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(made, name)
    assert not hasattr(made, "__dict__")
    assert made.twice() == 2
    assert made.kind == "plain"


def test_each_value_gets_a_default_of_its_own() -> None:
    cls = _made(_Plain, value_class)
    one, other = cls("t"), cls("t")
    one.replicas.append(1)
    assert other.replicas == []


def test_wrong_arguments_are_refused() -> None:
    cls = _made(_Plain, value_class)
    too_few: tuple[Any, ...] = ()
    for arguments in (too_few, ("t", 1, [], "", 5)):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            cls(*arguments)
    with pytest.raises(TypeError, match="unexpected keyword"):
        cls("t", unknown=1)


def test_post_init_is_called() -> None:
    with pytest.raises(ValueError, match="negative"):
        _made(_Checked, value_class)(-1)


@value_class(frozen=True, slots=True)
class _Base:
    name: str


@value_class(frozen=True, slots=True)
class _Derived(_Base):
    number: int = 3


def test_a_value_class_can_be_derived() -> None:
    made = _Derived("n")
    assert (made.name, made.number) == ("n", 3)
    assert made != _Base("n")
    assert vars(_Derived)["__slots__"] == ("number",)
    assert repr(made) == "_Derived(name='n', number=3)"


def test_copies_pickles_and_replacements_are_equal() -> None:
    made = _Derived("n", 4)
    assert copy.copy(made) == made
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert dataclasses.replace(made, number=5) == _Derived("n", 5)
    match made:
        case _Derived(name, number):
            assert (name, number) == ("n", 4)


def test_other_kinds_of_dataclasses_are_refused() -> None:
    with pytest.raises(TypeError, match="frozen"):
        value_class(frozen=False, slots=True)
    with pytest.raises(TypeError, match="frozen"):
        value_class(frozen=True, slots=False)


def _value_classes() -> Iterator[type]:
    for package in ("broker", "controller", "server", "protocol", "zk", "configs"):
        root = importlib.import_module(f"klamm.{package}")
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            module = importlib.import_module(found.name)
            yield from (
                value
                for value in vars(module).values()
                if inspect.isclass(value) and value.__module__ == found.name and dataclasses.is_dataclass(value)
            )


def test_no_frozen_dataclass_of_the_broker_is_made_by_the_standard_library() -> None:
    slow = {cls.__qualname__ for cls in _value_classes() if cls.__dataclass_params__.frozen and not hasattr(cls, "__post_init__")}  # type: ignore[attr-defined]
    assert slow == set()

