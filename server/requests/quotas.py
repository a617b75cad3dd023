"""Quotas of principals. So far there is one, for creating and deleting topics; by default it has no limit."""

from __future__ import annotations

from typing import Protocol

from klamm.server.security.authorizer import Principal


class MutationQuota(Protocol):
    """Kafka's controller_mutation_rate: limits the partitions that a client creates and deletes."""

    def __call__(self, principal: Principal, mutations: int) -> int:
        """Count these partitions; returns the throttle time in ms, 0 if they are within the quota."""


def no_quota(principal: Principal, mutations: int) -> int:
    """The quota of a broker without a quota: never throttles."""
    return 0
