"""The exit codes of `klamm`; docs/exit_codes.md explains them to users.

A process that a signal ends before its work is done exits with 128 and the number of the signal: 130 for SIGINT, 143 for SIGTERM.
"""

from __future__ import annotations

SUCCESS = 0
FAILED = 1
"""The command failed, completely or in part."""
USAGE = 2
"""The command line is wrong; nothing was done."""
VIOLATED = 3
"""The command succeeded, but what it checked is wrong: a rule is violated, or rows are missing."""

KAFKAS_TOOLS = frozenset({"acls", "configs", "leader-election", "preferred-replica-election", "reassign-partitions"})
"""Commands that replace tools of Kafka. Their exit codes are Kafka's: 1 for every failure, including a wrong command line."""
