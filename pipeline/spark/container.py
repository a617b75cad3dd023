"""The entry point of the image `cluster`: what Spark on Kubernetes starts in a pod, and otherwise the command `klamm`.

    python -m klamm.pipeline.spark.container driver …      spark-submit, in the pod of a driver
    python -m klamm.pipeline.spark.container executor      an executor, described by SPARK_… variables
    python -m klamm.pipeline.spark.container pipeline run …      `klamm pipeline run …`

Spark passes the options of an executor's JVM as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, … The Java and the Python are those of the image.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

from klamm.pipeline.spark.cluster import environment, spark_home
from klamm.pipeline.spark.java import java_for_spark

_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_DESCRIBED_BY = {
    "--driver-url": "SPARK_DRIVER_URL", "--executor-id": "SPARK_EXECUTOR_ID", "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID", "--hostname": "SPARK_EXECUTOR_POD_IP", "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Option of an executor → the variable with its value."""


def command(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command of a pod. `environ` has JAVA_HOME. Raises KeyError if a variable is missing that Spark sets."""
    if words[:1] == ["driver"]:
        address = environ["SPARK_DRIVER_BIND_ADDRESS"]
        own = ["--conf", f"spark.driver.bindAddress={address}", "--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
        return [str(spark_home() / "bin" / "spark-submit"), *own, "--deploy-mode", "client", *words[1:]]
    if words[:1] == ["executor"]:
        memory = environ["SPARK_EXECUTOR_MEMORY"]
        paths = [environ.get("SPARK_CLASSPATH", ""), f"{spark_home()}/jars/*", environ.get("SPARK_CONF_DIR", "")]
        described = [word for option, variable in _DESCRIBED_BY.items() for word in (option, environ[variable])]
        java = [f"{environ['JAVA_HOME']}/bin/java", *_java_options(environ), f"-Xms{memory}", f"-Xmx{memory}"]
        return [*java, "-cp", ":".join(filter(None, paths)), _EXECUTOR, *described]
    return [sys.executable, "-m", "klamm", *words]


def _java_options(environ: Mapping[str, str]) -> list[str]:
    numbered = {int(found[1]): value for name, value in environ.items() if (found := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name))}
    return [numbered[number] for number in sorted(numbered)]


def main(words: Sequence[str]) -> None:
    """Become the command."""
    environ = environment(java_for_spark()) if words[:1] in (["driver"], ["executor"]) else dict(os.environ)
    chosen = command(words, environ)
    os.execve(chosen[0], chosen, environ)


if __name__ == "__main__":
    main(sys.argv[1:])
