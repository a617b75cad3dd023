"""JSON as Kafka reads it, in files of tools and in znodes."""

from __future__ import annotations

import json
from typing import Any


def first_value(data: str | bytes) -> Any:
    """The first JSON value in a text. As in Kafka, what follows an object or an array is ignored. Raises ValueError and RecursionError."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        value = json.loads(error.doc[: error.pos])
        if not isinstance(value, (dict, list)):
            raise
        return value
