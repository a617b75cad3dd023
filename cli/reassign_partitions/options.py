"""Which options belong to which action (controller 18, 22.7). Options are checked before a file is read or a connection is opened."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import click

CONNECTIONS = ("bootstrap_server", "zookeeper")
BOTH_OR_NEITHER = "exactly one of --bootstrap-server and --zookeeper is needed"


class Action(Enum):
    """What the tool is to do."""

    GENERATE = "generate"
    EXECUTE = "execute"
    VERIFY = "verify"
    CANCEL = "cancel"
    LIST = "list"
    PROGRESS = "progress"


_FILE = "reassignment_json_file"
NEEDED: Mapping[Action, tuple[str, ...]] = {
    Action.GENERATE: ("topics_to_move_json_file", "broker_list"),
    Action.EXECUTE: (_FILE,),
    Action.VERIFY: (_FILE,),
    Action.CANCEL: (_FILE,),
    Action.LIST: (),
    Action.PROGRESS: (_FILE,),
}
ALLOWED: Mapping[Action, tuple[str, ...]] = {
    Action.GENERATE: ("disable_rack_aware",),
    Action.EXECUTE: ("additional", "throttle", "replica_alter_log_dirs_throttle", "timeout"),
    Action.VERIFY: ("preserve_throttles",),
    Action.CANCEL: ("preserve_throttles", "timeout"),
    Action.LIST: ("json",),
    Action.PROGRESS: ("watch", "json"),
}
NO_THROTTLE = -1
"""The value of both rates with which Kafka's tool sets none."""

NOT_BY_ZOOKEEPER = ("command_config", "additional", "replica_alter_log_dirs_throttle")
"""Options that need --bootstrap-server."""
ACTIONS_NOT_BY_ZOOKEEPER = (Action.CANCEL, Action.PROGRESS)


def option(name: str) -> str:
    """The option as the user types it."""
    return "--" + name.replace("_", "-")


def check(given: Mapping[str, Any]) -> Action:
    """The chosen action. `given` has a value for every option; None or False if it was not given. Raises UsageError."""
    actions = [action for action in Action if given[action.value]]
    if len(actions) != 1:
        named = ", ".join(option(action.value) for action in Action)
        raise click.UsageError(f"exactly one of {named} is needed")
    (action,) = actions
    connections = [name for name in CONNECTIONS if given[name] is not None]
    if len(connections) != 1:
        raise click.UsageError(BOTH_OR_NEITHER)
    belonging = (action.value, "command_config", *CONNECTIONS, *NEEDED[action], *ALLOWED[action])
    for name, value in given.items():
        if value is not None and value is not False and name not in belonging:
            raise click.UsageError(f"{option(name)} cannot be used with {option(action.value)}")
    missing = next((name for name in NEEDED[action] if given[name] is None), None)
    if missing is not None:
        raise click.UsageError(f"{option(action.value)} needs {option(missing)}")
    for name in ("throttle", "replica_alter_log_dirs_throttle"):
        if given[name] is not None and given[name] < NO_THROTTLE:
            raise click.UsageError(f"{option(name)} {given[name]} is not a rate; {NO_THROTTLE} means no throttle")
    if given["zookeeper"] is not None:
        _check_zookeeper(action, given)
    return action


def _check_zookeeper(action: Action, given: Mapping[str, Any]) -> None:
    if action in ACTIONS_NOT_BY_ZOOKEEPER:
        raise click.UsageError(f"{option(action.value)} needs --bootstrap-server; it cannot be used with --zookeeper")
    wrong = next((name for name in NOT_BY_ZOOKEEPER if given[name] not in (None, False)), None)
    if wrong is not None:
        raise click.UsageError(f"{option(wrong)} needs --bootstrap-server; it cannot be used with --zookeeper")
