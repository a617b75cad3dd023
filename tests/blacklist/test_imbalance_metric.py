"""The metric of preferred imbalance, as a scraper reads it, goes by the list, and says what the automatic rebalance says (KIP-491)."""

from __future__ import annotations

import re
from urllib.request import urlopen

import pytest

import klamm
from klamm.admin import AdminClient, ConfigChange, NewTopic
from klamm.testing import BlockingCluster
from klamm.tests.blacklist.leading import ALL_BROKERS, LIST
from klamm.tests.harness.waits import wait_for

METRIC = re.compile(r"^kafka_controller_kafkacontroller_preferredreplicaimbalancecount (\S+)$", re.MULTILINE)


def imbalance(cluster: BlockingCluster) -> float:
    """Of the active controller."""
    port = cluster.metrics_ports[cluster.controller_id]
    with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        shown = METRIC.search(response.read().decode())
    assert shown is not None
    return float(shown[1])


@pytest.mark.requirement("R491-16")
def test_the_metric_counts_partitions_that_the_first_of_the_order_does_not_lead(zookeeper: str, chroot: str) -> None:
    config = {"auto.leader.rebalance.enable": "false"}
    running = klamm.Cluster(2, zookeeper=zookeeper + chroot, config=config, metrics_port=0)
    with running as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", assignments=[[1, 2], [1, 2], [2, 1]]), NewTopic("only", assignments=[[1]])]).all()

        def shows(number: int) -> None:
            wait_for(lambda: imbalance(cluster) == number, f"an imbalance of {number}")

        def put_on_the_list(brokers: str) -> None:
            admin.incremental_alter_configs({ALL_BROKERS: [ConfigChange(LIST, brokers)]}).all()

        shows(0)
        put_on_the_list("1")
        shows(2)  # 2 is to lead t-0 and t-1; nobody but a listed broker can lead `only`
        admin.elect_preferred_leaders([("t", 0), ("t", 1)]).all()
        shows(0)
        put_on_the_list("2")
        shows(3)  # 1 is to lead all of t, and 2 does
        put_on_the_list("1,2")
        shows(0)  # nobody is to lead what only listed brokers have
        put_on_the_list("")
        shows(2)  # t-0 and t-1 again
