"""The golden messages that are good."""

from __future__ import annotations

GOOD = {"defaults", "full", "nulls", "empty", "max", "min", "long"}
