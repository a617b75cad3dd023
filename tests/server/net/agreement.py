"""Whether ZooKeeper, the controller's memory and every broker agree, and whether nothing is left of what is over.

One thing may be left, as of Apache Kafka (controller 12.3): a deleted topic in the cache of a broker that has no replica of it. The broker
learns of a deletion by one UpdateMetadata only, which it misses where its session or that of the controller ends meanwhile.
"""

from __future__ import annotations

from klamm.server.broker_server import BrokerServer
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.tree import Tree


def agreed(cluster: LocalCluster, tree: Tree) -> bool:
    """True when all agree. Raises AssertionError with the first difference."""
    ids = {node.id for node in cluster.brokers}
    assert set(map(int, tree.children("/brokers/ids"))) == ids
    assert tree.controller() == cluster.controller_id
    assert tree.children("/admin/delete_topics") == []
    assert tree.children("/isr_change_notification") == []
    topics = {topic: tree.assignment(topic) for topic in tree.children("/brokers/topics")}
    assert set(tree.children("/config/topics")) == set(topics), "a config without its topic, or the reverse"
    controller = next(node for node in cluster.brokers if node.id == cluster.controller_id)
    term = controller.controller.term
    assert term is not None and tree.controller_epoch() == term.cluster.epoch
    assert set(term.cluster.topics) == set(topics)
    assert not term.cluster.deletions.topics
    for node in cluster.brokers:
        _topics_agree(node, set(topics))
        assert node.metadata.controller_id == controller.id
        assert set(node.metadata.brokers) == ids
        assert {(topic, p) for topic, p, _ in node.replicas} == {
            (topic, p) for topic, partitions in topics.items() for p, replicas in partitions.items() if node.id in replicas
        }, f"replicas of broker {node.id}"
        assert len(node.services.purgatory) == 0
    for topic, partitions in topics.items():
        topic_id = tree.topic_id(topic)
        for index, replicas in partitions.items():
            where = f"{topic}-{index}"
            state = tree.state(topic, index)
            assert state is not None, f"{where} has no state"
            assert state.leader in state.isr and set(state.isr) <= set(replicas), f"{where}: {state}"
            remembered = term.cluster.topics[topic].partitions[index].info
            assert remembered is not None
            assert (remembered.leader, list(remembered.isr), remembered.leader_epoch, remembered.partition_epoch) == state[:4], where
            for node in cluster.brokers:
                _broker_agrees(node, topic, index, topic_id, state.leader, state.isr, state.le, state.pe)
    return True


def _topics_agree(node: BrokerServer, topics: set[str]) -> None:
    cached = node.metadata.topics
    assert topics <= cached.keys(), f"broker {node.id} does not know {topics - cached.keys()}"
    for name in cached.keys() - topics:
        hosts = {replica for partition in cached[name].partitions.values() for replica in partition.replicas}
        assert node.id not in hosts, f"broker {node.id} has a replica of the deleted topic {name} in its cache"


def _broker_agrees(
    node: BrokerServer, topic: str, index: int, topic_id: bytes | None, leader: int, isr: list[int], leader_epoch: int, partition_epoch: int
) -> None:
    where = f"{topic}-{index} at broker {node.id}"
    cached = node.metadata.partition(topic, index)
    assert cached is not None, where
    assert (cached.leader, list(cached.isr), cached.leader_epoch, cached.zk_version) == (leader, isr, leader_epoch, partition_epoch), where
    assert node.metadata.topic_id(topic) == topic_id, where
    hosted = node.replicas.get(topic, index)
    if hosted is not None:
        assert (hosted.leader, hosted.leader_epoch, hosted.topic_id) == (leader, leader_epoch, topic_id), where
