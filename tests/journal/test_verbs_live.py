"""`klamm journal` beside a cluster that writes its journals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.cli.running import Running, run


@pytest.mark.slow
async def test_a_living_journal_is_followed_and_proved_gapless_through_a_kill(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    config = {"klamm.journal.dir": str(lake), "klamm.journal.run": "one"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("orders", 3, 2)])
    await cluster.start()
    following = Running(tmp_path, "journal", "tail", lake, "--follow", "--events", "-n", 1, "--api", "LeaderAndIsr")
    await asyncio.to_thread(following.line)  # what was there before: it follows from here on
    verified = [await asyncio.to_thread(run, "journal", "verify", lake, "--json") for _ in range(2)]
    await cluster.kill_broker(2, expire=True)
    await cluster.start_broker(2)
    line = ""
    while "LeaderAndIsr" not in line:
        line = await asyncio.to_thread(following.line)
    await cluster.stop()
    following.kill()
    for said in verified:
        found = json.loads(said.stdout)
        assert (said.returncode, found["gapless"], [each["is_written"] for each in found["journals"]]) == (0, True, [True, True])
    done = json.loads((await asyncio.to_thread(run, "journal", "verify", lake, "--json")).stdout)
    assert (done["gapless"], done["foreign_files"]) == (True, [])
    assert [(each["broker"], each["processes"], each["is_written"]) for each in done["journals"]] == [(1, 1, False), (2, 2, False)]
    printed = await asyncio.to_thread(run, "journal", "tail", lake, "--topic", "orders", "--api", "UpdateMetadata")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert '"topicName":"orders"' in printed.stdout
