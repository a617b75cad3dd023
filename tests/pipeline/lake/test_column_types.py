"""Types of columns as text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from klamm.pipeline.lake.column_types import arrow_type, spark_type
from klamm.pipeline.lake.tables import GOLD, SILVER

NESTED = "list<struct<name string, isr list<int32>, head struct<size int64>>>"


def test_a_nested_type_is_that_of_arrow_and_of_spark() -> None:
    inner = pa.struct([("name", pa.string()), ("isr", pa.list_(pa.int32())), ("head", pa.struct([("size", pa.int64())]))])
    assert arrow_type(NESTED) == pa.list_(inner)
    assert spark_type(NESTED) == "array<struct<name string, isr array<int>, head struct<size bigint>>>"


def test_all_columns_of_tables_have_a_type() -> None:
    for column in (column for table in (*SILVER, *GOLD) for column in table.columns):
        assert isinstance(arrow_type(column.type), pa.DataType)


@pytest.mark.parametrize("text", ["list<int32>>", "int32 int32"])
def test_what_follows_a_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a type"):
        arrow_type(text)
