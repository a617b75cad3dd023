"""What a fenced broker responds: the APIs of a broker that the controller does not count as online (controller 25, RREG-6).

ApiVersions and the requests of controllers and brokers to each other (those that need CLUSTER_ACTION) stay as they are. Any other request
gets BROKER_NOT_AVAILABLE where the response has an error code at its top in the version of the request; else the connection is closed.
Fetch and InitProducerId are closed in every version: a consumer or follower that reads an unexpected code there asks the same broker
again at once, and a producer gives up; after a lost connection both look for another leader.

Nothing here is cached or repeated: a broker that is fenced or not has two dispatchers, and the listeners have one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.requests.dispatch import Handler

CLOSED = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.INIT_PRODUCER_ID})
"""APIs whose clients have to look for another broker."""


def fenced_handlers(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The handlers of a broker while it is fenced, from those of the same broker while it is online."""
    return {
        key: handler if APIS[key].cluster_action or key == ApiKey.API_VERSIONS else _refusing(key, handler)
        for key, handler in handlers.items()
    }


def _refusing(api_key: int, handler: Handler) -> Handler:
    def handle(ctx: Context, request: Any) -> Any:
        if api_key in CLOSED or ctx.api_version not in _versions_with_code(api_key):
            raise CloseConnection("this broker is fenced")
        return handler.refuse(request, ctx.api_version, ErrorCode.BROKER_NOT_AVAILABLE, "The broker is fenced.")

    return Handler(handle, handler.refuse)


@cache
def _versions_with_code(api_key: int) -> range:
    """The versions of the response that have an error code at the top. Loads its definition, so it is looked at only when it is needed."""
    schema = messages.message_type(f"{APIS[api_key].name}Response").schema
    for field in schema.root.fields:
        if field.attribute == "error_code":
            return range(field.versions.low, field.versions.high + 1)
    return range(0)
