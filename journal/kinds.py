"""The kinds of rows of the table `events`: which columns each fills, and the JSON in its columns `input` and `output`.

A kind says one thing that happened to a broker or that its controller did. A row that follows from another one names it in `cause_seq`:
a controller event the request or response that it came from, everything that the controller does the controller event, and a frame to a
broker its batch. So every frame of a controller can be followed to its origin. Members of objects that are not written down here do not
occur; all of them are always there. Broker ids in lists that have no order of their own are ascending. `docs/journal.md` is computed from
this table. This file imports nothing but the standard library.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of rows."""

    name: str
    meaning: str
    columns: tuple[str, ...] = ()
    """Columns that it fills, beside those that every row has (`columns.WHERE`, `kind`), `input` and `output`. Those that are known only
    at times end with `?`."""
    input: str = ""
    """JSON of the column `input`; empty where it is null."""
    output: str = ""
    cause: str = ""
    """What the row in `cause_seq` is; empty where there is none."""


STATE = '{"leader", "leader_epoch", "isr": [ids], "recovery": 0|1, "partition_epoch", "controller_epoch"}'
"""A partition's state, as JSON."""
ASSIGNMENT = '{"replicas": [ids], "adding": [ids], "removing": [ids]}'
"""A partition's replicas, as JSON. Lists of ids of this and of STATE keep their order."""
SITUATION = (
    '{"state": STATE|null, "assignment": ASSIGNMENT, "registered": [ids], "shutting_down": [ids], "offline_dirs": [ids], '
    '"controller_epoch", "is_queued_for_deletion": bool, '
    '"proposal": {"leader", "leader_epoch", "isr": [ids], "recovery", "partition_epoch", "version"}|null}'
)
"""What a decision is made from, as JSON."""
CAUSE = (
    '{"name": "WatchFired"|"BrokerStarted"|"SessionChanged"|"ConfigChanged"|"ReleasedFromPhase"} or {"name": "TimerFired", "timer"} or '
    '{"name": "RequestReceived", "api", "connection", "correlation_id"} or {"name": "ResponseReceived", "broker_id", "sent_by"}'
)
"""What put an event on the controller's queue, as JSON; `sent_by` is the number of the event that sent the request."""

FORMS = {"STATE": STATE, "ASSIGNMENT": ASSIGNMENT, "SITUATION": SITUATION, "CAUSE": CAUSE}
"""The forms that others name."""

_OF_EVENT = "the controller_event"
_PARTITION = ("topic", "partition")
_STATE = (*_PARTITION, "topic_id?", "leader_epoch", "partition_epoch", "controller_epoch")

