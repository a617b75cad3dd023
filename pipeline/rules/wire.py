"""Rules `W`: frames and their order on connections, as docs/spec/wire.md has them."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule

RULES: tuple[Rule, ...] = ()
