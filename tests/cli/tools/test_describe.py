"""`klamm describe`: the whole cluster, also with a broker that is down."""

from __future__ import annotations

import json
import re
from pathlib import Path

import klamm
from klamm.admin import AdminClient
from klamm.tests.cli.running import call
from klamm.tests.harness.waits import wait_for

OFFSETS = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1}


def test_a_cluster_is_shown_with_what_is_wrong_in_it(zookeeper: str, chroot: str) -> None:
    topics = ["orders:2:2", "audit:1:1"]
    with klamm.Cluster(2, topics=topics, config=OFFSETS, zookeeper=zookeeper + chroot) as cluster:
        with AdminClient(cluster.bootstrap_servers) as admin:
            admin.alter_group_offsets("billing", {("orders", 0): 0}).all()
        said = call("describe", "--bootstrap-server", cluster.bootstrap_servers)
        assert (said.returncode, said.stderr) == (0, "")
        lines = said.stdout.splitlines()
        assert lines[0] == f"cluster {cluster.cluster_id}, controller {cluster.controller_id}"
        rows = [re.split(r" {2,}", line) for line in lines[2:5]]
        assert rows[0] == ["BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "OUT-OF-SYNC"]
        assert [row[:4] for row in rows[1:]] == [[str(number), host, str(port), "-"] for number, host, port in cluster.addresses]
        assert [row[4] for row in rows[1:]].count("yes") == 1
        assert lines[6:] == ["3 topics (1 internal), 4 partitions: all in sync", "1 group"]

        stays = cluster.controller_id
        assert stays is not None
        left = 3 - stays
        cluster.stop_broker(left)
        bootstrap = next(f"{host}:{port}" for number, host, port in cluster.addresses if number == stays)

        def described() -> dict[str, object]:
            done = call("describe", "--json", "--bootstrap-server", bootstrap)
            return json.loads(done.stdout.splitlines()[0])

        def broker_is_gone() -> dict[str, object] | None:
            shown = described()
            return shown if len([row for row in shown["out_of_sync"] if row["topic"] == "orders"]) == 2 else None  # type: ignore[attr-defined]

        shown = wait_for(broker_is_gone, "both partitions of orders are out of sync")
        assert shown["controller_id"] == stays
        (gone,) = [row for row in shown["brokers"] if row["broker"] == left]  # type: ignore[attr-defined]
        assert (gone["host"], gone["leads"], gone["controller"]) == (None, 0, False)
        assert gone["out_of_sync"] >= 2
        assert all(row["leader"] == stays and row["isr"] == [stays] for row in shown["out_of_sync"] if row["topic"] == "orders")  # type: ignore[attr-defined]
        text = call("describe", "--bootstrap-server", bootstrap).stdout
        assert "out of sync" in text
        assert re.search(rf"(?m)^{left}\s+-\s+-", text), "a broker that is down has no address"


def test_a_cluster_that_does_not_respond_is_one_line(tmp_path: Path) -> None:
    soon = tmp_path / "client.properties"
    soon.write_text("default.api.timeout.ms=500\n")
    said = call("describe", "--bootstrap-server", "127.0.0.1:1", "--json", "--command-config", soon)
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1].startswith("klamm: ")
