"""A JSON object: what verbs of steering take and show."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
