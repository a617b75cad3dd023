"""Configs that the controller decides by, as they are in ZooKeeper: `preferred_leader_blacklist` of `brokers/<default>` (KIP-491).

A notification says which entity to read; it never says what is there. The controller reads the znode itself, at fail-over and again at
each notification, so that a notification which comes late cannot set back what a later one has set. Notifications that wait together are
one read. A list that changes moves no leader: the next election goes by it (R491-6).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.configs.blacklist import listed_brokers
from klamm.configs.types import ConfigError
from klamm.controller.term import Term
from klamm.controller.values import DEFAULT_BROKER, ConfigEntity, StoredConfig

log = logging.getLogger("klamm.controller")


async def load(term: Term) -> None:
    """The list at fail-over, before anybody is elected (R491-5). Where its znode cannot be read the list is empty."""
    if term.options.kip491_enable:
        await on_configs_changed(term, (DEFAULT_BROKER,))


async def on_configs_changed(term: Term, entities: Sequence[ConfigEntity]) -> None:
    """Configs of these entities may have changed: read them, and take from them what the controller decides by."""
    for entity, stored in zip(entities, await term.store.read_configs(entities), strict=True):
        if entity == DEFAULT_BROKER and term.options.kip491_enable:
            _take_blacklist(term, stored)


def _take_blacklist(term: Term, stored: StoredConfig | None) -> None:
    cluster = term.cluster
    if stored is None:
        log.error("the configs of %s cannot be read: brokers %s stay on the blacklist", DEFAULT_BROKER, sorted(cluster.listed))
        return
    try:
        listed = listed_brokers(stored.properties)
    except ConfigError as error:  # as every stored value that is not valid
        log.warning("configs of %s: a stored config is ignored: %s", DEFAULT_BROKER, error)
        listed = frozenset()
    if listed != cluster.listed:
        log.info("brokers that lead only where no other can: %s", sorted(listed) or "none")
        cluster.blacklist_changed(listed)
