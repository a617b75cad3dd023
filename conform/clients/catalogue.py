"""All sections of cases for clients, in order."""

from __future__ import annotations

from klamm.conform.clients import admin, fetch, groups, metadata, negotiation, produce, sasl, transactions
from klamm.conform.clients.client_section import ClientSection

SECTIONS: tuple[ClientSection, ...] = tuple(
    module.SECTION for module in (negotiation, metadata, produce, fetch, groups, transactions, admin, sasl)
)
