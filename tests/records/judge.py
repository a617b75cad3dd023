"""Apache Kafka's own record code as a process: `RecordJudge.java` and `CleanerJudge.java` beside the golden data."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from klamm.protocol.records.validation import AppendRules
from klamm.tests.harness.kafka import java_command
from klamm.tests.reference.jars import jars

SOURCES = Path(__file__).resolve().parents[1] / "golden" / "recording"


class Judge:
    """One process. Each call sends an order and waits for its result."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def order(self, **order: Any) -> dict[str, Any]:
        """Send an order, and return its result."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "the judge has ended"
        result: dict[str, Any] = json.loads(line)
        return result

    def assign(self, data: bytes, version: int, offset: int, epoch: int, rules: AppendRules, now_ms: int) -> dict[str, Any]:
        """What a leader of Apache Kafka stores for these records of a Produce request, or the error."""
        return self.order(
            op="assign", version=version, offset=offset, epoch=epoch, now=now_ms, hex=data.hex(), rules=asdict(rules)
        )

    def read(self, data: bytes) -> dict[str, Any]:
        """The batches and records that Apache Kafka reads, or the error."""
        return self.order(op="read", hex=data.hex())

    def convert(self, data: bytes, magic: int, first: int) -> dict[str, Any]:
        """The records as Apache Kafka gives them to an old consumer that fetches from offset `first`."""
        return self.order(op="convert", hex=data.hex(), magic=magic, first=first)


@contextmanager
def judging() -> Iterator[Judge]:
    """The process, for as long as it is needed."""
    with running("RecordJudge.java") as judge:
        yield judge


@contextmanager
def running(source: str) -> Iterator[Judge]:
    """The process of this program."""
    command = java_command(jars(), str(SOURCES / source))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Judge(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
