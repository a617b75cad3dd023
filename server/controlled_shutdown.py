"""The broker's side of a controlled shutdown: before it stops, it requests that the controller moves its leaderships to other brokers.

It makes `controlled.shutdown.max.retries` attempts, `controlled.shutdown.retry.backoff.ms` apart, until the controller responds that no
partition remains. After the last attempt the broker stops in any case. Source: controller 10.4.

A patient broker does all that, as Apache Kafka. An impatient broker belongs to a cluster that stops as a whole: when leaderships do not
move at the first attempt, no broker is left to take them, so it does not wait for the next attempt.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from klamm.broker.metadata_cache import MetadataCache
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.inter_broker_protocol import MetadataVersion
from klamm.controller.values import StoreLost
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server.net.outgoing import ask
from klamm.zk.session import ZkSession

log = logging.getLogger(__name__)

IMPATIENT_BACKOFF_S = 0.05
IMPATIENT_TIMEOUT_S = 1.0
BROKERS = "/brokers/ids"


class StoppingBroker(Protocol):
    """What a controlled shutdown needs of its broker."""

    config: BrokerConfig
    inter_broker_listener: str
    zk: ZkSession

    @property
    def id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def metadata(self) -> MetadataCache: ...


async def leave(node: StoppingBroker, patient: bool) -> bool:
    """Ask to leave until the controller agrees; whether it did."""
    config = node.config
    attempts = config.get("controlled.shutdown.max.retries")
    backoff_s = config.get("controlled.shutdown.retry.backoff.ms") / 1000 if patient else IMPATIENT_BACKOFF_S
    for attempt in range(attempts):
        if attempt > 0:
            if not patient and await _alone(node):
                break
            await asyncio.sleep(backoff_s)
        remaining = await _ask(node, patient)
        if remaining == 0:
            log.info("broker %d: controlled shutdown done", node.id)
            return True
        if remaining is not None and not patient:
            break
    log.info("broker %d: controlled shutdown given up", node.id)
    return False


async def _ask(node: StoppingBroker, patient: bool) -> int | None:
    """One attempt: how many partitions this broker still leads, None when the controller did not say."""
    controller = node.metadata.brokers.get(node.metadata.controller_id) if node.metadata.controller_id is not None else None
    endpoint = None if controller is None else controller.endpoints.get(node.inter_broker_listener)
    if controller is None or endpoint is None:
        log.warning("broker %d: controlled shutdown: the controller is not known", node.id)
        return None
    timeout_s = min(node.config.get("controller.socket.timeout.ms"), node.config.get("request.timeout.ms")) / 1000
    if not patient:
        timeout_s = min(timeout_s, IMPATIENT_TIMEOUT_S)
    request = messages.ControlledShutdownRequest(broker_id=node.id, broker_epoch=node.broker_epoch)
    version = MetadataVersion.of(node.config.get("inter.broker.protocol.version")).controlled_shutdown_version
    try:
        response = await ask(endpoint.host, endpoint.port, ApiKey.CONTROLLED_SHUTDOWN, version, str(node.id), request, timeout_s)
    except (OSError, RemoteProtocolError) as error:
        log.warning("broker %d: controlled shutdown: no response from controller %d: %s", node.id, controller.id, error or "too slow")
        return None
    if response.error_code != ErrorCode.NONE:
        log.warning("broker %d: controlled shutdown: controller %d returned error %d", node.id, controller.id, response.error_code)
        return None
    if response.remaining_partitions:
        log.info("broker %d: controlled shutdown: %d partitions could not be moved", node.id, len(response.remaining_partitions))
    return len(response.remaining_partitions)


async def _alone(node: StoppingBroker) -> bool:
    """Whether no other broker is registered; a ZooKeeper that does not say counts as yes."""
    try:
        async with asyncio.timeout(IMPATIENT_TIMEOUT_S):
            return not set(await node.zk.children(BROKERS)) - {str(node.id)}
    except (TimeoutError, StoreLost):
        return True
