"""The archive of loaded classes that halves the start of Spark's JVM: where it is, and how a JVM uses it.

It belongs to one Java runtime and one set of jars: its name says both, and the JVM ignores an archive that does not fit. Each installation
of PySpark keeps its newest one. From Java 25 on it is an AOT cache, before a class-data archive.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

from klamm.pipeline.spark.cache import cache_folder
from klamm.pipeline.spark.java import Java

AOT_SINCE = 25
"""The Java version from which on an AOT cache takes the place of the class-data archive."""


def archive_path(java: Java) -> Path:
    """Where the archive for this runtime and this PySpark is, or will be."""
    import pyspark

    jars = sorted(path.name for path in Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    key = hashlib.sha256("\n".join((java.identity, version("pyspark"), str(pyspark.__file__), *jars)).encode()).hexdigest()[:16]
    return cache_folder() / f"{_prefix()}{key}.{'aot' if java.major >= AOT_SINCE else 'jsa'}"


def older_archives(path: Path) -> list[Path]:
    """Archives of the same kind and the same installation of PySpark, which `path` takes the place of."""
    return [old for old in path.parent.glob(f"{_prefix()}*{path.suffix}") if old != path]


def _prefix() -> str:
    import pyspark

    return f"classes-{hashlib.sha256(str(pyspark.__file__).encode()).hexdigest()[:8]}-"


def archive_options(java: Java) -> tuple[str, ...]:
    """Options of the JVM that use the archive; none when there is no archive."""
    path = archive_path(java)
    if not path.exists():
        return ()
    return (f"-XX:{'AOTCache' if java.major >= AOT_SINCE else 'SharedArchiveFile'}={path}", "-Xlog:disable")
