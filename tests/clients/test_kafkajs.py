"""kafkajs, on Node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.tests.clients.served import Served


def test_admin_client(served: Served, node_script: Callable[..., list[dict[str, Any]]]) -> None:
    topic = served.topic()
    said = {line["what"]: line["answer"] for line in node_script("kafkajs.mjs", served.bootstrap, topic)}
    assert {b["nodeId"]: b["port"] for b in said["cluster"]["brokers"]} == served.ports
    assert (said["cluster"]["controller"], said["cluster"]["clusterId"]) == (served.controller, served.cluster_id)
    assert (said["created"], said["again"], said["assigned"]) == (True, False, True)
    assert said["bad name"] == ["INVALID_TOPIC_EXCEPTION"]
    assert said["bad factor"] == ["INVALID_REPLICATION_FACTOR"]
    assert sorted(p["partitionId"] for p in said["metadata"]) == [0, 1]
    for p in said["metadata"]:
        assert sorted(p["replicas"]) == sorted(p["isr"]) == [1, 2, 3]
        assert p["leader"] == p["replicas"][0]
    assert sorted(p["partitionId"] for p in said["more metadata"]) == [0, 1, 2, 3, 4]
    assert said["config"] == 36
    assert said["altered"]["configValue"] == "7000"
    assert not [name for name in said["deleted"] if name.startswith(topic)]
    assert said["unknown"] == "UNKNOWN_TOPIC_OR_PARTITION"
