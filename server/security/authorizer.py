"""Access control: principals, operations, resources, and the interface of authorizers.

The numbers are Kafka's (AclOperation, ResourceType). The bit fields of "authorized operations" in Metadata and DescribeCluster use them
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

CLUSTER_NAME = "kafka-cluster"


class Operation(IntEnum):
    """An operation on a resource, such as READ."""

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
    """Kinds of resources that can be protected."""

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
    """One protected resource. The name of the cluster is "kafka-cluster"."""

    type: ResourceType
    name: str


class Principal(NamedTuple):
    """The client or broker that sends a request."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Authorizer(Protocol):
    """Decides whether a principal may do something. Called once for each check, on the event loop: it must not block. `host` is the
    address of the client, as Java writes it.
    """

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
        """Whether the principal may do the operation on the resource."""

    def authorize_some(self, principal: Principal, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        """Whether the principal may do the operation on at least one resource of this type, even if there is none yet."""


class AllowAll:
    """The default authorizer: everything is allowed."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
        return True

    def authorize_some(self, principal: Principal, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        return True
