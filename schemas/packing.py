"""Kafka's message definitions as the files of kafka-python have them, and packed into one file.

A wheel has the packed file, `PACKED`, in this package: its build makes it (`distributions/definitions.py`). So does the code that Spark's
workers get. A checkout has none. The build loads this module by its path, so it imports the standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

PACKED = "kafka_messages.txt"
RESOURCES = ("protocol", "schemas", "resources")
"""The folder of the definitions, below that of the package `kafka`."""
_NOTICE = (
    "# Message definitions of Apache Kafka, Copyright The Apache Software Foundation, Apache License 2.0. Taken from kafka-python "
    "{version} and changed: comments and descriptions are removed."
)


def without_comments(text: str) -> str:
    """The text of a file of Kafka as JSON."""
    return re.sub(r"(?m)^\s*//.*$", "", text)


def packed(folder: Path, version: str, but: Container[str]) -> str:
    """The definitions of the folder but those of these messages: a notice, then a line for each, its name, a space and its JSON.

    `version` is the one of kafka-python, for the notice. Raises OSError, ValueError.
    """
    definitions = {
        path.stem: _without_descriptions(json.loads(without_comments(path.read_text(encoding="utf-8"))))
        for path in sorted(folder.glob("*.json"))
        if path.stem not in but
    }
    lines = [f"{name} {json.dumps(definition, separators=(',', ':'))}" for name, definition in definitions.items()]
    return "\n".join([_NOTICE.format(version=version), *lines, ""])


def unpacked(text: str) -> dict[str, str]:
    """Name of a message → its JSON."""
    return dict(line.split(" ", 1) for line in text.splitlines()[1:])


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_descriptions(each) for key, each in value.items() if key != "about"}
    if isinstance(value, list):
        return [_without_descriptions(each) for each in value]
    return value