_ALL = (
    # --- the broker and its connections ---
    Kind(
        "broker_started",
        "The broker starts; the first row of a process.",
        ("broker",),
        output='{"broker", "version", "ibp", "listeners": [names], "zookeeper"}',
    ),
    Kind("broker_stopped", "The broker ended in order; the last row of a process. It is not there after a crash.", ("broker",)),
    Kind(
        "advertised",
        "What the broker answers to ApiVersions on a listener: at each start, and when it changes.",
        (),
        '{"listener"}',
        '{"apis": [[key, lowest version, highest version], …]}',
    ),
    Kind("conn_open", "A connection was opened.", ("conn_id", "broker?"), '{"kind", "peer", "listener"|null}'),
    Kind("authenticated", "Somebody authenticated on a connection.", ("conn_id",), "", '{"principal", "mechanism"}'),
    Kind("conn_close", "A connection ended.", ("conn_id", "broker?"), "", '{"by": "us"|"peer", "reason": text|null}'),
    Kind(
        "config_change",
        "Stored configs of an entity changed, as this broker saw it: the keys that changed, or that it has values of now. "
        "Of `preferred_leader_blacklist` there is a second row of the active "
        "controller, which has a cause and the brokers that are listed now.",
        ("controller_epoch?",),
        '{"entity_type": "topics"|"brokers"|…, "entity"}',
        '{"keys": [names]} or {"keys": ["preferred_leader_blacklist"], "listed": [ids]}',
        f"{_OF_EVENT}, of the controller's row",
    ),
    # --- the controller and its events ---
    Kind("controller_elected", "This broker became the controller.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    Kind("controller_resigned", "This broker is the controller no more.", ("broker", "controller_epoch"), cause=f"{_OF_EVENT}, or nothing"),
    Kind("timer", "A timer of the controller came due.", (), '{"name"}'),
    Kind(
        "controller_event",
        "The controller took an event from its queue and processes it now. Events that are processed together are rows beside each other: "
        "what is done for all of them has the first as its cause.",
        ("controller_epoch?", "broker?", "topic?", "partition?"),
        '{"number", "name", "text", "cause": CAUSE}',
        "",
        "the frame of the request or response, the timer; nothing where the event came from elsewhere",
    ),
    Kind(
        "event_failed",
        "The processing of a controller event ended with an error.",
        ("controller_epoch?",),
        "",
        '{"error": name, "text"}',
        _OF_EVENT,
    ),
    # --- what the controller knows ---
    Kind(
        "broker_up",
        "The controller counts a broker as registered from now on, or knows other endpoints of it.",
        ("broker", "controller_epoch"),
        "",
        '{"id", "epoch", "endpoints": [[listener, host, port, security protocol], …], "rack": text|null}',
        _OF_EVENT,
    ),
    Kind("broker_down", "The controller counts a broker as registered no more.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    Kind(
        "broker_fenced",
        "A broker that registered with the controller gets metadata, but counts as not online.",
        ("broker", "controller_epoch"),
        "",
        "as broker_up",
        _OF_EVENT,
    ),
    Kind(
        "broker_unfenced",
        "A broker is fenced no more: it is online, which a broker_up says too, or gone.",
        ("broker", "controller_epoch"),
        cause=_OF_EVENT,
    ),
    Kind(
        "broker_registration",
        "The state of a registration with the controller, as it is in ZooKeeper from now on.",
        ("broker", "controller_epoch"),
        "",
        '{"epoch", "state": "OFFLINE"|"FENCED"|"ONLINE"|"STOPPING"}',
        _OF_EVENT,
    ),
    Kind("shutdown_began", "A broker requested a controlled shutdown.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    Kind("shutdown_ended", "A broker that requested a controlled shutdown is gone.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    Kind(
        "offline_replicas",
        "The replicas of a broker in offline log directories are these.",
        ("broker", "controller_epoch"),
        "",
        '{"partitions": [[topic, partition], …]}',
        _OF_EVENT,
    ),
    Kind("topic_added", "The controller knows a topic, or its id.", ("topic", "topic_id?", "controller_epoch"), cause=_OF_EVENT),
    Kind("topic_removed", "The controller knows a topic no more.", ("topic", "controller_epoch"), cause=_OF_EVENT),
    Kind(
        "assignment",
        "The replicas of a partition, as the controller counts them from now on.",
        (*_PARTITION, "topic_id?", "controller_epoch"),
        "",
        f'{ASSIGNMENT[:-1]}, "is_new": bool}}',
        _OF_EVENT,
    ),
    Kind(
        "partition_state",
        "The state of a partition, as the controller remembers it from now on. `controller_epoch` is that of this controller, in the "
        "output is that of the one that wrote the state.",
        _STATE,
        "",
        '{"leader", "isr": [ids], "recovering": bool, "controller_epoch"}',
        _OF_EVENT,
    ),
    Kind(
        "deletion",
        "A step of the deletion of a topic.",
        ("topic", "topic_id?", "controller_epoch"),
        "",
        '{"step": "queued"|"started"|"postponed"|"resumed", "why": text|null}',
        _OF_EVENT,
    ),
    # --- what the controller decides and does ---
    Kind(
        "decision",
        "A rule decided about partitions in one situation; a row for each situation and try. `controller/decision_json.py` decides again.",
        ("controller_epoch",),
        '{"rule": {"name", its fields}, "situation": SITUATION, "partitions": [[topic, partition], …]}',
        '{"write": STATE, "recipients": [ids]|null} or {"keep": STATE, "recipients": [ids]|null} or '
        '{"refuse": name of a reason|error code, "at_once": bool}',
        _OF_EVENT,
    ),
    Kind(
        "zk_write",
        "A write of the controller to ZooKeeper, with what came of it. `version` of the input is the expected one, of the output the one "
        "that ZooKeeper answered. Values of configs are not written down.",
        ("topic?", "topic_id?", "partition?", "leader_epoch?", "partition_epoch?", "broker?", "controller_epoch?"),
        '{"op": "create"|"set"|"delete", "path", "version"|null} and, of a partition state, "leader", "isr", "recovery" and '
        '"controller_epoch"; of a topic {"assignments": {partition: ASSIGNMENT}}; of a config {"keys": [names]}; of znodes of throttles '
        'that are to go {"names": […]}; of /admin/reassign_partitions {"partitions": [[topic, partition, [ids]], …]}',
        '{"outcome": "OK"|"BAD_VERSION"|"NO_NODE"|"NODE_EXISTS"|"FAILED"|name of an exception, "version"|null}',
        _OF_EVENT,
    ),
    Kind(
        "batch",
        "One send of requests to brokers. Its frames have it as their cause.",
        ("controller_epoch",),
        "",
        '{"requests": [[key, version, [broker ids]], …], "ibp"}',
        _OF_EVENT,
    ),
    # --- procedures ---
    Kind(
        "reassign_phase",
        "A phase of the reassignment of a partition is done (controller 11.3). `step` counts the steps of this controller: rows of one "
        "partition with the same number are of one step.",
        (*_PARTITION, "topic_id?", "controller_epoch"),
        "",
        '{"phase": "U"|"A1"|"A2"|"B1"|…|"B9", "step"}',
        _OF_EVENT,
    ),
    Kind(
        "throttle_step",
        "A step of a request that sets throttles is done. `request` counts the requests of this controller; `step` is the number in "
        "R179-6 or R179-14, `of` says which algorithm.",
        ("controller_epoch",),
        "",
        '{"request", "of": "ReassignPartitions"|"AlterInterbrokerThrottledRates"|"AlterInterbrokerThrottledReplicas", "step", '
        '"name": name of the step}',
        _OF_EVENT,
    ),
    Kind(
        "throttle_set",
        "The controller set throttles in the configs of an entity. Throttles are no secrets.",
        ("topic?", "broker?", "controller_epoch"),
        '{"entity_type", "entity"}',
        '{"properties": {name: value}}',
        _OF_EVENT,
    ),
    Kind(
        "throttle_removed",
        "The controller removed throttles from the configs of an entity: at the end of all reassignments, or for a request.",
        ("topic?", "broker?", "controller_epoch"),
        '{"entity_type", "entity"}',
        '{"keys": [names]}',
        _OF_EVENT,
    ),
    Kind(
        "phase_held",
        "Somebody holds the controller, or a procedure, at a phase (`docs/phases.md`).",
        ("controller_epoch?", "topic?", "partition?", "broker?"),
        '{"name", the fields of the phase}',
        "",
        _OF_EVENT,
    ),
    Kind(
        "phase_released",
        "What was held at a phase goes on.",
        ("controller_epoch?", "topic?", "partition?", "broker?"),
        '{"name", the fields of the phase}',
        "",
        _OF_EVENT,
    ),
    Kind(
        "fault_injected",
        "A test, or a program that steers a cluster, injected a fault.",
        ("conn_id?", "broker?", "topic?", "partition?"),
        '{"name", what it needs}',
    ),
)

KINDS = {kind.name: kind for kind in _ALL}
"""All kinds by name, in the order of the page."""
