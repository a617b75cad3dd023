"""LeaderAndIsr and StopReplica requests for a replica manager, and how they are handled."""

from typing import Any

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.broker.update_metadata import update

ME, EPOCH = 1, 7
A, B = b"a" * 16, b"b" * 16
OK = ErrorCode.NONE
LISR = messages.LeaderAndIsrRequest
STOP = messages.StopReplicaRequest


def hosting() -> ReplicaManager:
    """Broker 1 of the live brokers 1 and 2, which has heard controller epoch 1."""
    hosted = ReplicaManager(ME, MetadataCache(ME))
    hosted.handle_update_metadata(update(), EPOCH)
    return hosted


def state(leader_epoch: int, leader: int = 1, index: int = 0, **more: Any) -> Any:
    fields: dict[str, Any] = {"isr": [1, 2], "replicas": [1, 2], "is_new": True} | more
    fields |= {name: tuple(fields[name]) for name in ("isr", "replicas")}
    return LISR.LeaderAndIsrPartitionState(partition_index=index, leader=leader, leader_epoch=leader_epoch, **fields)


def lisr(*states: Any, topic: str = "t", topic_id: bytes = A, **more: Any) -> Any:
    fields = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": EPOCH} | more
    entry = LISR.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))
    return LISR(topic_states=[entry], **fields)


def tell(hosted: ReplicaManager, *states: Any, **more: Any) -> list[int]:
    """Partition codes of a LeaderAndIsr that is accepted as a whole."""
    response, _ = hosted.handle_leader_and_isr(lisr(*states, **more), 7, EPOCH)
    assert response.error_code == OK
    return [row.error_code for topic in response.topics for row in topic.partition_errors]


def stop(*partitions: tuple[int, int, bool], topic: str = "t", **more: Any) -> Any:
    fields = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": EPOCH} | more
    rows = [STOP.StopReplicaPartitionState(index, epoch, delete) for index, epoch, delete in partitions]
    return STOP(topic_states=[STOP.StopReplicaTopicState(topic, rows)], **fields)
