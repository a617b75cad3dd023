"""Changes of single properties in the configs of many topics or brokers, as the controller makes them for throttles (KIP-179).

What else a config znode holds survives: it is read, changed and written under the condition that nobody wrote it meanwhile; where somebody
did, it is read again. One batch of reads and one batch of writes serve all entities; each write carries the notification that makes the
brokers read the entity again. What needs no change is neither written nor announced.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from klamm.controller.store import Store
from klamm.controller.throttle_steps import Properties
from klamm.controller.values import ConfigEntity, ConfigWrite, WriteOutcome

log = logging.getLogger("klamm.controller.throttles.procedure")

# An entity that somebody else writes again and again is given up after this number of tries.
ATTEMPTS = 20


async def change(store: Store, wanted: Mapping[ConfigEntity, Properties]) -> set[ConfigEntity]:
    """Set and delete properties of these entities, in their order; those whose config could not be read or written, which is logged.

    An entity without a znode gets one only where a property is set.
    """
    failed: set[ConfigEntity] = set()
    todo = dict(wanted)
    for _ in range(ATTEMPTS):
        writes = []
        for entity, stored in zip(todo, await store.read_configs(list(todo)), strict=True):
            if stored is None:
                failed.add(entity)
                continue
            after = _changed(stored.properties, todo[entity])
            if after != stored.properties:
                writes.append(ConfigWrite(entity, after, stored.version))
        if not writes:
            return failed
        again = {}
        for write, outcome in zip(writes, await store.write_configs(writes), strict=True):
            if outcome is WriteOutcome.FAILED:
                log.error("the config of %s cannot be written", write.entity)
                failed.add(write.entity)
            elif outcome is not WriteOutcome.OK:
                again[write.entity] = todo[write.entity]
        if not again:
            return failed
        todo = again
    log.error("the configs of %s are changed all the time by somebody else", ", ".join(map(str, todo)))
    return failed | set(todo)


def _changed(properties: Mapping[str, str], wanted: Properties) -> dict[str, str]:
    after = {name: value for name, value in properties.items() if name not in wanted}
    after.update((name, value) for name, value in wanted.items() if value is not None)
    return after
