"""Values in the JSON of znodes, checked as strictly as in Apache Kafka: no fractions, no numbers outside int32."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from typing import Any

from klamm.controller.values import StoreRefused
from klamm.protocol.nouns import Ints

INT16 = range(-(2**15), 2**15)
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)


class Unreadable(StoreRefused):
    """A znode has data that Apache Kafka cannot read either."""


def first_value(data: str | bytes) -> Any:
    """The first JSON value in a text. As in Kafka, what follows an object or an array is ignored, also if it is not UTF-8.

    Raises ValueError and RecursionError.
    """
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        if error.start == 0:
            raise
        return first_value(error.object[: error.start])
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        value = json.loads(error.doc[: error.pos])
        if not isinstance(value, (dict, list)):
            raise
        return value


def parse_json(data: bytes | None) -> Any:
    """The JSON value in a znode; None if the data is not JSON. As in Apache Kafka, what follows an object or an array is ignored."""
    if data is None:
        return None
    try:
        return first_value(data)
    except (ValueError, RecursionError):
        return None


def json_text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def int32(value: Any) -> int:
    """A number from JSON. Raises ValueError for values that Apache Kafka refuses: fractions (also 1.0), strings, booleans, larger numbers.
    """
    if type(value) is not int or value not in INT32:
        raise ValueError(f"{value!r} is not an int32")
    return value


_DECIMAL = re.compile(r"[-+]?[0-9]{1,19}")


def parse_int(text: str, within: range = INT32) -> int:
    """The number of a decimal string, from the name or the data of a znode. Raises ValueError."""
    if not isinstance(text, str) or _DECIMAL.fullmatch(text) is None or int(text) not in within:
        raise ValueError(f"{text!r} is not an int{within.stop.bit_length()}")
    return int(text)


def int_tuple(values: Iterable[Any]) -> Ints:
    return tuple(map(int32, values))


def ints_text(values: Ints) -> str:
    return f"[{','.join(map(str, values))}]"


def decode_uuid(text: str) -> bytes:
    value = urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"{text!r} is not an id")
    return value
