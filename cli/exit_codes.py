"""The exit codes of `klamm`; docs/exit_codes.md explains them to users.

A process that a signal ends before its work is done exits with 128 and the number of the signal: 130 for SIGINT, 143 for SIGTERM.
"""

from __future__ import annotations

SUCCESS = 0
FAILED = 1
"""The command could not do its work, or a part of it."""
USAGE = 2
"""The command line is wrong; nothing was done."""
VIOLATED = 3
"""The command did its work, and its verdict is bad: a rule is violated, rows are missing."""

KAFKAS_TOOLS = frozenset({"configs", "leader-election", "preferred-replica-election", "reassign-partitions"})
"""Commands that stand in for tools of Kafka: their exit codes are Kafka's, 1 for every failure, a wrong command line too."""
