"""Decisions about partitions, as values: what they are made from, and what they say (controller 5, 6, 7, 14).

A rule is a pure function of a Situation: neither clock, store nor log. The rules that `commit_states` is given are frozen dataclasses
with `__call__`, so that a journal can write down rule, situation and decision, and decide again (`event_loop/decision_json.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from klamm.controller.values import Assignment, LeaderAndIsr, Proposal
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints


class Refusal(IntEnum):
    """Why a partition keeps its state."""

    NO_STATE = 1
    """It has none in ZooKeeper."""
    NEWER_CONTROLLER = 2
    """Its state was written by a later controller."""
    NO_LEADER = 3
    """The rule finds no broker that can lead."""
    NO_REPLICA_ONLINE = 4
    WRITE_FAILED = 5
    """ZooKeeper refused this one write."""
    LOST_VERSION = 6
    """Another writer changed it, at each attempt."""
    NOT_NEEDED = 7
    """The broker that the rule finds leads already."""


class Situation(NamedTuple):
    """What a decision about one partition is made from."""

    state: LeaderAndIsr | None
    """None where the partition has no state yet."""
    assignment: Assignment
    registered: frozenset[int]
    shutting_down: frozenset[int]
    offline_dirs: frozenset[int]
    """Brokers whose log directory with this partition is offline."""
    controller_epoch: int
    is_queued_for_deletion: bool = False
    proposal: Proposal | None = None

    @property
    def alive(self) -> frozenset[int]:
        """Brokers that are there and stay."""
        return self.registered - self.shutting_down

    @property
    def online(self) -> frozenset[int]:
        """Brokers whose replica may lead or stay in sync."""
        return self.registered - self.shutting_down - self.offline_dirs

    @property
    def online_or_leaving(self) -> frozenset[int]:
        """As `online`, brokers that are shutting down included."""
        return self.registered - self.offline_dirs


class Write(NamedTuple):
    """Write this state, or create it where there is none."""

    state: LeaderAndIsr
    recipients: Ints | None
    """Who gets a LeaderAndIsr request; everybody gets an UpdateMetadata request. None: this commit sends neither."""


class Keep(NamedTuple):
    """The state in ZooKeeper is as wanted: remember it as this one."""

    state: LeaderAndIsr
    recipients: Ints | None


class Refuse(NamedTuple):
    """Nothing can be done."""

    reason: Refusal | ErrorCode
    at_once: bool = False
    """Whether the state in memory is good enough to say so."""


Decision = Write | Keep | Refuse
Decide = Callable[[Situation], Decision]
"""Pure: neither clock, store nor log. A frozen dataclass with `__call__` is a value too."""
