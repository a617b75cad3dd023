"""A segment file of `klamm metadata-log dump`, read by Kafka's own log dump tool: record by record what `dump` prints as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.admin.scripted import ScriptedBroker, scripted
from klamm.tests.cli.running import call
from klamm.tests.cli.scripted_log import ScriptedLog, golden_rows, value_of
from klamm.tests.reference.jars import jars
from klamm.tests.reference.tools import dump_log

pytestmark = [pytest.mark.slow, pytest.mark.reference]

_BATCH = re.compile(r"baseOffset: (\d+) lastOffset: \d+ count: \d+ .* partitionLeaderEpoch: (\d+) .* isvalid: (\w+)")
_RECORD = re.compile(r"\| offset: (\d+) CreateTime: (-?\d+) keySize: -1 .* payload: (.*)")


@pytest.fixture
def controller() -> Iterator[ScriptedBroker]:
    with scripted() as cluster:
        yield cluster.add(1)[0]


def kafkas_rows(lines: list[str]) -> list[dict[str, Any]]:
    """The lines of Kafka's tool in the form of ours."""
    rows, epoch = [], -1
    for line in lines:
        if batch := _BATCH.match(line):
            assert batch[3] == "true"
            epoch = int(batch[2])
        if record := _RECORD.match(line):
            when = {"timestamp": int(record[2])} if int(record[2]) >= 0 else {}
            rows.append({"offset": int(record[1]), "controllerEpoch": epoch, **when, **json.loads(record[3])})
    return rows


def compare(bootstrap: str, folder: Path, *arguments: object) -> int:
    """Dump both ways; how many records there are in the file. The log may have become longer when the lines are printed."""
    written = call("metadata-log", "dump", "--bootstrap-server", bootstrap, "--output", folder, *arguments)
    printed = call("metadata-log", "dump", "--bootstrap-server", bootstrap, *arguments)
    assert (printed.returncode, printed.stderr, written.returncode, written.stderr) == (0, "", 0, "")
    (segment,) = folder.glob("*.log")
    lines = dump_log(jars(), folder, segment)
    assert f"Log starting offset: {int(segment.stem)}" in lines
    kafkas = kafkas_rows(lines)
    assert kafkas == [json.loads(line) for line in printed.stdout.splitlines()][: len(kafkas)]
    return len(kafkas)


def test_kafkas_dump_tool_prints_what_the_dump_prints_for_every_type_of_record(controller: ScriptedBroker, tmp_path: Path) -> None:
    log = ScriptedLog(controller, controller_epoch=12)
    values = [value_of(row) for row in golden_rows()]
    for first in range(0, len(values), 7):
        log.append(*values[first : first + 7], timestamp=-1 if first % 2 else 1_700_000_000_000 + first)
    assert compare(controller.address, tmp_path) == len(values)


def test_kafkas_dump_tool_prints_a_file_that_begins_behind_the_start_of_the_log(controller: ScriptedBroker, tmp_path: Path) -> None:
    log = ScriptedLog(controller)
    for row in golden_rows():
        log.append(value_of(row))
    assert compare(controller.address, tmp_path, "--from-offset", 20) == len(log.batches) - 20
    assert (tmp_path / "00000000000000000020.log").exists()
