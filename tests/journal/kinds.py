"""The kinds of rows in the table `events`: which columns they fill, and the JSON in their columns `input` and `output`.

A row is something that happened to a broker, or that its controller did. `cause_seq` has the row that caused it: for a controller event the
request or response, for everything that the controller does the controller event, for a frame to a broker its batch. So every frame of a
controller can be traced to its origin. Objects have exactly the members that are listed here. Broker ids in lists without a natural order
are ascending. `docs/journal.md` is generated from this table.
"""

from __future__ import annotations

from typing import NamedTuple


class RowKind(NamedTuple):
    """A kind of row."""

    name: str
    meaning: str
    columns: tuple[str, ...] = ()
    """Columns that it fills, in addition to those of every row (`columns.WHERE`, `kind`), `input` and `output`. Names of columns that are
    not always filled end with `?`.
    """
    input: str = ""
    """JSON of the column `input`; empty if it is null."""
    output: str = ""
    cause: str = ""
    """Which row is in `cause_seq`; empty if there is none."""


STATE = '{"leader", "leader_epoch", "isr": [ids], "recovery": 0|1, "partition_epoch", "controller_epoch"}'
"""The JSON of a partition state."""
ASSIGNMENT = '{"replicas": [ids], "adding": [ids], "removing": [ids]}'
"""The JSON of a partition's replicas. Lists of ids in ASSIGNMENT and STATE keep their order."""
SITUATION = (
    '{"state": STATE|null, "assignment": ASSIGNMENT, "registered": [ids], "shutting_down": [ids], "offline_dirs": [ids], '
    '"controller_epoch", "is_queued_for_deletion": bool, '
    '"proposal": {"leader", "leader_epoch", "isr": [ids], "recovery", "partition_epoch", "version"}|null}'
)
"""The JSON of the input of a decision."""
CAUSE = (
    '{"name": "WatchFired"|"BrokerStarted"|"SessionChanged"|"ConfigChanged"|"ReleasedFromPhase"} or {"name": "TimerFired", "timer"} or '
    '{"name": "RequestReceived", "api", "connection", "correlation_id"} or {"name": "ResponseReceived", "broker_id", "sent_by"}'
)
"""The JSON of the cause of a controller event. `sent_by` is the number of the event that sent the request."""

FORMS = {"STATE": STATE, "ASSIGNMENT": ASSIGNMENT, "SITUATION": SITUATION, "CAUSE": CAUSE}
"""JSON forms that other forms refer to by name."""

_OF_EVENT = "the controller_event"
_PARTITION = ("topic", "partition")
_STATE = (*_PARTITION, "topic_id?", "leader_epoch", "partition_epoch", "controller_epoch")

