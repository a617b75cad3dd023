"""Makes `client_quotas.jsonl.gz`: `python -m klamm.tests.golden.recording.client_quotas`.

Histories of clients under quotas are drawn from seeds; `ClientQuotaJudge.java` beside this file throttles them with the real Kafka's jars.
Every client has a quota from the beginning, that of the default client. The same file comes out every time.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from klamm.tests.golden.recording.journal import write_lines
from klamm.tests.records.judge import running

TARGET = Path(__file__).resolve().parents[1] / "client_quotas.jsonl.gz"
HISTORIES = 60
STEPS = 120
DEFAULT = "<default>"
USERS, CLIENTS = ("alice", "bob"), ("c1", "c2")
KINDS: dict[str, tuple[list[float], list[float]]] = {
    "bytes": ([0, 1_000, 50_000, 1 << 20, 1 << 62], [1, 16, 4_000, 65_536, 1 << 20, 1 << 40]),
    "requests": ([0, 0.5, 12.5, 200, 1e-6], [0.001, 0.3, 4.25, 70]),
    "mutations": ([1, 0.5, 12.5, 1000], [1, 3, 12, 400]),
}
"""Kind of quota → bounds, values."""


def history(seed: int) -> dict[str, Any]:
    """Bounds that are set and changed, and what clients record, as an order for the judge."""
    chance = random.Random(seed)
    num, seconds = chance.choice([(11, 1), (11, 1), (1, 1), (2, 3), (5, 2)])
    kind = chance.choice(list(KINDS))
    bounds, values = KINDS[kind]
    now_ms = chance.randrange(10_000_000_000)
    steps: list[tuple[int, str, str, str, float]] = [(now_ms, "bound", "", DEFAULT, bounds[2])]
    paces = [0, 1, 10, 200, 999, 1000, 1001, 2500]
    for _ in range(STEPS):
        now_ms += chance.choice([*paces, 12_000]) if chance.random() < 0.1 else chance.choice(paces)
        if chance.random() < 0.12:
            user, client = chance.choice([*USERS, DEFAULT, ""]), chance.choice([*CLIENTS, DEFAULT, ""])
            if user or client:
                steps.append((now_ms, "bound", user, client, chance.choice(bounds)))
        else:
            how = chance.choice(["strict", "permissive"]) if kind == "mutations" else "record"
            steps.append((now_ms, how, chance.choice(USERS), chance.choice(CLIENTS), chance.choice(values)))
    return {"num": num, "seconds": seconds, "kind": kind, "steps": steps}


def main() -> None:
    lines = []
    with running("ClientQuotaJudge.java") as judge:
        for seed in range(HISTORIES):
            order = history(seed)
            lines.append(json.dumps({"order": order, "throttled": judge.order(**order)["throttled"]}))
    print(write_lines(TARGET, lines))


if __name__ == "__main__":
    main()
