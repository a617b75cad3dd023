"""The handlers of a fenced broker, which the controller does not count as online (controller 25, RREG-6).

ApiVersions and the requests between controllers and brokers (those that need CLUSTER_ACTION) are handled as usual. Any other request gets
BROKER_NOT_AVAILABLE if the response has a top-level error code in this version; otherwise the connection is closed. Produce, Fetch,
InitProducerId and the requests of groups always close the connection: after an unexpected code a consumer or follower sends its fetch to
the same broker again at once, and a producer gives up. After a lost connection they look for another leader or coordinator.

The responses are not cached. A broker has two dispatchers, one for each state, and its listeners use one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, Api, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.requests.dispatch import Handler


def _has_other_brokers(api: Api) -> bool:
    """Whether clients must look for another broker: a leader or a coordinator. No broker does ConsumerGroupHeartbeat."""
    if api.key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        return False
    return api.about is not None or api.key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.FIND_COORDINATOR)


def fenced_handlers(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The handlers for a fenced broker, made from its handlers while it is online."""
    return {
        key: handler if APIS[key].cluster_action or key == ApiKey.API_VERSIONS else _refusing(key, handler)
        for key, handler in handlers.items()
    }


def _refusing(api_key: int, handler: Handler) -> Handler:
    def handle(ctx: Context, request: Any) -> Any:
        if _has_other_brokers(APIS[api_key]) or ctx.api_version not in _versions_with_code(api_key):
            raise CloseConnection("this broker is fenced")
        return handler.refuse(request, ctx.api_version, ErrorCode.BROKER_NOT_AVAILABLE, "The broker is fenced.")

    return Handler(handle, handler.refuse)


@cache
def _versions_with_code(api_key: int) -> range:
    """The response versions that have a top-level error code. Loads the message definition, so it is only called when needed."""
    schema = messages.message_type(f"{APIS[api_key].name}Response").schema
    for field in schema.root.fields:
        if field.attribute == "error_code":
            return range(field.versions.low, field.versions.high + 1)
    return range(0)
