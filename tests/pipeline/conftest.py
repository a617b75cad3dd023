"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.pipeline.spark.session import few_rows, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with two cores. Tests leave no temporary view behind that another one could take for its own."""
    session = open_session("local[2]", memory="1g", name="klamm-tests", variables=os.environ)
    with few_rows(session):
        yield session
    session.stop()
