"""The metadata log of a real cluster on a real ZooKeeper, replayed into an empty view, is what stands in ZooKeeper (RREG-18)."""

from __future__ import annotations

import json

import pytest

from klamm.controller.values import Election
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.broker.whole_view import WholeView
from klamm.tests.controller.metadata_log import metadata_facts
from klamm.tests.controller.metadata_log.metadata_facts import BrokerFacts, Facts, PartitionFacts
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually

CONFIG = {"registerbroker.enable": "true", "auto.leader.rebalance.enable": "false"}
REGISTRATIONS = "/cluster/brokers"


def of_tree(tree: Tree) -> Facts:
    """What stands in ZooKeeper."""
    brokers: dict[int, BrokerFacts] = {}
    for name in tree.children(REGISTRATIONS):
        node = tree.json(f"{REGISTRATIONS}/{name}")
        if node["state"] != "OFFLINE":
            brokers[int(name)] = BrokerFacts(node["epoch"], node["state"])
    for name in tree.children("/brokers/ids"):
        brokers[int(name)] = BrokerFacts(tree.broker_epoch(int(name)), "ONLINE")
    topics, partitions = {}, {}
    for topic in tree.children("/brokers/topics"):
        node = tree.json(f"/brokers/topics/{topic}")
        topics[topic] = tree.topic_id(topic) or b""
        for index, replicas in node["partitions"].items():
            facts = PartitionFacts(
                tuple(replicas),
                tuple(node["adding_replicas"].get(index, ())),
                tuple(node["removing_replicas"].get(index, ())), -1, -1, (), 0, -1,
            )
            if (state := tree.state(topic, int(index))) is not None:
                facts = facts._replace(
                    leader=state.leader, leader_epoch=state.le, isr=tuple(state.isr), recovery=state.recovery, partition_epoch=state.pe
                )
            partitions[TopicPartition(topic, int(index))] = facts
    configs = {}
    for kind in ("topics", "brokers"):
        for name in tree.children(f"/config/{kind}"):
            configs[f"{kind}/{name}"] = json.loads(tree.get(f"/config/{kind}/{name}") or b'{"config":{}}')["config"]
    return Facts(brokers, topics, partitions, {entity: properties for entity, properties in configs.items() if properties})


def of_log(cluster: LocalCluster) -> Facts:
    """What the controller's log comes to."""
    controller = next(broker.controller for broker in cluster.brokers if broker.id == cluster.controller_id)
    assert controller.term is not None and controller.term.metadata_log is not None
    log, view = controller.term.metadata_log, WholeView()
    view.restart(log.controller_epoch, log.start_offset)
    while piece := log.read(view.next_offset, 1 << 20):
        view.apply(piece, log.controller_epoch)
    return metadata_facts.of_view(view)


@pytest.mark.timeout(120)
@pytest.mark.requirement("RREG-18")
async def test_the_log_of_a_real_cluster_replayed_is_what_stands_in_zookeeper(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, config=CONFIG, topics=[SeedTopic("seed", 4, 3)])
    tree = Tree(zookeeper, chroot)
    await cluster.start()
    try:

        def agree() -> bool:
            differences = of_log(cluster).differences(of_tree(tree))
            assert not differences, differences[:3]
            return True

        async def agreed() -> None:
            await eventually(agree, "log and ZooKeeper agree")

        async def ask(message: object, version: int) -> object:
            host, port = next((host, port) for broker_id, host, port in cluster.addresses if broker_id == cluster.controller_id)
            client = Client(host, port)
            try:
                return await client.ask(message, version)
            finally:
                await client.close()

        await agreed()
        first = cluster.controller_id
        await ask(requests.create_topic("made", [[1, 2], [2, 3], [3, 1]]), 7)
        await ask(requests.set_configs(2, "made", {"retention.ms": "123456"}), 1)
        await ask(requests.set_configs(4, "", {"log.cleaner.threads": "2"}), 1)
        await ask(requests.set_configs(4, str(first), {"log.cleaner.threads": "1"}), 1)
        await agreed()
        assert of_tree(tree).configs["topics/made"] == {"retention.ms": "123456"}
        other = next(broker.id for broker in cluster.brokers if broker.id != cluster.controller_id)
        await cluster.stop_broker(other)
        await agreed()
        await cluster.start_broker(other)
        await agreed()
        await ask(requests.elect_leaders([("made", p) for p in range(3)], Election.PREFERRED), 2)
        row = messages.AlterPartitionReassignmentsRequest
        targets = [row.ReassignablePartition(partition_index=0, replicas=[3, 2])]
        await ask(row(timeout_ms=10000, topics=[row.ReassignableTopic(name="made", partitions=targets)]), 0)
        await eventually(lambda: tree.assignment("made")[0] == [3, 2], "it has moved")
        await agreed()
        await ask(requests.delete_topics("made"), 6)
        await eventually(lambda: "made" not in tree.children("/brokers/topics"), "it is gone")
        await agreed()
        await ask(requests.create_topic("made", [[1]]), 7)
        await agreed()
        await cluster.move_controller()
        await agreed()
        assert of_tree(tree).topics.keys() == {"seed", "made"} and of_tree(tree).configs.keys() >= {f"brokers/{first}", "brokers/<default>"}
    finally:
        await cluster.stop()
        tree.close()
