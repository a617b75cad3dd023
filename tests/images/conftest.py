"""The images, each built once from the checkout for all tests of this folder that need it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from klamm.pipeline.spark.s3a import jars
from klamm.tests.images import containers


@pytest.fixture(scope="session")
def base_image() -> Iterator[None]:
    """What stands in for `python:3.11-slim`."""
    containers.prepare()
    containers.import_base()
    yield
    containers.release()


@pytest.fixture(scope="session")
def broker_image(base_image: None) -> None:
    """`klamm`."""
    containers.build("klamm", "--target", "broker", str(containers.ROOT))


@pytest.fixture(scope="session")
def serve_image(base_image: None) -> None:
    """`klamm-serve`."""
    containers.build("klamm-serve", "--target", "serve", str(containers.ROOT))


@pytest.fixture(scope="session")
def judging_image(base_image: None) -> None:
    """`klamm-serve` with what keeps a journal and judges it."""
    extras = "EXTRAS=embedded,metrics,control,journal,quick"
    containers.build("klamm-serve-judging", "--target", "serve", "--build-arg", extras, str(containers.ROOT))


@pytest.fixture(scope="session")
def pipeline_image(base_image: None) -> None:
    """`klamm-pipeline`, with the jars of S3A that this machine has."""
    folder = containers.ROOT / "distributions" / "s3a"
    folder.mkdir(exist_ok=True)
    for jar in jars():
        shutil.copy(jar, folder)
    containers.build("klamm-pipeline", "--target", "pipeline", str(containers.ROOT))


@pytest.fixture(scope="session")
def cluster_image(pipeline_image: None) -> None:
    """`klamm-cluster`."""
    containers.build("klamm-cluster", "--target", "cluster", str(containers.ROOT))


@pytest.fixture(scope="session")
def zookeeper_image(serve_image: None) -> None:
    """What stands in for `zookeeper:3.9`."""
    containers.build_zookeeper()
