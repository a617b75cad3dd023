"""The images, each built once from the checkout for all tests of this folder that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
def pipeline_image(base_image: None) -> None:
    """`klamm-pipeline`."""
    containers.build("klamm-pipeline", "--target", "pipeline", str(containers.ROOT))


@pytest.fixture(scope="session")
def zookeeper_image(serve_image: None) -> None:
    """What stands in for `zookeeper:3.9`."""
    containers.build_zookeeper()
