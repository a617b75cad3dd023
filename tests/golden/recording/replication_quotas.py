"""Makes `replication_quotas.jsonl.gz`: `python -m klamm.tests.golden.recording.replication_quotas`.

Histories of a quota are drawn from seeds; `QuotaJudge.java` beside this file measures them with the real Kafka's jars. The same file comes
out every time.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from klamm.tests.golden.recording.journal import write_lines
from klamm.tests.records.judge import running

TARGET = Path(__file__).resolve().parents[1] / "replication_quotas.jsonl.gz"
HISTORIES = 40
STEPS = 120


def history(seed: int) -> dict[str, Any]:
    """Bytes that are recorded, bounds that change, and looks at the rate, as an order for the judge."""
    chance = random.Random(seed)
    num, seconds = chance.choice([(11, 1), (11, 1), (1, 1), (2, 3), (5, 2)])
    now_ms = chance.randrange(1_000_000)
    steps: list[tuple[int, str, int]] = [(now_ms, "bound", 100_000)]
    paces = [0, 1, 10, 200, 999, 1000, 1001, 2500]
    for _ in range(STEPS):
        now_ms += chance.choice([*paces, 12_000]) if chance.random() < 0.1 else chance.choice(paces)
        kind = chance.choices(["record", "look", "bound"], [5, 4, 1])[0]
        value = {"record": [0, 16, 4_000, 65_536, 1 << 20], "look": [0], "bound": [0, 1_000, 50_000, 1 << 20]}[kind]
        steps.append((now_ms, kind, chance.choice(value)))
    return {"num": num, "seconds": seconds, "steps": steps}


def main() -> None:
    lines = []
    with running("QuotaJudge.java") as judge:
        for seed in range(HISTORIES):
            order = history(seed)
            lines.append(json.dumps({"order": order, "looks": judge.order(**order)["looks"]}))
    print(write_lines(TARGET, lines))


if __name__ == "__main__":
    main()
