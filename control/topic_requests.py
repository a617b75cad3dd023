"""Topics are created, get partitions and are deleted by requests to the controller, as clients do it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from klamm.control.bodies import PartitionsBody, TopicBody
from klamm.control.history import CLIENT_ID
from klamm.control.own_brokers import OwnBrokers
from klamm.control.refusal import Refused
from klamm.controller.values import StoreLost
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.listeners.listeners import outgoing_security
from klamm.server.local.seed_topics import version_for
from klamm.server.net.outgoing_connections import request_once

__tracebackhide__ = True  # pytest leaves out the lines of this module

CREATE_VERSION = 7
DELETE_VERSION = 5
GROW_VERSION = 3
TIMEOUT_S = 30.0
LOOK_S = 0.005


async def create_topic(cluster: OwnBrokers, body: TopicBody) -> None:
    """Create a topic. Raises Refused if the controller refuses or is absent."""
    replicas = body.replicas
    if replicas is not None and (body.partitions is not None or body.replication_factor is not None):
        raise Refused("replicas: they say how many partitions and replicas there are; leave the two numbers out")
    kind = messages.CreateTopicsRequest
    wanted = kind.CreatableTopic(
        name=body.name,
        num_partitions=-1 if body.partitions is None else body.partitions,
        replication_factor=-1 if body.replication_factor is None else body.replication_factor,
        assignments=[kind.CreatableReplicaAssignment(index, tuple(ids)) for index, ids in enumerate(replicas or ())],
        configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in body.configs.items()],
    )
    request = kind(topics=[wanted], timeout_ms=int(TIMEOUT_S * 1000))
    row = await _ask(cluster, ApiKey.CREATE_TOPICS, CREATE_VERSION, request, lambda response: response.topics[0])
    _check(row, ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {body.name!r} cannot be created")


async def add_partitions(cluster: OwnBrokers, name: str, body: PartitionsBody) -> None:
    """Let a topic have this number of partitions. Raises Refused if the controller refuses or is absent."""
    kind = messages.CreatePartitionsRequest
    placed = None if body.replicas is None else [kind.CreatePartitionsAssignment(tuple(ids)) for ids in body.replicas]
    wanted = kind.CreatePartitionsTopic(name=name, count=body.partitions, assignments=placed)
    request = kind(topics=[wanted], timeout_ms=int(TIMEOUT_S * 1000))
    row = await _ask(cluster, ApiKey.CREATE_PARTITIONS, GROW_VERSION, request, lambda response: response.results[0])
    _check(row, ErrorCode.INVALID_PARTITIONS, f"topic {name!r} cannot have {body.partitions} partitions")


async def delete_topic(cluster: OwnBrokers, name: str) -> None:
    """Delete a topic; return when no running broker shows it and, if all brokers run, its znode is gone. Raises Refused: the controller
    refuses it, or time is over.
    """
    request = messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=int(TIMEOUT_S * 1000))
    row = await _ask(cluster, ApiKey.DELETE_TOPICS, DELETE_VERSION, request, lambda response: response.responses[0])
    _check(row, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} cannot be deleted")

    async def is_gone() -> bool:
        if any(broker.metadata.contains(name) for broker in cluster.brokers):
            return False
        reader = next((broker for broker in cluster.brokers if broker.zk.is_connected), None)
        if reader is None:
            return False
        try:
            (stored,) = await reader.store.read_topics([name])
        except StoreLost:
            return False
        return stored is None or len(cluster.brokers) < cluster.count

    await _until(is_gone, f"no broker shows topic {name!r}")


_STATUSES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.INVALID_CONFIG: 400,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 400,
}
"""Of HTTP. Other refusals depend on the state of the cluster: 409."""


class _Answer(NamedTuple):
    row: Any
    is_repeated: bool
    """Whether an earlier request has perhaps done the work."""


async def _ask(cluster: OwnBrokers, api: ApiKey, version: int, request: Any, row_of: Callable[[Any], Any]) -> _Answer:
    """What the controller responds, also the next one when it moves."""
    row: Any = None
    sent = 0

    async def is_answered() -> bool:
        nonlocal row, sent
        address = next(((host, port) for number, host, port in cluster.addresses if number == cluster.controller_id), None)
        if address is None:
            return False
        sent += 1
        try:
            security = outgoing_security(cluster.brokers[0].config)
            version_of = _version(cluster, api, version)
            row = row_of(await request_once(*address, api, version_of, CLIENT_ID, request, TIMEOUT_S, security=security))
        except (OSError, RemoteProtocolError):
            return False
        return bool(row.error_code != ErrorCode.NOT_CONTROLLER)

    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await is_answered():  # noqa: ASYNC110 the controller is asked, it tells nobody
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise Refused(f"the controller did not respond within {TIMEOUT_S:g} s", 408) from None
    return _Answer(row, sent > 1)


def _version(cluster: OwnBrokers, api: ApiKey, newest: int) -> int:
    """The version that the brokers offer. Raises Refused."""
    try:
        return version_for(cluster.brokers[0].config, api, newest)
    except StartFailed as problem:
        raise Refused(str(problem), 409) from None


def _check(answer: _Answer, done: ErrorCode, what: str) -> None:
    """Raises Refused. `done` is the error that a repeated request gets if the first one did the work."""
    row = answer.row
    if row.error_code and not (answer.is_repeated and row.error_code == done):
        code = ErrorCode(row.error_code)
        reason = getattr(row, "error_message", None)
        raise Refused(f"{what}: {code.name}" + (f": {reason}" if reason else ""), _STATUSES.get(code, 409))


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await holds():  # noqa: ASYNC110 no one event says that all caches agree
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise Refused(f"not within {TIMEOUT_S:g} s: {what}", 408) from None
