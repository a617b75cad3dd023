"""The routes of the control API as one table: the server answers by it, `openapi.py` describes it, and tests compare both.

A route has a method, a path with `{names}`, the type of its body if it has one, its query parameters with their types, and what it does
with a `Control`. It returns a value for JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klamm.control import bodies

Act = Callable[..., Any]
"""(control, path values and query parameters by name, body) → value or coroutine."""


class Route(NamedTuple):
    """One route. In its path `number` and `broker` are numbers, other names are texts."""

    method: str
    path: str
    summary: str
    act: Act
    body: type[Any] | None = None
    query: Mapping[str, type[Any]] = {}

    @property
    def names(self) -> list[str]:
        """Names in the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


NUMBERS = frozenset(("number", "broker"))
_WAIT = {"timeout_ms": int}

ROUTES: tuple[Route, ...] = (
    Route("GET", "/phases", "All phases, with their fields", lambda c: c.phases()),
    Route("GET", "/holds", "All holds", lambda c: c.holds()),
    Route("POST", "/holds", "Hold phases from now on", lambda c, body: c.hold(body), bodies.HoldBody),
    Route(
        "GET", "/holds/{number}", "A hold; wait=reached waits until it holds something",
        lambda c, number, **query: c.hold_state(number, **query), query={"wait": str, **_WAIT},
    ),
    Route("POST", "/holds/{number}/release", "End a hold; what it holds goes on", lambda c, number: c.release(number)),
    Route("POST", "/holds/{number}/step", "Let the first that is held go on", lambda c, number: c.step(number)),
    Route("POST", "/holds/{number}/fail", "Let the first that is held fail", lambda c, number, body: c.fail(number, body), bodies.FailBody),
    Route("POST", "/holds/{number}/crash", "Kill the broker that is held first", lambda c, number: c.crash(number)),
    Route("DELETE", "/holds", "End all holds", lambda c: c.delete_holds()),
    Route("DELETE", "/holds/{number}", "End a hold", lambda c, number: c.delete_holds(number)),
    Route("GET", "/faults", "All faults", lambda c: c.faults()),
    Route("POST", "/faults", "Add a fault", lambda c, body: c.add_fault(body), bodies.FaultBody),
    Route(
        "GET", "/faults/{number}", "A fault; hits=N waits until it has this number",
        lambda c, number, **query: c.fault(number, **query), query={"hits": int, **_WAIT},
    ),
    Route("DELETE", "/faults", "Remove all faults", lambda c: c.delete_faults()),
    Route("DELETE", "/faults/{number}", "Remove a fault", lambda c, number: c.delete_faults(number)),
    Route(
        "GET", "/requests", "The last requests and their responses, decoded, oldest first", lambda c, **query: c.requests(**query),
        query={
            "api": str, "client_id": str, "topic": str, "group": str, "broker": int, "error": str, "clients": bool, "after": int,
            "limit": int,
        },
    ),
    Route("GET", "/brokers", "All brokers", lambda c: c.brokers()),
    Route("POST", "/brokers", "Start one more broker", lambda c, body: c.add_broker(body), bodies.NewBrokerBody),
    Route("GET", "/brokers/{broker}", "A broker", lambda c, broker: c.broker(broker)),
    Route(
        "POST", "/brokers/{broker}/stop", "Stop a broker with a controlled shutdown",
        lambda c, broker, body: c.stop_broker(broker, body), bodies.StopBody,
    ),
    Route(
        "POST", "/brokers/{broker}/kill", "End a broker as kill -9 does", lambda c, broker, body: c.kill_broker(broker, body),
        bodies.KillBody,
    ),
    Route("POST", "/brokers/{broker}/start", "Start a broker that does not run", lambda c, broker: c.start_broker(broker)),
    Route(
        "POST", "/brokers/{broker}/restart", "Stop a broker and start it again",
        lambda c, broker, body: c.restart_broker(broker, body), bodies.StopBody,
    ),
    Route("POST", "/brokers/{broker}/pause", "Let a broker stand still, as SIGSTOP does", lambda c, broker: c.pause_broker(broker)),
    Route("POST", "/brokers/{broker}/resume", "End a pause", lambda c, broker: c.resume_broker(broker)),
    Route("GET", "/controller", "The active controller", lambda c: c.controller()),
    Route("POST", "/controller/move", "Make a broker the controller", lambda c, body: c.move_controller(body), bodies.MoveBody),
    Route("POST", "/controller/resign", "Let another broker become controller", lambda c: c.resign_controller()),
    Route(
        "GET", "/topics", "All topics; states=true adds leader, ISR and replicas of each partition", lambda c, **query: c.topics(**query),
        query={"states": bool},
    ),
    Route("POST", "/topics", "Create a topic", lambda c, body: c.create_topic(body), bodies.TopicBody),
    Route("DELETE", "/topics/{name}", "Delete a topic", lambda c, name: c.delete_topic(name)),
    Route(
        "POST", "/topics/{name}/partitions", "Let a topic have more partitions", lambda c, name, body: c.add_partitions(name, body),
        bodies.PartitionsBody,
    ),
    Route("GET", "/topics/{name}", "A topic as ZooKeeper and each broker see it", lambda c, name: c.topic(name)),
    Route("GET", "/groups", "All groups", lambda c: c.groups()),
    Route("GET", "/groups/{name}", "A group", lambda c, name: c.group(name)),
    Route(
        "POST", "/groups/{name}/expire", "Let the session of a member, or of all, be over",
        lambda c, name, body: c.expire_members(name, body), bodies.MemberBody,
    ),
    Route("POST", "/groups/{name}/rebalance", "Let a group rebalance", lambda c, name: c.rebalance(name)),
    Route("GET", "/transactions", "All transactional ids", lambda c: c.transactions()),
    Route("GET", "/transactions/{name}", "A transactional id", lambda c, name: c.transaction(name)),
    Route(
        "POST", "/transactions/{name}/expire", "Let the time-out of the open transaction of an id be over: it is aborted",
        lambda c, name: c.expire_transaction(name),
    ),
    Route(
        "POST", "/zookeeper/expire", "End the ZooKeeper session of a broker", lambda c, body: c.expire_session(body), bodies.BrokerBody
    ),
    Route(
        "POST", "/zookeeper/cut", "Let a broker lose its connection to ZooKeeper until it is restored",
        lambda c, body: c.cut_zookeeper(body), bodies.BrokerBody,
    ),
    Route("POST", "/zookeeper/restore", "Let a broker connect again", lambda c, body: c.restore_zookeeper(body), bodies.BrokerBody),
    Route(
        "POST", "/zookeeper/delay", "Let requests of a broker to ZooKeeper wait", lambda c, body: c.delay_zookeeper(body),
        bodies.ZooKeeperDelayBody,
    ),
    Route("GET", "/recovering", "Leaders that wait to be released from recovery (KIP-704)", lambda c: c.recovering()),
    Route(
        "POST", "/recovering/release", "Release leaders that wait in recovery: all, of a topic, or of a partition",
        lambda c, body: c.release_recovery(body), bodies.RecoveryBody,
    ),
    Route(
        "GET", "/configs/processed", "Wait until all brokers have processed the last changes of configs, users, quotas and ACLs",
        lambda c, **query: c.configs_processed(**query), query=_WAIT,
    ),
    Route("POST", "/links", "Cut or slow what brokers send each other, as faults", lambda c, body: c.add_link(body), bodies.LinkBody),
    Route("GET", "/clock", "The time of the brokers", lambda c: c.clock_state()),
    Route(
        "POST", "/clock/advance", "Let time pass at once, or in steps so that those who are alive can show it",
        lambda c, body: c.advance_clock(body), bodies.AdvanceBody,
    ),
    Route("POST", "/clock/freeze", "Let time pass only by advance", lambda c: c.freeze_clock()),
    Route("POST", "/clock/resume", "Let real time pass again", lambda c: c.resume_clock()),
    Route(
        "POST", "/reset", "Undo faults, holds, stops, and changes of configs of brokers, users, quotas and ACLs; wait until all is whole",
        lambda c: c.reset(),
    ),
)  # fmt: skip
