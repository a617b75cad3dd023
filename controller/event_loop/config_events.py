"""The config that the controller reads from ZooKeeper itself: `preferred_leader_blacklist` of `brokers/<default>` (KIP-491).

A notification only says which entity changed. The controller reads the znode at fail-over and after each notification, so that a late
notification cannot restore an old value. Notifications that are on the queue together cause one read. A change of the list moves no
leader: the next election uses it (R491-6).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.configs.definitions.blacklist import listed_brokers
from klamm.configs.definitions.types import ConfigError
from klamm.controller.term.term import Term
from klamm.controller.values import DEFAULT_BROKER, ConfigEntity, StoredConfig

log = logging.getLogger("klamm.controller")


async def load(term: Term) -> None:
    """Read the list at fail-over, before any election (R491-5). It is empty if the znode cannot be read."""
    if term.options.kip491_enable:
        await on_configs_changed(term, (DEFAULT_BROKER,))


async def on_configs_changed(term: Term, entities: Sequence[ConfigEntity]) -> None:
    """Read the configs of these entities, which may have changed, and remember the list if it is among them."""
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
    except ConfigError as error:  # all stored values that are invalid are ignored
        log.warning("configs of %s: a stored config is ignored: %s", DEFAULT_BROKER, error)
        listed = frozenset()
    if listed != cluster.listed:
        log.info("preferred_leader_blacklist: %s", sorted(listed) or "none")
        cluster.blacklist_changed(listed)