_ALL = (
    # --- the broker and its connections ---
    RowKind(
        "broker_started",
        "The broker starts. The first row of a process.",
        ("broker",),
        output='{"broker", "version", "ibp", "listeners": [names], "zookeeper"}',
    ),
    RowKind("broker_stopped", "The broker has shut down. The last row of a process; missing after a crash.", ("broker",)),
    RowKind(
        "advertised",
        "The APIs that the broker advertises on a listener (ApiVersions), at each start and after each change.",
        (),
        '{"listener"}',
        '{"apis": [[key, lowest version, highest version], …]}',
    ),
    RowKind("conn_open", "A connection was opened.", ("conn_id", "broker?"), '{"kind", "peer", "listener"|null}'),
    RowKind("authenticated", "The peer of a connection has authenticated.", ("conn_id",), "", '{"principal", "mechanism"}'),
    RowKind("conn_close", "A connection was closed.", ("conn_id", "broker?"), "", '{"by": "us"|"peer", "reason": text|null}'),
    RowKind(
        "config_change",
        "This broker noticed a change of the stored configs of an entity. `keys` are those that changed, or all that have a value now. "
        "For `preferred_leader_blacklist` the active controller writes a second row, with a cause and the "
        "brokers that are now on the list.",
        ("controller_epoch?",),
        '{"entity_type": "topics"|"brokers"|…, "entity"}',
        '{"keys": [names]} or {"keys": ["preferred_leader_blacklist"], "listed": [ids]}',
        f"{_OF_EVENT}, of the controller's row",
    ),
    # --- the controller and its events ---
    RowKind("controller_elected", "This broker was elected controller.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    RowKind(
        "controller_resigned",
        "This broker is not the controller any more.",
        ("broker", "controller_epoch"),
        cause=f"{_OF_EVENT}, or nothing",
    ),
    RowKind("timer", "A timer of the controller fired.", (), '{"name"}'),
    RowKind(
        "controller_event",
        "The controller processes an event from its queue. Events that are processed together have consecutive rows, and the first one "
        "is the cause of everything that is done for them.",
        ("controller_epoch?", "broker?", "topic?", "partition?"),
        '{"number", "name", "text", "cause": CAUSE}',
        "",
        "the frame of the request or response, or the timer; nothing if the event has another origin",
    ),
    RowKind(
        "event_failed",
        "The processing of a controller event failed with an error.",
        ("controller_epoch?",),
        "",
        '{"error": name, "text"}',
        _OF_EVENT,
    ),
    # --- the state of the controller ---
    RowKind(
        "broker_up",
        "The controller considers a broker as registered from now on, or its endpoints have changed.",
        ("broker", "controller_epoch"),
        "",
        '{"id", "epoch", "endpoints": [[listener, host, port, security protocol], …], "rack": text|null}',
        _OF_EVENT,
    ),
    RowKind(
        "broker_down",
        "The controller does not consider a broker as registered any more.",
        ("broker", "controller_epoch"),
        cause=_OF_EVENT,
    ),
    RowKind(
        "broker_fenced",
        "A broker that registered with the controller is fenced: it gets metadata, but is not online.",
        ("broker", "controller_epoch"),
        "",
        "like broker_up",
        _OF_EVENT,
    ),
    RowKind(
        "broker_unfenced",
        "A broker is not fenced any more: it is online (then there is also a broker_up), or gone.",
        ("broker", "controller_epoch"),
        cause=_OF_EVENT,
    ),
    RowKind(
        "broker_registration",
        "The new state in ZooKeeper of a registration with the controller.",
        ("broker", "controller_epoch"),
        "",
        '{"epoch", "state": "OFFLINE"|"FENCED"|"ONLINE"|"STOPPING"}',
        _OF_EVENT,
    ),
    RowKind("shutdown_began", "A broker requested a controlled shutdown.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    RowKind("shutdown_ended", "A broker that requested a controlled shutdown is gone.", ("broker", "controller_epoch"), cause=_OF_EVENT),
    RowKind(
        "offline_replicas",
        "The replicas of a broker in offline log directories.",
        ("broker", "controller_epoch"),
        "",
        '{"partitions": [[topic, partition], …]}',
        _OF_EVENT,
    ),
    RowKind(
        "topic_added",
        "The controller has learned of a topic, or of its id.",
        ("topic", "topic_id?", "controller_epoch"),
        cause=_OF_EVENT,
    ),
    RowKind("topic_removed", "The controller has removed a topic from its state.", ("topic", "controller_epoch"), cause=_OF_EVENT),
    RowKind(
        "assignment",
        "The new replicas of a partition in the state of the controller.",
        (*_PARTITION, "topic_id?", "controller_epoch"),
        "",
        f'{ASSIGNMENT[:-1]}, "is_new": bool}}',
        _OF_EVENT,
    ),
    RowKind(
        "partition_state",
        "The new state of a partition in the memory of the controller. The column `controller_epoch` is that of this controller, the "
        "one in `output` that of the controller that wrote the state.",
        _STATE,
        "",
        '{"leader", "isr": [ids], "recovering": bool, "controller_epoch"}',
        _OF_EVENT,
    ),
    RowKind(
        "deletion",
        "A step of the deletion of a topic.",
        ("topic", "topic_id?", "controller_epoch"),
        "",
        '{"step": "queued"|"started"|"postponed"|"resumed", "why": text|null}',
        _OF_EVENT,
    ),
    # --- decisions and actions of the controller ---
    RowKind(
        "decision",
        "A rule decided about partitions in the same situation; one row per situation and attempt. "
        "`controller/event_loop/decision_json.py` can repeat it.",
        ("controller_epoch",),
        '{"rule": {"name", its fields}, "situation": SITUATION, "partitions": [[topic, partition], …]}',
        '{"write": STATE, "recipients": [ids]|null} or {"keep": STATE, "recipients": [ids]|null} or '
        '{"refuse": name of a reason|error code, "at_once": bool}',
        _OF_EVENT,
    ),
    RowKind(
        "zk_write",
        "A write of the controller to ZooKeeper, with its outcome. `version` in `input` is the expected version, in `output` the version "
        "that ZooKeeper returned. Values of configs are not written.",
        ("topic?", "topic_id?", "partition?", "leader_epoch?", "partition_epoch?", "broker?", "controller_epoch?"),
        '{"op": "create"|"set"|"delete", "path", "version"|null} and, of a partition state, "leader", "isr", "recovery" and '
        '"controller_epoch"; of a topic {"assignments": {partition: ASSIGNMENT}}; of a config {"keys": [names]}; of znodes of throttles '
        'that are to go {"names": […]}; of /admin/reassign_partitions {"partitions": [[topic, partition, [ids]], …]}',
        '{"outcome": "OK"|"BAD_VERSION"|"NO_NODE"|"NODE_EXISTS"|"FAILED"|name of an exception, "version"|null}',
        _OF_EVENT,
    ),
    RowKind(
        "batch",
        "A batch of requests to brokers. It is the cause of its frames.",
        ("controller_epoch",),
        "",
        '{"requests": [[key, version, [broker ids]], …], "ibp"}',
        _OF_EVENT,
    ),
    # --- procedures ---
    RowKind(
        "reassign_phase",
        "A phase of the reassignment of a partition is done (controller 11.3). `step` is a number that counts up: rows of a partition "
        "with the same number belong to the same step.",
        (*_PARTITION, "topic_id?", "controller_epoch"),
        "",
        '{"phase": "U"|"A1"|"A2"|"B1"|…|"B9", "step"}',
        _OF_EVENT,
    ),
    RowKind(
        "throttle_step",
        "A step of a request that sets throttles is done. `request` is the number of the request of this controller, `step` the number "
        "in R179-6 or R179-14, `of` the API.",
        ("controller_epoch",),
        "",
        '{"request", "of": "ReassignPartitions"|"AlterInterbrokerThrottledRates"|"AlterInterbrokerThrottledReplicas", "step", '
        '"name": name of the step}',
        _OF_EVENT,
    ),
    RowKind(
        "throttle_set",
        "The controller has set throttles in the configs of an entity. Throttles are not secret.",
        ("topic?", "broker?", "controller_epoch"),
        '{"entity_type", "entity"}',
        '{"properties": {name: value}}',
        _OF_EVENT,
    ),
    RowKind(
        "throttle_removed",
        "The controller has removed throttles from the configs of an entity, at the end of all reassignments or for a request.",
        ("topic?", "broker?", "controller_epoch"),
        '{"entity_type", "entity"}',
        '{"keys": [names]}',
        _OF_EVENT,
    ),
    RowKind(
        "phase_held",
        "A test or program holds the controller, or a procedure, at a phase (`docs/phases.md`).",
        ("controller_epoch?", "topic?", "partition?", "broker?"),
        '{"name", the fields of the phase}',
        "",
        _OF_EVENT,
    ),
    RowKind(
        "phase_released",
        "The controller or procedure that was held at a phase continues.",
        ("controller_epoch?", "topic?", "partition?", "broker?"),
        '{"name", the fields of the phase}',
        "",
        _OF_EVENT,
    ),
    RowKind(
        "coordinator_phase",
        "A coordinator of this broker reached a phase of a group or of a transactional id (`docs/phases.md`): a step of a rebalance or of "
        "a transaction. OffsetsAppended has no row.",
        ("broker",),
        '{"name", the fields of the phase}',
    ),
    RowKind(
        "fault_injected",
        "A fault that somebody made hit a request of this broker.",
        ("broker",),
        '{"name": "fault 3", what it does: "error", "delay_ms", …}',
        "",
        "the request",
    ),
)

KINDS = {kind.name: kind for kind in _ALL}
"""All kinds by name, in the order of the page."""
