"""Makes `compaction.jsonl.gz`: `python -m klamm.tests.golden.recording.compaction`.

Logs are drawn from seeds; `CleanerJudge.java` beside this file cleans each twice, with the cleaner of the real Kafka's jars.
"""

from __future__ import annotations

import json
from pathlib import Path

from klamm.tests.broker.log.cleaner_rounds import judge_rounds, order_of
from klamm.tests.golden.recording.journal import write_lines
from klamm.tests.records.judge import running

TARGET = Path(__file__).resolve().parents[1] / "compaction.jsonl.gz"
LOGS = 300


def main() -> None:
    lines = []
    with running("CleanerJudge.java") as judge:
        for seed in range(20_000_000, 20_000_000 + LOGS):
            order = order_of(seed)
            lines.append(json.dumps({"order": order, "results": judge_rounds(judge, order)}))
    print(write_lines(TARGET, lines))


if __name__ == "__main__":
    main()
