"""Requests about topics, and trees of topics."""

from typing import Any

from klamm.protocol import messages

REQUEST = messages.CreateTopicsRequest
Pairs = dict[Any, Any] | list[tuple[Any, Any]] | tuple[()]


def topic(name: str = "t", partitions: int = 1, rf: int = 1, assign: Pairs = (), configs: Pairs = ()) -> Any:
    lists = assign.items() if isinstance(assign, dict) else assign
    pairs = configs.items() if isinstance(configs, dict) else configs
    return REQUEST.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=rf,
        assignments=[REQUEST.CreatableReplicaAssignment(index, list(replicas)) for index, replicas in lists],
        configs=[REQUEST.CreatableTopicConfig(key, value) for key, value in pairs],
    )


def manual(assign: Pairs, **more: Any) -> Any:
    return topic(partitions=-1, rf=-1, assign=assign, **more)


def growth(count: int, lists: list[list[int]] | None = None, name: str = "t") -> Any:
    request = messages.CreatePartitionsRequest
    assignments = None if lists is None else [request.CreatePartitionsAssignment(replicas) for replicas in lists]
    return request.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
