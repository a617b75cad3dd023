"""The verbs of the control API as one table: the server answers by it, `openapi.py` describes it, docs/control_routes.md shows it, and
tests compare all of them, `klamm control` and `klamm.testing` with it.

A route has a method, a path with `{names}` and a verb of `Control`. The verb's signature has the rest: names in the path, the type of the
`body` if it has one, and query parameters with their types. It returns a value for JSON.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import Any, Concatenate, get_args

from klamm.control.verbs.model import Control

Verb = Callable[Concatenate[Any, ...], Awaitable[Any]]
NUMBERS = frozenset(("number", "broker"))
"""Names in paths that are numbers; others are texts."""


class Route:
    """One route."""

    def __init__(self, method: str, path: str, summary: str, verb: Verb, processes: str = "") -> None:
        """`processes`: what is different if each broker has a process of its own."""
        self.method = method
        self.path = path
        self.summary = summary
        self.act = verb
        """(control, names of the path and query parameters by name, body)"""
        self.processes = processes
        self.names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters = inspect.signature(verb, eval_str=True).parameters
        self.body: type[Any] | None = parameters["body"].annotation if "body" in parameters else None
        self.query: Mapping[str, type[Any]] = {
            name: _type_of(each.annotation) for name, each in parameters.items() if name not in ("self", "body", *self.names)
        }


def _type_of(annotation: Any) -> type[Any]:
    """The type without None."""
    found: type[Any] = get_args(annotation)[0] if isinstance(annotation, UnionType) else annotation
    return found



_FIRST = "The first is that of the broker with the lowest id."
_LOST = "What a process counted after it was last looked at is lost when it is killed."
_CLOCKS = "Brokers learn of it one after the other: their clocks can differ by some milliseconds, which add up."

ROUTES: tuple[Route, ...] = (
    Route("GET", "/phases", "All phases, with their fields", Control.phases),
    Route("GET", "/holds", "All holds", Control.holds, _LOST),
    Route(
        "POST", "/holds", "Hold phases from now on", Control.hold,
        "`count` is exact if one broker is held at a time: a broker learns of it a moment later. `nth` counts in each broker for itself.",
    ),
    Route("GET", "/holds/{number}", "A hold; wait=reached waits until it holds something", Control.hold_state),
    Route("POST", "/holds/{number}/release", "End a hold; what it holds goes on", Control.release),
    Route("POST", "/holds/{number}/step", "Let the first that is held go on", Control.step, _FIRST),
    Route("POST", "/holds/{number}/fail", "Let the first that is held fail", Control.fail, _FIRST),
    Route("POST", "/holds/{number}/crash", "Kill the broker that is held first", Control.crash, _FIRST),
    Route("DELETE", "/holds", "End all holds", Control.delete_holds),
    Route("DELETE", "/holds/{number}", "End a hold", Control.delete_hold),
    Route("GET", "/faults", "All faults", Control.faults, _LOST),
    Route(
        "POST", "/faults", "Add a fault", Control.add_fault,
        "`first` is exact if one broker is hit at a time: a broker learns of it a moment later. `after` and `probability` count in each "
        "broker for itself.",
    ),
    Route("GET", "/faults/{number}", "A fault; hits=N waits until it has this number", Control.fault),
    Route("DELETE", "/faults", "Remove all faults", Control.delete_faults),
    Route("DELETE", "/faults/{number}", "Remove a fault", Control.delete_fault),
    Route(
        "GET", "/requests", "The last requests and their responses, decoded, oldest first", Control.requests,
        "`number` says when a request was received and by which broker, so it has gaps; `after` can miss a request of the same millisecond "
        "at another broker.",
    ),
    Route("GET", "/brokers", "All brokers", Control.brokers),
    Route("POST", "/brokers", "Start one more broker", Control.add_broker),
    Route("GET", "/brokers/{broker}", "A broker", Control.broker),
    Route("POST", "/brokers/{broker}/stop", "Stop a broker with a controlled shutdown", Control.stop_broker),
    Route("POST", "/brokers/{broker}/kill", "End a broker as kill -9 does", Control.kill_broker),
    Route("POST", "/brokers/{broker}/start", "Start a broker that does not run", Control.start_broker),
    Route("POST", "/brokers/{broker}/restart", "Stop a broker and start it again", Control.restart_broker),
    Route("POST", "/brokers/{broker}/pause", "Let a broker stand still, as SIGSTOP does", Control.pause_broker),
    Route("POST", "/brokers/{broker}/resume", "End a pause", Control.resume_broker),
    Route("GET", "/controller", "The active controller", Control.controller),
    Route("POST", "/controller/move", "Make a broker the controller", Control.move_controller),
    Route("POST", "/controller/resign", "Let another broker become controller", Control.resign_controller),
    Route("GET", "/topics", "All topics; states=true adds leader, ISR and replicas of each partition", Control.topics),
    Route("POST", "/topics", "Create a topic", Control.create_topic),
    Route("DELETE", "/topics/{name}", "Delete a topic", Control.delete_topic),
    Route("POST", "/topics/{name}/partitions", "Let a topic have more partitions", Control.add_partitions),
    Route("GET", "/topics/{name}", "A topic as ZooKeeper and each broker see it", Control.topic),
    Route("GET", "/groups", "All groups", Control.groups),
    Route("GET", "/groups/{name}", "A group", Control.group),
    Route("POST", "/groups/{name}/expire", "Let the session of a member, or of all, be over", Control.expire_members),
    Route("POST", "/groups/{name}/rebalance", "Let a group rebalance", Control.rebalance),
    Route("GET", "/transactions", "All transactional ids", Control.transactions),
    Route("GET", "/transactions/{name}", "A transactional id", Control.transaction),
    Route(
        "POST", "/transactions/{name}/expire", "Let the time-out of the open transaction of an id be over: it is aborted",
        Control.expire_transaction,
    ),
    Route("POST", "/zookeeper/expire", "End the ZooKeeper session of a broker", Control.expire_session),
    Route("POST", "/zookeeper/cut", "Let a broker lose its connection to ZooKeeper until it is restored", Control.cut_zookeeper),
    Route("POST", "/zookeeper/restore", "Let a broker connect again", Control.restore_zookeeper),
    Route("POST", "/zookeeper/delay", "Let requests of a broker to ZooKeeper wait", Control.delay_zookeeper),
    Route("GET", "/recovering", "Leaders that wait to be released from recovery (KIP-704)", Control.recovering),
    Route(
        "POST", "/recovering/release", "Release leaders that wait in recovery: all, of a topic, or of a partition",
        Control.release_recovery,
    ),
    Route(
        "GET", "/configs/processed", "Wait until all brokers have processed the last changes of configs, users, quotas and ACLs",
        Control.configs_processed,
    ),
    Route("POST", "/links", "Cut or slow what brokers send each other, as faults", Control.add_link),
    Route("GET", "/clock", "The time of the brokers", Control.clock_state),
    Route("POST", "/clock/advance", "Let time pass at once, or in steps so that those who are alive can show it", Control.advance_clock),
    Route("POST", "/clock/freeze", "Let time pass only by advance", Control.freeze_clock, _CLOCKS),
    Route("POST", "/clock/resume", "Let real time pass again", Control.resume_clock, _CLOCKS),
    Route(
        "POST", "/reset", "Undo faults, holds, stops, and changes of configs of brokers, users, quotas and ACLs; wait until all is whole",
        Control.reset,
    ),
)
