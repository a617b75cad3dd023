"""MBeans of Apache Kafka that Klamm does not have, and why: with those of `server/mbeans/table.py` they are all of a real broker."""

from __future__ import annotations

import json
from pathlib import Path

from klamm.server.mbeans.mbean import Kind, MBean

_ROWS = json.loads(Path(__file__).with_name("absent_mbeans.json").read_bytes())
ABSENT = tuple(MBean(**row | {"kind": Kind(row["kind"]), "keys": tuple(row.get("keys", ()))}) for row in _ROWS)
