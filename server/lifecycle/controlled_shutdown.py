"""The broker's side of a controlled shutdown: before it stops, it requests that the controller moves its leaderships to other brokers.

It makes `controlled.shutdown.max.retries` attempts, `controlled.shutdown.retry.backoff.ms` apart, until no partition is left. After the
last attempt the broker stops anyway. Source: controller 10.4.

A patient broker does all that, like Apache Kafka. An impatient broker belongs to a cluster that stops as a whole: if leaderships do not
move at the first attempt, there is no broker left to take them, so it does not wait for the next attempt.
"""

from __future__ import annotations

import logging
from typing import Protocol

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.controller.values import StoreLost
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.seams.clock import Clock
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.net.controller_requests import ControllerRequests, ControllerUnreachable

log = logging.getLogger(__name__)

IMPATIENT_BACKOFF_S = 0.05
IMPATIENT_TIMEOUT_S = 1.0
BROKERS = "/brokers/ids"


class RegisteredBrokers(Protocol):
    """Lists the registered brokers; see `ZkSession`."""

    async def children(self, path: str) -> list[str]:
        """Names of the child znodes. Raises StoreLost."""


async def request_controlled_shutdown(
    identity: BrokerIdentity, config: BrokerConfig, controller: ControllerRequests, zk: RegisteredBrokers, patient: bool
) -> bool:
    """Send requests until this broker does not lead any partition; returns whether that succeeded."""
    broker_id = identity.broker_id
    attempts = config.get("controlled.shutdown.max.retries")
    backoff_s = config.get("controlled.shutdown.retry.backoff.ms") / 1000 if patient else IMPATIENT_BACKOFF_S
    for attempt in range(attempts):
        if attempt > 0:
            if not patient and await _is_alone(broker_id, zk, controller.clock):
                break
            await controller.clock.sleep(backoff_s)
        remaining = await _attempt(identity, config, controller, patient)
        if remaining == 0:
            log.info("broker %d: controlled shutdown done", broker_id)
            return True
        if remaining is not None and not patient:
            break
    log.info("broker %d: controlled shutdown given up", broker_id)
    return False


async def _attempt(identity: BrokerIdentity, config: BrokerConfig, controller: ControllerRequests, patient: bool) -> int | None:
    """Make one attempt; returns the number of partitions that this broker still leads, None after an error or without a response."""
    broker_id = identity.broker_id
    timeout_s = min(config.get("controller.socket.timeout.ms"), config.get("request.timeout.ms")) / 1000
    if not patient:
        timeout_s = min(timeout_s, IMPATIENT_TIMEOUT_S)
    request = messages.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=identity.broker_epoch)
    version = MetadataVersion.of(config.get("inter.broker.protocol.version")).controlled_shutdown_version
    try:
        response = await controller.send(ApiKey.CONTROLLED_SHUTDOWN, version, request, timeout_s)
    except ControllerUnreachable as error:
        log.warning("broker %d: controlled shutdown: no response from the controller: %s", broker_id, error)
        return None
    if response.error_code != ErrorCode.NONE:
        log.warning("broker %d: controlled shutdown: the controller returned error %d", broker_id, response.error_code)
        return None
    if response.remaining_partitions:
        log.info("broker %d: controlled shutdown: %d partitions could not be moved", broker_id, len(response.remaining_partitions))
    return len(response.remaining_partitions)


async def _is_alone(broker_id: int, zk: RegisteredBrokers, clock: Clock) -> bool:
    """Whether no other broker is registered; also True if ZooKeeper does not respond."""
    try:
        async with clock.timeout(IMPATIENT_TIMEOUT_S):
            return not set(await zk.children(BROKERS)) - {str(broker_id)}
    except (TimeoutError, StoreLost):
        return True
