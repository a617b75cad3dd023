"""Rules `X`: what clients should do, as their requests show it. They warn; Klamm is not to blame."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule

RULES: tuple[Rule, ...] = ()
