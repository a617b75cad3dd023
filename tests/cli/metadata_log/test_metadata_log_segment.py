"""A segment file of `klamm metadata-log dump`, read by Kafka's own log dump tool: record by record what `dump` prints as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.admin.scripted import ScriptedMember, scripted
from klamm.tests.cli.metadata_log.kafka_rows import compare
from klamm.tests.cli.metadata_log.scripted_log import ScriptedLog, golden_rows, value_of

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@pytest.fixture
def controller() -> Iterator[ScriptedMember]:
    with scripted() as cluster:
        yield cluster.add(1)[0]


def test_kafkas_dump_tool_prints_what_the_dump_prints_for_every_type_of_record(controller: ScriptedMember, tmp_path: Path) -> None:
    log = ScriptedLog(controller, controller_epoch=12)
    values = [value_of(row) for row in golden_rows()]
    for first in range(0, len(values), 7):
        log.append(*values[first : first + 7], timestamp=-1 if first % 2 else 1_700_000_000_000 + first)
    assert compare(controller.address, tmp_path) == len(values)


def test_kafkas_dump_tool_prints_a_file_that_begins_behind_the_start_of_the_log(controller: ScriptedMember, tmp_path: Path) -> None:
    log = ScriptedLog(controller)
    for row in golden_rows():
        log.append(value_of(row))
    assert compare(controller.address, tmp_path, "--from-offset", 20) == len(log.batches) - 20
    assert (tmp_path / "00000000000000000020.log").exists()
