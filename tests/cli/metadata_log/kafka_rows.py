"""What Kafka's own tool prints of a metadata log, beside ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from klamm.tests.cli.running import call
from klamm.tests.reference.jars import jars
from klamm.tests.reference.tools import dump_log

_BATCH = re.compile(r"baseOffset: (\d+) lastOffset: \d+ count: \d+ .* partitionLeaderEpoch: (\d+) .* isvalid: (\w+)")
_RECORD = re.compile(r"\| offset: (\d+) CreateTime: (-?\d+) keySize: -1 .* payload: (.*)")


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
