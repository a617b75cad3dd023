"""Keeps a lake small: folds commits, removes old rows, merges small parts. It is done after each run, and while a lake is watched."""

from __future__ import annotations

import time
from typing import NamedTuple

from klamm.pipeline.lake import unjudged_rows as missing
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.merge import merge_small
from klamm.pipeline.retention import Removal, retain
from klamm.pipeline.stream import account


class Upkept(NamedTuple):
    """What was done: runs that are gone, runs that lost their oldest rows, and lines for people."""

    removed: list[str]
    shortened: list[str]
    notes: list[str]


def upkeep(lake: Lake, commits: Commits, keep_ns: int | None) -> Upkept:
    """Keep a lake small; without `keep_ns` nothing is removed. Silver has all rows of the commits, and no batch is being made.

    Raises PipelineFailed if rows of bronze are missing in silver.
    """
    account(lake, commits)
    commits.fold(lambda run: missing.numbers_by_node(missing.silver_numbers(lake, run)))
    plan = Removal() if keep_ns is None else retain(lake, commits, time.time_ns() - keep_ns)
    merge_small(lake)
    return Upkept(plan.runs, plan.shortened, [] if plan.is_empty else [plan.line])
