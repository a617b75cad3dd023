"""`klamm proxy` as its users meet it: addresses, the control API, signals, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

import klamm
from klamm.tests.cli.running import Running, call
from klamm.tests.harness.ports import free_port


def test_it_says_where_clients_find_it_and_is_steered_until_it_is_stopped(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    with klamm.Cluster(2, zookeeper=zookeeper + chroot, topics=["orders:1:1"]) as cluster:
        upstream = [text for each in cluster.bootstrap_servers.split(",") for text in ("--upstream", each)]
        proxy = Running(tmp_path, "proxy", *upstream, "--journal", tmp_path / "lake", "--run", "one", "--control-port", 0, "--json")
        shown = json.loads(proxy.line())
        assert len(shown["bootstrap_servers"].split(",")) == 2
        steer = ["--control", shown["control"]]
        assert call("control", "fault", *steer, "--api", "Produce", "--error", "NOT_LEADER_OR_FOLLOWER", "--first", 1).stdout == "fault 1\n"
        producer = Producer({"bootstrap.servers": shown["bootstrap_servers"], "retry.backoff.ms": 10})
        producer.produce("orders", b"value")
        assert producer.flush(20) == 0
        assert "Produce" in call("control", "requests", *steer, "--error", "any").stdout
        refused = call("control", "topics", *steer)
        assert refused.returncode == 1 and "a proxy cannot do GET /topics" in refused.stderr
        proxy.process.terminate()
        assert proxy.ended() == 0
    assert call("journal", "verify", tmp_path / "lake").returncode == 0


UNREAD = "with --tls-passthrough frames cannot be read: there is no journal, no control API, and no TLS of the proxy"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--upstream", "kafka"], "'kafka' is not HOST:PORT"),
        (["--upstream", "k:1", "--run", "one"], "--run is the name of a journal's run and needs --journal"),
        (["--upstream", "k:1", "--tls-key", __file__], "--tls-key and --tls-client-ca need --tls-certificate"),
        (["--upstream", "k:1", "--upstream-key", __file__], "--upstream-key needs --upstream-certificate"),
        (["--upstream", "k:1", "--upstream-unverified", "--upstream-ca", __file__], "--upstream-unverified checks nothing"),
        (["--upstream", "k:1", "--tls-passthrough", "--journal", "lake"], UNREAD),
        (["--upstream", "k:1", "--tls-passthrough", "--upstream-ca", __file__], UNREAD),
        (["--upstream", "k:1", "--tls-certificate", __file__], "the certificate "),
        (["--upstream", f"127.0.0.1:{free_port()}"], "no broker of the cluster responds: 127.0.0.1:"),
    ],
)
def test_what_it_cannot_do_is_one_line(options: list[str], text: str) -> None:
    done = call("proxy", *options)
    assert done.returncode != 0 and text in done.stderr.splitlines()[-1], done.stderr
