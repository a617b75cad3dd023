"""Failures of tools, each with a message of one line."""

from __future__ import annotations


class ToolFailed(Exception):
    """The tool cannot do what its options request. The message is one line."""


class NotReachable(ToolFailed):
    """The cluster does not respond. A later attempt may succeed."""
