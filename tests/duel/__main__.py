"""`make duel SEED=… MINUTES=…`: random stories told to a real Kafka and to Klamm; exit code 1 when a difference is not explained."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from pathlib import Path

from klamm.tests.duel.running import BATCH, DuelRun


async def _until_stopped(run: DuelRun, end: float) -> None:
    """Run until the end or a signal."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await run.until(end)
    except asyncio.CancelledError:
        task.uncancel()


def main() -> int:
    parser = argparse.ArgumentParser(prog="duel", description="Random stories, told to a real Kafka and to Klamm.")
    parser.add_argument("--seed", type=int, default=None, help="which stories (default: by chance)")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument("--folder", type=Path, default=Path("build/duel"), help="where differences are written (default: build/duel)")
    parser.add_argument("--stories", type=int, default=BATCH, help=f"how many to one pair of brokers (default: {BATCH})")
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes; differences go to {options.folder}", flush=True)
    run = DuelRun(seed, options.folder, lambda text: print(text, flush=True), options.stories)
    asyncio.run(_until_stopped(run, time.monotonic() + options.minutes * 60))
    print(run.account.text(seed), flush=True)
    return 1 if run.account.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
