"""Why a tool ends: what it says in one line, and whether it may try again."""

from __future__ import annotations


class ToolFailed(Exception):
    """The tool cannot do what its options say; the text is one line."""


class NotReachable(ToolFailed):
    """The cluster does not respond; the next try may succeed."""
