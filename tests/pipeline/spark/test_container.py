from __future__ import annotations

import sys

import pytest

from klamm.pipeline.spark.cluster import spark_home
from klamm.pipeline.spark.container import command

EXECUTOR = {
    "JAVA_HOME": "/java", "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_JAVA_OPT_10": "-Dk=v", "SPARK_JAVA_OPT_2": "-Da=b c",
    "SPARK_DRIVER_URL": "spark://d:1",
    "SPARK_EXECUTOR_ID": "7", "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod",
}


def test_the_pod_of_an_executor_runs_the_backend_that_spark_has() -> None:
    words = command(["executor"], EXECUTOR)
    assert words[:5] == ["/java/bin/java", "-Da=b c", "-Dk=v", "-Xms1g", "-Xmx1g"]
    assert words[5:7] == ["-cp", f"{spark_home()}/jars/*"]
    assert words[7].endswith("KubernetesExecutorBackend")
    assert dict(zip(words[8::2], words[9::2], strict=True)) == {
        "--driver-url": "spark://d:1", "--executor-id": "7", "--cores": "2", "--app-id": "app", "--hostname": "10.0.0.1",
        "--resourceProfileId": "0", "--podName": "pod",
    }
    with pytest.raises(KeyError, match="SPARK_EXECUTOR_ID"):
        command(["executor"], {name: value for name, value in EXECUTOR.items() if name != "SPARK_EXECUTOR_ID"})


def test_the_pod_of_a_driver_runs_spark_submit_and_other_words_are_those_of_klamm() -> None:
    words = command(["driver", "--properties-file", "/p", "local:///job.py", "run", "s3://b/l"], {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.2"})
    assert words[0] == f"{spark_home()}/bin/spark-submit"
    assert "spark.driver.bindAddress=10.0.0.2" in words
    assert words[-7:] == ["--deploy-mode", "client", "--properties-file", "/p", "local:///job.py", "run", "s3://b/l"]
    assert command(["pipeline", "run", "/lake"], {}) == [sys.executable, "-m", "klamm", "pipeline", "run", "/lake"]
