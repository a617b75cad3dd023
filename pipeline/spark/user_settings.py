"""Settings of Spark that a user passes, with `--conf` and `--properties-file`, as to spark-submit.

A value that Spark takes for a secret is never on a command line, where every user of the machine would see it, and in no message: it goes
to the JVM in a file that only this user can read. Spark itself leaves these values out of its pages and its event log.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm.pipeline.spark.settings import JAVA_OPTIONS, PY_FILES

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Keys whose values Spark hides: the default of its redaction."""
HIDDEN = "***"
OPEN = {"hadoop", "kubernetes", "yarn", "executorEnv", "metrics", "ssl"}
"""Second words of keys that have any further words: Spark passes them on, or knows their beginnings only."""
OPEN_SQL = {"catalog"}
TABLES = (
    *(f"org.apache.spark.internal.config.{name}" for name in ("Deploy$", "History$", "Kryo$", "Network$", "Python$", "Status$", "UI$")),
    *(f"org.apache.spark.internal.config.{name}" for name in ("Streaming$", "Worker$", "package$")),
    "org.apache.spark.sql.internal.SQLConf$",
    "org.apache.spark.sql.internal.StaticSQLConf$",
)
"""Spark's classes with settings, which are known once their class is loaded."""


JOINED = {JAVA_OPTIONS: " ", PY_FILES: ","}
"""Settings that are lists: what a user passes is added to what Klamm needs. In all others the user's value replaces Klamm's."""


def merged(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session."""
    joined = {key: f"{ours[key]}{separator}{theirs[key]}" for key, separator in JOINED.items() if key in theirs and ours.get(key)}
    return {**ours, **theirs, **joined}


def is_secret(key: str) -> bool:
    """Whether the value of a setting must not be seen."""
    return SECRET.search(key) is not None


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """A text in which no secret value of these settings occurs."""
    for key, value in settings.items():
        if value and is_secret(key):
            text = text.replace(value, HIDDEN)
    return text


def without_token(remote: str) -> str:
    """The address of a Spark Connect server, to be shown: its parameters may have a token (`sc://HOST/;token=…`)."""
    return re.sub(r"(;token=)[^;]*", rf"\1{HIDDEN}", remote, flags=re.IGNORECASE)


def write_secrets(settings: Mapping[str, str], path: Path) -> None:
    """Write settings to a file of properties that only this user can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="iso-8859-1") as file:
        file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    """A key or a value as a file of Java properties has it."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\u{unit:04x}" for each in text for unit in _units(each))


def _units(character: str) -> Iterable[int]:
    """The UTF-16 code units of a character."""
    data = character.encode("utf-16-be")
    return (int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def warn_of_unknown(context: SparkContext, keys: Iterable[str]) -> None:
    """A warning for each of these settings that this Spark does not have: it ignores them without a word."""
    asked = [key for key in keys if not _is_open(key)]
    known = _known(context) if asked else set()
    for key in sorted(set(asked) - known) if known else ():
        near = difflib.get_close_matches(key, known, 1, 0.85)
        log.warning("this Spark has no setting %s%s", key, f"; did you mean {near[0]}?" if near else "")


def _is_open(key: str) -> bool:
    words = key.split(".")
    return words[1] in OPEN or (words[1] == "sql" and words[2:3] != [] and words[2] in OPEN_SQL)


def _known(context: SparkContext) -> set[str]:
    """Keys of all settings; empty if this Spark does not tell them."""
    jvm: Any = context._jvm
    try:
        for name in TABLES:
            jvm.java.lang.Class.forName(name)
        every = str(jvm.org.apache.spark.internal.config.ConfigEntry.listAllEntries())
    except Exception:  # py4j has no class of its own for a method that a release of Spark lacks
        log.debug("this Spark does not tell its settings", exc_info=True)
        return set()
    return set(re.findall(r"ConfigEntry\(key=([\w.-]+),", every))
