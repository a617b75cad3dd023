"""`klamm serve` with brokers that register with the controller."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from klamm.tests.cli.conftest import Start
from klamm.tests.cli.served_cluster import connected, topics_at, zookeeper_is_gone

REGISTERS = ("--config", "registerbroker.enable=on", "--config", "klamm.broker.registration=controller")


@pytest.mark.requirement("RREG-12")
@pytest.mark.parametrize(
    "processes", [(), pytest.param(("--processes",), marks=pytest.mark.slow)], ids=["one process", "a process for each broker"]
)
def test_cluster_is_ready_when_all_its_brokers_are_online_and_a_signal_stops_it_in_order(start: Start, processes: tuple[str, ...]) -> None:
    cluster = start("serve", *processes, "--port", 0, "--json", *REGISTERS, "--topic", "orders:6:3")
    said = cluster.ready()
    assert topics_at(said["bootstrap_servers"]) == {"orders": 6}
    with connected(said["zookeeper"]) as zk:
        assert zk.get_children("/brokers/ids") == []
        nodes = [json.loads(zk.get(f"/cluster/brokers/{broker_id}")[0]) for broker_id in (1, 2, 3)]
    assert [(node["state"], node["epoch"]) for node in nodes] == [("ONLINE", 1)] * 3
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert zookeeper_is_gone(said["zookeeper"])
    assert "Traceback" not in cluster.stderr
    assert "ERROR" not in cluster.stderr


@pytest.mark.requirement("RREG-10")
def test_brokers_that_were_stopped_in_order_are_offline_and_those_of_the_next_run_come_after_them(start: Start, tmp_path: Path) -> None:
    for run in (1, 2):
        cluster = start("serve", "--port", 0, "--json", "--data-dir", tmp_path / "data", *REGISTERS)
        said = cluster.ready()
        with connected(said["zookeeper"]) as zk:
            nodes = [json.loads(zk.get(f"/cluster/brokers/{broker_id}")[0]) for broker_id in (1, 2, 3)]
        assert [(node["state"], node["epoch"]) for node in nodes] == [("ONLINE", run)] * 3
        cluster.signal(signal.SIGTERM)
        assert cluster.ended() == 0
