"""One line in the log for each operation that ACLs deny, with the text of `kafka.authorizer.logger` of Apache Kafka 3.9.1.

As there, a check does not log if the client did not request the resource by its name, or may do the same by another permission.
"""

from __future__ import annotations

import logging

from klamm.protocol.security.acls import OPERATIONS, RESOURCE_TYPES
from klamm.server.security.authorizer import Operation, Principal, Resource

log = logging.getLogger(__name__)


def log_denial(principal: Principal, operation: Operation, resource: Resource, host: str, request: str) -> None:
    """`request` is the name of the API."""
    log.info(
        "Principal = %s is Denied Operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s",
        principal, OPERATIONS[operation], host, RESOURCE_TYPES[resource.type], resource.name.replace("\n", "\\n"), request,
    )
