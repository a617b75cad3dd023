"""What a handler gets with its request: who sent it, in which version, and the services of the broker.

Every check of a permission goes through the context, so that an authorizer works in every API at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.controller.events.causes import RequestReceived
from klamm.protocol.apis import APIS, ApiKey
from klamm.server.security.authorizer import CLUSTER_NAME, SUPPORTED_OPERATIONS, AllowAll, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from klamm.server.requests.peer import Peer
    from klamm.server.services import Services


class CloseConnection(Exception):
    """Raised by a handler when the only right response is to close the connection. Its text goes into the log."""


class Context:
    """One request's surroundings.

    `cacheable` becomes false when the response may be different although the request's bytes and the metadata cache are the same.
    `large`: the response is so long that it is encoded in a thread.
    """

    __slots__ = ("api_key", "api_version", "cacheable", "client_id", "correlation_id", "large", "peer", "services")

    def __init__(
        self, services: Services, peer: Peer, api_key: ApiKey, api_version: int, client_id: str | None = None, correlation_id: int = 0
    ) -> None:
        self.services = services
        self.peer = peer
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.correlation_id = correlation_id
        self.cacheable = True
        self.large = False

    @property
    def cause(self) -> RequestReceived:
        """This request as the cause of an event."""
        return RequestReceived(APIS[self.api_key].name, self.peer.connection, self.correlation_id)

    def authorize(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the principal may do this. The name is needed for everything but the cluster."""
        authorizer = self.services.authorizer
        if type(authorizer) is AllowAll:
            return True
        self.cacheable = False  # rules may change between two requests, and differ by principal
        return authorizer.authorize(self.peer.principal, operation, Resource(resource_type, name))

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Bit set of what the principal may do to a resource, as Metadata and DescribeCluster report it."""
        return sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type] if self.authorize(operation, resource_type, name))
