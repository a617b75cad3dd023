"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.pipeline.spark.session import open_session

FEW_ROWS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": "9223372036854775807b",
}
"""Settings for queries over the few rows of tests: nothing is shuffled, and interpreting a query takes less time than compiling it."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with two cores. Tests leave no temporary view behind that another one could take for its own."""
    session = open_session("local[2]", memory="1g", name="klamm-tests", variables=os.environ, settings=FEW_ROWS)
    yield session
    session.stop()
