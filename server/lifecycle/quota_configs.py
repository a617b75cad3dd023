"""Applies the stored configs of users, clients and addresses: client quotas, and the rates at which addresses may connect.

A value that is not a number is logged and ignored, and so is an address that does not resolve; what was applied before stays.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping

from klamm.configs.client_quotas import CONNECTION_CREATION_RATE, IP_QUOTAS, number_of
from klamm.server.ground.background import BackgroundTasks
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.requests.quotas import ClientQuotas
from klamm.zk.layout.paths import DEFAULT_ENTITY

log = logging.getLogger(__name__)


class QuotaConfigs:
    """Applies changes to the quotas of one broker."""

    def __init__(self, quotas: ClientQuotas, limits: ConnectionLimits, background: BackgroundTasks) -> None:
        self._quotas = quotas
        self._limits = limits
        self._background = background

    def __call__(self, kind: str, name: str, properties: Mapping[str, str]) -> None:
        """Apply the configs of an entity; other types of entities have no quotas."""
        try:
            if kind in ("users", "clients"):
                self._quotas.set(kind, name, properties)
            elif kind == "ips":
                text = properties.get(CONNECTION_CREATION_RATE)
                limit = None if text is None else int(number_of(text, IP_QUOTAS[CONNECTION_CREATION_RATE]))
                self._limit_address(name, limit)
        except ValueError as problem:
            log.error("quotas of %s/%s are ignored: %s", kind, name, problem)

    def _limit_address(self, name: str, limit: int | None) -> None:
        if name == DEFAULT_ENTITY:
            self._limits.limit_address(None, limit)
            return
        try:
            address = str(ipaddress.ip_address(name))
        except ValueError:
            self._background.start(self._limit_host(name, limit))
        else:
            self._limits.limit_address(address, limit)

    async def _limit_host(self, name: str, limit: int | None) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None)
        except (OSError, UnicodeError) as problem:
            log.error("the quota of ips/%s is ignored: %s", name, problem)
        else:
            self._limits.limit_address(str(found[0][4][0]), limit)
