"""A command for each route of the control API, in an order in which all succeed on a new cluster of three brokers.

docs/control_routes.md has them too.
"""

from __future__ import annotations

import re

from klamm.control.verbs.routes import ROUTES, Route

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("GET /phases", "phases BrokersFailed"),
    ("POST /topics", "create-topic payments --partitions 2"),
    ("POST /topics/{name}/partitions", "add-partitions payments 3"),
    ("DELETE /topics/{name}", "delete-topic payments"),
    ("GET /topics", "topics"),
    ("GET /topics/{name}", "topic orders"),
    ("GET /groups", "groups"),
    ("GET /groups/{name}", "group billing"),
    ("POST /groups/{name}/rebalance", "group billing --rebalance"),
    ("POST /groups/{name}/expire", "group billing --expire-all"),
    ("GET /transactions", "transactions"),
    ("GET /transactions/{name}", "transaction payments-1"),
    ("POST /transactions/{name}/expire", "transaction payments-1 --expire"),
    ("POST /faults", "fault --api Produce --topic orders --error NOT_LEADER_OR_FOLLOWER --first 2"),
    ("GET /faults", "faults"),
    ("GET /faults/{number}", "faults 1 --hits 0"),
    ("DELETE /faults/{number}", "unfault 1"),
    ("DELETE /faults", "unfault --all"),
    ("GET /requests", "requests --api JoinGroup --clients"),
    ("GET /recovering", "recovering"),
    ("POST /recovering/release", "release-recovery orders 0"),
    ("GET /features", "features"),
    ("POST /features/{name}", "set-feature transaction.version 0"),
    ("POST /cluster-id", "show-cluster-id another"),
    ("GET /configs/processed", "wait-for-configs"),
    ("POST /links", "link 1 2 --delay-ms 5"),
    ("DELETE /faults", "unfault --all"),
    ("POST /zookeeper/delay", "zookeeper delay 3 5"),
    ("POST /zookeeper/delay", "zookeeper delay 3 0"),
    ("POST /zookeeper/cut", "zookeeper cut 3"),
    ("POST /zookeeper/restore", "zookeeper restore 3"),
    ("GET /clock", "clock"),
    ("POST /clock/freeze", "clock freeze"),
    ("POST /clock/advance", "clock advance 1000"),
    ("POST /clock/resume", "clock resume"),
    ("GET /brokers", "brokers"),
    ("GET /brokers/{broker}", "brokers 3"),
    ("POST /brokers/{broker}/pause", "broker pause 3"),
    ("POST /brokers/{broker}/resume", "broker resume 3"),
    ("POST /brokers/{broker}/restart", "broker restart 3"),
    ("POST /holds", "hold BrokersFailed --where broker_ids=3"),
    ("GET /holds", "holds"),
    ("GET /controller", "controller"),
    ("POST /controller/resign", "controller resign"),
    ("POST /controller/move", "controller move 1"),
    ("POST /zookeeper/expire", "expire 3"),
    ("GET /holds/{number}", "holds 1 --wait"),
    ("POST /holds/{number}/step", "step 1"),
    ("POST /zookeeper/expire", "expire 3"),
    ("GET /holds/{number}", "holds 1 --wait"),
    ("POST /holds/{number}/fail", "fail 1"),
    ("POST /zookeeper/expire", "expire 3"),
    ("GET /holds/{number}", "holds 1 --wait"),
    ("POST /holds/{number}/crash", "crash 1"),
    ("POST /brokers/{broker}/start", "broker start 1"),
    ("POST /holds/{number}/release", "release 1"),
    ("DELETE /holds/{number}", "unhold 1"),
    ("DELETE /holds", "unhold --all"),
    ("POST /brokers/{broker}/kill", "broker kill 3 --expire"),
    ("POST /brokers/{broker}/stop", "broker stop 2"),
    ("POST /brokers", "broker add --config broker.rack=c"),
    ("POST /reset", "reset"),
)


def name_of(route: Route) -> str:
    """`GET /holds/{number}`."""
    return f"{route.method} {route.path}"


def route_of(method: str, path: str) -> str:
    """The name of the route that serves a path."""
    (name,) = (
        name_of(route)
        for route in ROUTES
        if route.method == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), path)
    )
    return name


def example_of(route: Route) -> str:
    """The first command that calls a route."""
    commands = [command for name, command in EXAMPLES if name == name_of(route)]
    assert commands, f"{name_of(route)} has no command of `klamm control` in tests/cli/control/examples.py"
    return commands[0]
