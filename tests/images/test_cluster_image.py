"""The image for drivers and executors on Kubernetes: its entry point, its jars, and a lake in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.pipeline.spark.s3a import pinned
from klamm.tests.cli.running import run
from klamm.tests.images.containers import podman
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.shipping.s3_server import S3Server, s3_server

pytestmark = [pytest.mark.slow, pytest.mark.images, pytest.mark.timeout(1800), pytest.mark.usefixtures("cluster_image")]

JOB = "local:///opt/klamm/lib/python3.11/site-packages/klamm/cli/pipeline/job.py"


@pytest.fixture
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def test_a_driver_in_the_image_makes_tables_of_what_was_shipped(server: S3Server, tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        journal.event("timer")
        simple_exchange(journal)
    assert run("journal", "ship", tmp_path, "s3://bucket/lake", environ=server.environ).returncode == 0
    variables = {**server.environ, "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"}
    given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    said = podman(
        "run", "--rm", "--network", "host", "--read-only", "--tmpfs", "/tmp", *given, "klamm-cluster", "driver", "--master", "local[1]",
        JOB, "run", "s3://bucket/lake",
    )
    assert said.splitlines()[-1].startswith("2 new segments; 2 frames = 2 messages")


def test_spark_in_the_image_has_the_pinned_jars_and_other_words_are_those_of_klamm() -> None:
    listed = "import pathlib, pyspark; print(*(p.name for p in pathlib.Path(pyspark.__file__).parent.glob('jars/*.jar')))"
    names = podman("run", "--rm", "--entrypoint", "python", "klamm-cluster", "-c", listed).split()
    for artefact in pinned():
        _, name, version = artefact.split(":")
        assert f"{name}-{version}.jar" in names
    assert podman("run", "--rm", "klamm-cluster", "--version").startswith("klamm ")
