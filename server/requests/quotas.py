"""Quotas: how much a principal may do in a time. There is one so far, for changes of topics; the default has no limit."""

from __future__ import annotations

from typing import Protocol

from klamm.server.security.authorizer import Principal


class MutationQuota(Protocol):
    """controller_mutation_rate: how long a client has to wait after it creates or deletes this number of partitions."""

    def __call__(self, principal: Principal, mutations: int) -> int:
        """Throttle time in ms, 0 when the mutations fit into the quota (and are counted)."""


def no_quota(principal: Principal, mutations: int) -> int:
    """The quota of a broker that has none."""
    return 0
