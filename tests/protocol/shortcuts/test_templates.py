"""Numbers are found in an encoded message by what they change in it."""

from __future__ import annotations

import pytest

from klamm.protocol.shortcuts.templates import Template, template


def number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def test_each_number_has_its_place_whatever_the_other_bytes_are() -> None:
    made = template(lambda a, b: b"\xff" * 9 + number(b) + bytes(9) + number(a) + b"\x5a\xa5", 2)
    assert made == Template(b"\xff" * 9 + bytes(25) + b"\x5a\xa5", (26, 9))


def test_a_number_that_is_not_written_has_no_place() -> None:
    assert template(lambda a, b: b"x" + number(b), 2).positions == (None, 1)


def test_a_number_in_two_places_or_of_another_width_is_refused() -> None:
    for encode in (lambda a: number(a) * 2, lambda a: number(a) + b"x" + number(a), lambda a: a.to_bytes(4, "big", signed=True)):
        with pytest.raises(ValueError, match="a number is at"):
            template(encode, 1)
