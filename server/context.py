"""What a handler knows of its request, and the seams it asks: who may do what, which topics are welcome, who has to wait.

Every handler gets one Context and passes everything through it, so that an authorizer, a topic policy or a quota put into the
node later works in every API at once. The defaults allow everything. Numbers are Kafka's (AclOperation, ResourceType): they
also make the bit sets of "authorised operations" in Metadata and DescribeCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from klamm.server.broker_server import BrokerServer

CLUSTER_NAME = "kafka-cluster"
AUTHORIZED_OPERATIONS_OMITTED = -2147483648


class Operation(IntEnum):
    """What somebody wants to do to a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Kinds of things that can be protected."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE,
    ),
}


class Resource(NamedTuple):
    """One protected thing. The cluster is named "kafka-cluster"."""

    type: ResourceType
    name: str


class Principal(NamedTuple):
    """Who asks."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Authorizer(Protocol):
    """Decides whether a principal may do something. Called once for each check, on the event loop: it must not block."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """True when allowed."""


class AllowAll:
    """The authorizer of a broker that has none configured."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        return True


class MutationQuota(Protocol):
    """controller_mutation_rate: how long somebody has to wait for creating or deleting so many partitions."""

    def __call__(self, principal: Principal, mutations: int) -> int:
        """Throttle time in ms, 0 when the mutations fit into the quota (and are counted)."""


def no_quota(principal: Principal, mutations: int) -> int:
    """The quota of a broker that has none."""
    return 0


class CloseConnection(Exception):
    """Raised by a handler when the only right answer is to close the connection. Its text goes into the log."""


class Context:
    """One request's surroundings. `listener` is the listener's name, `client_host` the peer's address without port.

    `cacheable` turns false when the answer may be another one although the request's bytes and the metadata cache are the same.
    `large`: the answer, which somebody waits for, is so long that it is encoded in a thread.
    """

    __slots__ = ("api_key", "api_version", "cacheable", "client_host", "client_id", "large", "listener", "node", "principal")

    def __init__(
        self,
        node: BrokerServer,
        api_key: int,
        api_version: int,
        client_id: str | None = None,
        principal: Principal = ANONYMOUS,
        listener: str = "PLAINTEXT",
        client_host: str = "127.0.0.1",
    ) -> None:
        self.node = node
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.principal = principal
        self.listener = listener
        self.client_host = client_host
        self.cacheable = True
        self.large = False

    def authorize(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """May the caller do this? The name is needed for everything but the cluster."""
        authorizer = self.node.authorizer
        if type(authorizer) is AllowAll:
            return True
        self.cacheable = False  # rules may change between two requests, and differ by principal
        return authorizer.authorize(self.principal, operation, Resource(resource_type, name))

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Bit set of what the caller may do to a resource, as Metadata and DescribeCluster report it."""
        return sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type] if self.authorize(operation, resource_type, name))
