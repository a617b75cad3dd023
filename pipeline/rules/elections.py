"""Rules `E`: elections of leaders, as ElectLeaders and the controller's answers show them."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule

RULES: tuple[Rule, ...] = ()
