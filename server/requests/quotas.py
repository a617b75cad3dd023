"""The client quotas of a broker: kept up to date with the stored configs, and asked by those who enforce them.

While no quota is stored they cost nothing: the handlers are the plain ones, and what measures is not even imported. With the first quota
the dispatchers take the handlers that `server/requests/throttling.py` makes, with the last one they give them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.client_quotas import CLIENT_QUOTAS, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from klamm.configs.client_quotas import number_of as quota_of
from klamm.seams.clock import Clock
from klamm.server.security.authorizer import Principal
from klamm.zk.layout.paths import sanitize

if TYPE_CHECKING:
    from klamm.broker.client_quotas import ClientQuota, Entity, MutationBuckets

znode_name = lru_cache(maxsize=1000)(sanitize)
"""The name of the znode of a user or client, remembered because clients send it with each request."""


class MutationQuota(Protocol):
    """Kafka's controller_mutation_rate: limits the partitions that a client creates and deletes."""

    def __call__(self, principal: Principal, client_id: str, mutations: int, *, strict: bool) -> int:
        """Count these partitions; returns the throttle time in ms, 0 if they are within the quota. What a strict quota throttles is
        refused, and does not count.
        """


class Enforced:
    """The quotas of all kinds."""

    def __init__(self, config: BrokerConfig) -> None:
        from klamm.broker.client_quotas import ClientQuota, MutationBuckets

        samples, sample_s = config.get("quota.window.num"), config.get("quota.window.size.seconds")
        self.produced: ClientQuota = ClientQuota(samples, sample_s)
        self.fetched: ClientQuota = ClientQuota(samples, sample_s)
        self.requests: ClientQuota = ClientQuota(samples, sample_s, at_most_a_sample=True)
        self.mutations: MutationBuckets = MutationBuckets(
            config.get("controller.quota.window.num"), config.get("controller.quota.window.size.seconds")
        )
        self._bounds = {
            PRODUCER_BYTE_RATE: self.produced.bounds,
            CONSUMER_BYTE_RATE: self.fetched.bounds,
            REQUEST_PERCENTAGE: self.requests.bounds,
            CONTROLLER_MUTATION_RATE: self.mutations.bounds,
        }

    def set(self, entity: Entity, quotas: Mapping[str, float]) -> bool:
        """Replace the quotas of an entity; returns whether there is a quota of any entity."""
        for key, bounds in self._bounds.items():
            bounds.set(entity, quotas.get(key))
        return any(self._bounds.values())


class ClientQuotas:
    """The quotas of one broker's clients. `enforced` is None while there are none."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.enforced: Enforced | None = None
        self.listeners: list[Callable[[], None]] = []
        """Called when `enforced` has changed."""
        self._config = config
        self._clock = clock
        self._made: Enforced | None = None

    def set(self, kind: str, name: str, properties: Mapping[str, str]) -> None:
        """Apply the stored configs of a user, a client of a user, or a client. Raises ValueError for a value that is not a number."""
        quotas = {key: quota_of(text, CLIENT_QUOTAS[key]) for key, text in properties.items() if key in CLIENT_QUOTAS}
        if self._made is None and not quotas:
            return
        if self._made is None:
            self._made = Enforced(self._config)
        first, _, client = name.partition("/clients/")
        has_any = self._made.set((first, client) if kind == "users" else ("", first), quotas)
        enforced = self._made if has_any else None
        if enforced is not self.enforced:
            self.enforced = enforced
            for listener in self.listeners:
                listener()

    def mutate(self, principal: Principal, client_id: str, mutations: int, *, strict: bool) -> int:
        """The `MutationQuota` of the stored configs."""
        if self.enforced is None:
            return 0
        now_ms = int(self._clock.monotonic() * 1000)
        names = znode_name(principal.name), znode_name(client_id)
        return self.enforced.mutations.record(*names, mutations, now_ms, strict=strict)
