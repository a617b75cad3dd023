"""The context that a handler gets with its request: the client, the version and the services of the broker.

All permission checks go through the context, so that an authorizer works for every API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.controller.events.causes import RequestReceived
from klamm.protocol.apis import APIS, ApiKey
from klamm.server.security.authorizer import CLUSTER_NAME, SUPPORTED_OPERATIONS, AllowAll, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from klamm.server.requests.peer import Peer
    from klamm.server.requests.services import Services


class CloseConnection(Exception):
    """Raised by a handler if the connection must be closed instead of a response. Its text is logged.

    `last` are bytes that are sent before, if there are any.
    """

    def __init__(self, reason: str, last: bytes = b"") -> None:
        super().__init__(reason)
        self.last = last


class ClosedOnPurpose(CloseConnection):
    """A fault closes the connection: somebody wants it, so it is no warning."""


class Context:
    """The context of one request.

    `cacheable` becomes false if another response is possible for the same request bytes and the same metadata cache.
    `large`: the response is so large that it is encoded in a thread.
    """

    __slots__ = ("_denied", "api_key", "api_version", "cacheable", "client_id", "correlation_id", "large", "peer", "services")

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
        self._denied: set[tuple[Operation, Resource]] | None = None

    @property
    def cause(self) -> RequestReceived:
        """This request as the cause of an event."""
        return RequestReceived(APIS[self.api_key].name, self.peer.connection, self.correlation_id)

    @property
    def not_authorized(self) -> str:
        """The text of a response to a request that the principal may not send. Apache Kafka shows its object of the request in it."""
        return f"Request {APIS[self.api_key].name} is not authorized."

    def needs(self, operation: Operation) -> str:
        """The text of a refusal that says which operation on the cluster is missing. Only for APIs that Apache Kafka does not have."""
        return f"{self.peer.principal} needs {operation.name} on the cluster"

    def authorize(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME, *, logs: bool = True) -> bool:
        """Whether the principal may do this operation. `name` is needed for every resource type except the cluster. `logs`: what ACLs deny
        is logged.
        """
        authorizer = self.services.authorizer
        if type(authorizer) is AllowAll:
            return True
        self.cacheable = False  # the rules may change between two requests
        principal, resource, host = self.peer.principal, Resource(resource_type, name), self.peer.java_host
        allowed = authorizer.authorize(principal, operation, resource, host)
        if not allowed and logs and self.services.acls is not None:
            self._log_denial(operation, resource)
        return allowed

    def _log_denial(self, operation: Operation, resource: Resource) -> None:
        """Log it once for each request: a request may name many partitions of one topic."""
        if self._denied is None:
            self._denied = set()
        if (operation, resource) not in self._denied:
            from klamm.server.security.denial_log import log_denial

            self._denied.add((operation, resource))
            log_denial(self.peer.principal, operation, resource, self.peer.java_host, APIS[self.api_key].name)

    def authorize_some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may do this operation on at least one resource of the type."""
        authorizer = self.services.authorizer
        if type(authorizer) is AllowAll:
            return True
        self.cacheable = False
        return authorizer.authorize_some(self.peer.principal, operation, resource_type, self.peer.java_host)

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the principal may do on a resource, as the bit field of Metadata and DescribeCluster."""
        operations = SUPPORTED_OPERATIONS[resource_type]
        return sum(1 << operation for operation in operations if self.authorize(operation, resource_type, name, logs=False))
