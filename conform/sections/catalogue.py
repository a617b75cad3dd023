"""All sections, in order."""

from __future__ import annotations

from klamm.conform.case import Section
from klamm.conform.sections import (
    admin,
    fetch,
    frames,
    groups,
    limits,
    metadata,
    negotiation,
    pipelining,
    produce,
    quotas,
    sasl,
    transactions,
    versions,
)

SECTIONS: tuple[Section, ...] = tuple(
    module.SECTION
    for module in (
        frames, negotiation, versions, limits, metadata, produce, fetch, groups, transactions, quotas, sasl, admin, pipelining,
    )
)
