"""Creates the topics that a cluster should have at its start, with a CreateTopics request like a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.listeners.listeners import outgoing_security
from klamm.server.local.arguments import SeedTopic
from klamm.server.net.outgoing_connections import request_once

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

CREATE_TOPICS_VERSION = 7
LOOK_S = 0.002

Address = tuple[str, int]


def version_for(config: BrokerConfig, key: int, newest: int) -> int:
    """The version of an API, up to `newest`, that brokers with these configs offer. Raises StartFailed if they hide the API."""
    if not config.is_narrowed:
        return newest
    from klamm.configs.definitions.api_versions import newest_offered  # few brokers need it

    version = newest_offered(config.values, key, newest)
    if version is None:
        raise StartFailed(f"the cluster needs {APIS[key].name}, which klamm.api.versions hides")
    return version


async def create_topics(
    topics: Sequence[SeedTopic], controller: Callable[[], Awaitable[Address | None]], timeout_s: float, config: BrokerConfig
) -> None:
    """Create the topics that do not exist. `controller` returns the address of the controller; while it returns None it is called again.
    `config` has the configs of its brokers.

    Raises StartFailed. The caller limits the time; `timeout_s` is the time-out in the request.
    """
    if not topics:
        return
    topic_type = messages.CreateTopicsRequest.CreatableTopic
    config_type = messages.CreateTopicsRequest.CreatableTopicConfig
    wanted = [
        topic_type(
            name=t.name,
            num_partitions=t.partitions,
            replication_factor=t.replication_factor,
            assignments=[],
            configs=[config_type(name=name, value=value) for name, value in t.configs],
        )
        for t in topics
    ]
    version = version_for(config, ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
    security = outgoing_security(config)
    request = messages.CreateTopicsRequest(topics=wanted, timeout_ms=int(timeout_s * 1000))
    while (response := await _request(request, version, controller, timeout_s, security)) is None:  # noqa: ASYNC110 the controller is asked, it tells nobody
        await asyncio.sleep(LOOK_S)
    for row in response.topics:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            reason = row.error_message or ErrorCode(row.error_code).name
            raise StartFailed(f"topic {row.name} cannot be created: {reason}")


async def _request(
    request: messages.CreateTopicsRequest, version: int, controller: Callable[[], Awaitable[Address | None]], timeout_s: float,
    security: OutgoingSecurity | None,
) -> messages.CreateTopicsResponse | None:
    """The response of the controller; None if it cannot be reached or is not the controller any more."""
    address = await controller()
    if address is None:
        return None
    try:
        response: messages.CreateTopicsResponse = await request_once(
            *address, ApiKey.CREATE_TOPICS, version, "klamm", request, timeout_s, security=security
        )
    except (OSError, RemoteProtocolError):
        return None
    if any(row.error_code == ErrorCode.NOT_CONTROLLER for row in response.topics):
        return None
    return response
