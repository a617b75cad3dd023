"""The verbs of the control API by name: where HTTP has them, what they do in a sentence, and what differs if each broker has a process.

The routes of the server, the OpenAPI file, docs/control_routes.md and `klamm control` are made from it. It imports nothing, since commands
are short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """A verb in HTTP. Names in the path are arguments of the verb."""

    method: str
    path: str
    summary: str
    processes: str = ""
    """What is different if each broker has a process of its own."""
    function: str = ""
    """What clients in other languages call it, if not `operation_id` of the verb."""


_LOST = "What a process counted after it was last looked at is lost when it is killed from outside."
_CLOCKS = "Brokers learn of it one after the other: their clocks can differ by some milliseconds, which add up."


def operation_id(verb: str, place: Place) -> str:
    """The name of a verb's function in other languages: addPartitions, getTopics, moveController."""
    first, *others = verb.split("_")
    name = first + "".join({"zookeeper": "ZooKeeper"}.get(word, word.capitalize()) for word in others)
    return place.function or (f"get{name[0].upper()}{name[1:]}" if place.method == "GET" else name)


TABLE: Mapping[str, Place] = {
    "phases": Place("GET", "/phases", "List all phases, with their fields"),
    "holds": Place("GET", "/holds", "List all holds", _LOST),
    "hold": Place(
        "POST", "/holds", "Hold phases from now on",
        "`count` is exact if one broker is held at a time: a broker learns of it a moment later. `nth` counts in each broker "
        "for itself.",
        function="addHold",
    ),
    "hold_state": Place("GET", "/holds/{number}", "A hold; wait=reached waits until it holds something", function="getHold"),
    "release": Place("POST", "/holds/{number}/release", "End a hold; what it holds goes on", function="releaseHold"),
    "step": Place("POST", "/holds/{number}/step", "Let the first that is held go on", function="stepHold"),
    "fail": Place("POST", "/holds/{number}/fail", "Let the first that is held fail", function="failHold"),
    "crash": Place("POST", "/holds/{number}/crash", "Kill the broker that is held first", function="crashHold"),
    "delete_holds": Place("DELETE", "/holds", "End all holds"),
    "delete_hold": Place("DELETE", "/holds/{number}", "End a hold"),
    "faults": Place("GET", "/faults", "List all faults", _LOST),
    "add_fault": Place(
        "POST", "/faults", "Add a fault",
        "`first` is exact if one broker is hit at a time: a broker learns of it a moment later. `after` and `probability` count"
        " in each broker for itself.",
    ),
    "fault": Place("GET", "/faults/{number}", "A fault; hits=N waits until it has this number"),
    "delete_faults": Place("DELETE", "/faults", "Remove all faults"),
    "delete_fault": Place("DELETE", "/faults/{number}", "Remove a fault"),
    "requests": Place(
        "GET", "/requests", "The last requests and their responses, decoded, oldest first",
        "`number` says when a request was received and by which broker, so it has gaps; `after` can miss a request of the same "
        "millisecond at another broker.",
    ),
    "brokers": Place("GET", "/brokers", "List all brokers"),
    "add_broker": Place("POST", "/brokers", "Start one more broker"),
    "broker": Place("GET", "/brokers/{broker}", "A broker"),
    "stop_broker": Place("POST", "/brokers/{broker}/stop", "Stop a broker with a controlled shutdown"),
    "kill_broker": Place("POST", "/brokers/{broker}/kill", "End a broker as kill -9 does"),
    "start_broker": Place("POST", "/brokers/{broker}/start", "Start a broker that does not run"),
    "restart_broker": Place("POST", "/brokers/{broker}/restart", "Stop a broker and start it again"),
    "pause_broker": Place("POST", "/brokers/{broker}/pause", "Freeze a broker, as SIGSTOP does"),
    "resume_broker": Place("POST", "/brokers/{broker}/resume", "Let a frozen broker go on"),
    "controller": Place("GET", "/controller", "The active controller"),
    "move_controller": Place("POST", "/controller/move", "Make a broker the controller"),
    "resign_controller": Place("POST", "/controller/resign", "Let another broker become controller"),
    "topics": Place("GET", "/topics", "List all topics; states=true adds leader, ISR and replicas of each partition"),
    "create_topic": Place("POST", "/topics", "Create a topic"),
    "delete_topic": Place("DELETE", "/topics/{name}", "Delete a topic"),
    "add_partitions": Place("POST", "/topics/{name}/partitions", "Let a topic have more partitions"),
    "topic": Place("GET", "/topics/{name}", "A topic as ZooKeeper and each broker see it"),
    "groups": Place("GET", "/groups", "List all groups"),
    "group": Place("GET", "/groups/{name}", "A group"),
    "expire_members": Place("POST", "/groups/{name}/expire", "End the session of one member of a group, or of all"),
    "rebalance": Place("POST", "/groups/{name}/rebalance", "Let a group rebalance", function="rebalanceGroup"),
    "transactions": Place("GET", "/transactions", "List all transactional ids"),
    "transaction": Place("GET", "/transactions/{name}", "A transactional id"),
    "expire_transaction": Place("POST", "/transactions/{name}/expire", "Let the open transaction of an id time out: it is aborted"),
    "expire_session": Place("POST", "/zookeeper/expire", "End the ZooKeeper session of a broker"),
    "cut_zookeeper": Place("POST", "/zookeeper/cut", "Let a broker lose its connection to ZooKeeper until it is restored"),
    "restore_zookeeper": Place("POST", "/zookeeper/restore", "Let a broker connect to ZooKeeper again"),
    "delay_zookeeper": Place("POST", "/zookeeper/delay", "Let requests of a broker to ZooKeeper wait"),
    "recovering": Place("GET", "/recovering", "List leaders that wait to be released from recovery (KIP-704)"),
    "release_recovery": Place("POST", "/recovering/release", "Release leaders that wait in recovery: all, of a topic, or of a partition"),
    "features": Place("GET", "/features", "The finalized features, as each broker shows them"),
    "set_feature": Place("POST", "/features/{name}", "Set the level of a feature while clients run; 0 removes it"),
    "show_cluster_id": Place(
        "POST", "/cluster-id", "Let the brokers show another cluster id to clients, or the real one again",
        "A broker that starts later shows the real one.",
    ),
    "configs_processed": Place(
        "GET", "/configs/processed", "Wait until all brokers have processed the last changes of configs, users, quotas and ACLs",
        function="waitForConfigs",
    ),
    "add_link": Place("POST", "/links", "Cut or slow what brokers send each other, as faults"),
    "clock_state": Place("GET", "/clock", "The time of the brokers", function="getClock"),
    "advance_clock": Place("POST", "/clock/advance", "Advance the clock at once, or in steps with heartbeats between them"),
    "freeze_clock": Place("POST", "/clock/freeze", "Let time pass only by advance", _CLOCKS),
    "resume_clock": Place("POST", "/clock/resume", "Let real time pass again", _CLOCKS),
    "reset": Place(
        "POST", "/reset", "Undo faults, holds, stops, and changes of configs of brokers, users, quotas and ACLs; wait until all is whole",
    ),
}
