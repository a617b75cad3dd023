"""Makes `validation.jsonl.gz`: `python -m klamm.tests.golden.recording.validation`.

Produced records are drawn from seeds; `RecordJudge.java` beside this file says with the classes of the real Kafka's jars what a leader
stores for each, or why it refuses it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from random import Random

from klamm.tests.golden.recording.journal import write_lines
from klamm.tests.records.comparison import EPOCH, OFFSET
from klamm.tests.records.judge import judging
from klamm.tests.records.random_batches import NOW, draw

TARGET = Path(__file__).resolve().parents[1] / "validation.jsonl.gz"
CASES = 3000
KEPT = ("error", "log_start", "message", "record_errors", "hex", "max_timestamp", "next", "batches")
LONGEST_CASE = 700
"""Bytes; longer records say nothing more."""


def main() -> None:
    lines = []
    with judging() as judge:
        for seed in range(10_000_000, 10_000_000 + CASES):
            case = draw(Random(seed))
            if len(case.data) > LONGEST_CASE:
                continue
            result = judge.assign(case.data, case.version, OFFSET, EPOCH, case.rules, NOW)
            line = {"seed": seed, "what": case.what, "version": case.version, "rules": asdict(case.rules), "hex": case.data.hex()}
            lines.append(json.dumps({**line, "result": {name: result[name] for name in KEPT if name in result}}))
    print(write_lines(TARGET, lines))


if __name__ == "__main__":
    main()
