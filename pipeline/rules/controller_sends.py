"""Rules `C` about requests: controller epochs, batches, channels, versions, live brokers, and what brokers make of them."""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Rule, View, messages_of
from klamm.pipeline.rules.traffic import unless_gaps
from klamm.pipeline.rules.wire import PATIENCE_NS
from klamm.protocol.apis import OF_CONTROLLERS, ApiKey

C_03 = Rule(
    "C-03", "error", "a controller's request gets STALE_CONTROLLER_EPOCH exactly when the broker took a higher controller epoch before",
    "controller 15", ("controller_requests", "gappy"),
    # A request was surely taken before another one if its response was sent before the other arrived, and perhaps if it arrived before the
    # other's response was sent. A sender's journal knows neither other senders nor restarts, so it can only miss an error. A broker begins
    # with 0, so it refuses the negative epochs behind the last one.
    unless_gaps("""
    WITH requests AS (
        SELECT *, if(source = -1, 0, broker_epoch) AS registration FROM controller_requests WHERE judged AND controller_epoch IS NOT NULL),
    points AS (
        SELECT run_id, node_id, conn_id, seq, answer_seq, source, receiver, receiver_process, registration, controller_epoch, error,
            seq AS at, controller_epoch AS begun, CAST(NULL AS INT) AS taken
        FROM requests
        UNION ALL
        SELECT run_id, node_id, conn_id, seq, answer_seq, source, receiver, receiver_process, registration, controller_epoch, error,
            answer_seq, NULL, if(error IN (11, 31, 77), NULL, controller_epoch)
        FROM requests WHERE error IS NOT NULL),
    seen AS (
        SELECT *, max(if(taken IS NULL, NULL, struct(taken AS epoch, seq))) OVER w AS surely,
            max(if(begun IS NULL, NULL, struct(begun AS epoch, -seq AS minus_seq))) OVER w AS perhaps
        FROM points
        WINDOW w AS (PARTITION BY run_id, receiver, source, receiver_process, registration ORDER BY at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
    SELECT run_id, node_id, conn_id, seq, CASE
        WHEN error <> 11 AND greatest(surely.epoch, 0) > controller_epoch
            THEN format_string('controller epoch %s gets <error %s> after %s', controller_epoch, error, greatest(surely.epoch, 0))
        WHEN error = 11 AND greatest(perhaps.epoch, 0) <= controller_epoch AND source = -1
            THEN format_string('controller epoch %s is refused, the highest before was %s', controller_epoch, greatest(perhaps.epoch, 0))
        END AS detail,
        array_distinct(array_compact(array(if(error = 11, -perhaps.minus_seq, if(surely.epoch > controller_epoch, surely.seq, NULL)), seq,
            answer_seq))) AS evidence
    FROM seen WHERE error NOT IN (31, 77) AND (begun IS NULL) = (error = 11)
    """),
)

C_04 = Rule(
    "C-04", "error", "a controller epoch has one controller", "controller 3.1", ("controller_requests", "events"),
    """
    WITH claims AS (
        SELECT run_id, controller_epoch, controller_id AS claimant, min(struct(ts_ns, node_id, seq, conn_id)) AS first
        FROM controller_requests WHERE judged AND controller_epoch IS NOT NULL GROUP BY ALL
        UNION ALL
        SELECT run_id, controller_epoch, node_id, min(struct(ts_ns, node_id, seq, conn_id))
        FROM events WHERE kind = 'controller_elected' GROUP BY run_id, controller_epoch, node_id),
    claimants AS (
        SELECT run_id, controller_epoch, claimant, min(first) AS first FROM claims GROUP BY ALL),
    ordered AS (
        SELECT *, lag(struct(claimant, first)) OVER (PARTITION BY run_id, controller_epoch ORDER BY first) AS other FROM claimants)
    SELECT run_id, first.node_id AS node_id, first.conn_id AS conn_id, first.seq AS seq,
        if(other IS NOT NULL, format_string('broker %s in controller epoch %s, which is that of broker %s', claimant,
            controller_epoch, other.claimant), NULL) AS detail,
        array(struct(other.first.node_id AS node_id, other.first.seq AS seq),
            struct(first.node_id AS node_id, first.seq AS seq)) AS evidence
    FROM ordered
    """,
    is_across=True,
)

_ALTER_EVENTS = """
    SELECT run_id, node_id, process, seq AS event_seq, controller_epoch FROM events
    WHERE kind = 'controller_event' AND get_json_object(input, '$.name') IN ('AlterPartition', 'AlterPartitionReceived')
"""

ISR_WRITES = View(
    "isr_writes",
    ("events",),
    f"""
    SELECT run_id, node_id, cause_seq AS event_seq, topic, partition, min(seq) AS seq, min(partition_epoch) AS partition_epoch
    FROM events JOIN (SELECT run_id, node_id, event_seq AS cause_seq FROM ({_ALTER_EVENTS})) USING (run_id, node_id, cause_seq)
    WHERE kind = 'zk_write' AND partition IS NOT NULL AND get_json_object(output, '$.outcome') = 'OK' GROUP BY ALL
    """,
)
"""States that AlterPartition made the controller write."""

C_09 = Rule(
    "C-09", "error", "a change of the ISR by AlterPartition keeps the leader epoch, and is sent by UpdateMetadata alone, unless it "
    "completes a reassignment", "controller 14, 11.3, 7.2", ("isr_writes", "events", "reassign", "partition_state", "gappy"),
    unless_gaps(f"""
    WITH altered AS ({_ALTER_EVENTS}),
    batches AS (
        SELECT a.run_id, a.node_id, a.event_seq, b.seq AS batch_seq
        FROM altered a JOIN events b ON a.run_id = b.run_id AND a.node_id = b.node_id AND b.cause_seq = a.event_seq AND b.kind = 'batch'),
    sent AS (
        SELECT b.run_id, b.node_id, b.event_seq, s.topic, s.partition,
            min(if(s.api_key = {ApiKey.LEADER_AND_ISR}, s.seq, NULL)) AS lead_seq,
            min(if(s.api_key = {ApiKey.UPDATE_METADATA}, s.seq, NULL)) AS update_seq
        FROM batches b JOIN partition_state s
            ON b.run_id = s.run_id AND b.node_id = s.node_id AND s.cause_seq = b.batch_seq AND s.dir = 2
                AND s.api_key IN ({ApiKey.LEADER_AND_ISR}, {ApiKey.UPDATE_METADATA})
        GROUP BY ALL),
    kept AS (
        SELECT run_id, node_id, cause_seq AS event_seq, topic, partition, min_by(struct(leader_epoch, epoch_before), seq) AS led
        FROM (
            SELECT *, lag(leader_epoch) OVER (PARTITION BY run_id, node_id, topic, partition ORDER BY seq) AS epoch_before FROM events
            WHERE kind = 'partition_state')
        JOIN (SELECT run_id, node_id, event_seq AS cause_seq FROM altered) USING (run_id, node_id, cause_seq) GROUP BY ALL),
    completing AS (
        SELECT DISTINCT run_id, node_id, cause_seq AS event_seq, topic, partition FROM reassign WHERE kind = 'reassign_phase'),
    failed AS (
        SELECT DISTINCT run_id, node_id, cause_seq AS event_seq FROM events WHERE kind IN ('controller_resigned', 'event_failed')),
    last_batches AS (
        SELECT run_id, node_id, process, controller_epoch, max(seq) AS last_batch FROM events WHERE kind = 'batch' GROUP BY ALL),
    whole AS (
        SELECT a.*, last_batch > event_seq AS went_on FROM altered a JOIN last_batches USING (run_id, node_id, process, controller_epoch)
        LEFT ANTI JOIN failed USING (run_id, node_id, event_seq))
    SELECT w.run_id, w.node_id, CAST(NULL AS BIGINT) AS conn_id, coalesce(lead_seq, w.seq) AS seq, CASE
        WHEN c.topic IS NOT NULL THEN NULL
        WHEN led.leader_epoch <> led.epoch_before
            THEN format_string('%s-%s: leader epoch %s after %s for a change of the ISR', w.topic, w.partition, led.leader_epoch,
                led.epoch_before)
        WHEN lead_seq IS NOT NULL THEN format_string('%s-%s: LeaderAndIsr for a change of the ISR', w.topic, w.partition)
        WHEN update_seq IS NULL AND x.went_on
            THEN format_string('%s-%s: no UpdateMetadata for a change of the ISR', w.topic, w.partition)
        END AS detail, array_compact(array(w.event_seq, w.seq, lead_seq)) AS evidence
    FROM isr_writes w
    LEFT JOIN sent s ON w.run_id = s.run_id AND w.node_id = s.node_id AND w.event_seq = s.event_seq AND w.topic = s.topic
        AND w.partition = s.partition
    LEFT JOIN completing c ON w.run_id = c.run_id AND w.node_id = c.node_id AND w.event_seq = c.event_seq AND w.topic = c.topic
        AND w.partition = c.partition
    LEFT JOIN kept k ON w.run_id = k.run_id AND w.node_id = k.node_id AND w.event_seq = k.event_seq AND w.topic = k.topic
        AND w.partition = k.partition
    LEFT JOIN whole x ON w.run_id = x.run_id AND w.node_id = x.node_id AND w.event_seq = x.event_seq
    """),
    about="isr_writes",
)

C_10 = Rule(
    "C-10", "error", "in a batch a broker gets LeaderAndIsr, then UpdateMetadata, then StopReplica", "controller 13.2, 4.2",
    ("controller_requests",),
    f"""
    WITH ordered AS (
        SELECT *, lag(api_key) OVER w AS key_before, lag(seq) OVER w AS seq_before
        FROM controller_requests WHERE dir = 2 AND batch_seq IS NOT NULL
        WINDOW w AS (PARTITION BY run_id, node_id, batch_seq, peer_id ORDER BY seq))
    SELECT run_id, node_id, conn_id, seq,
        if(key_before <> api_key AND (key_before = {ApiKey.STOP_REPLICA} OR api_key = {ApiKey.LEADER_AND_ISR}),
            format_string('<api %s> after <api %s> in a batch', api_key, key_before), NULL) AS detail,
        array(batch_seq, seq_before, seq) AS evidence
    FROM ordered WHERE key_before IS NOT NULL
    """,
)

IN_CHANNELS = View(
    "in_channels",
    ("controller_requests",),
    """
    SELECT run_id, node_id, conn_id, seq, correlation_id, peer_id, lag(seq) OVER c AS before_on_connection,
        lag(answer_seq) OVER c AS answered_on_connection, lag(seq) OVER b AS before, lag(answer_seq) OVER b AS answered,
        lag(correlation_id) OVER b AS correlation_id_before
    FROM controller_requests WHERE dir = 2
    WINDOW c AS (PARTITION BY run_id, node_id, process, conn_id ORDER BY seq),
        b AS (PARTITION BY run_id, node_id, process, peer_id, controller_epoch, broker_epoch ORDER BY seq)
    """,
)
"""What a controller sent, beside what it sent before on this connection, and to this registration of the broker."""

REPEATS = View(
    "repeats", ("in_channels",),
    "SELECT run_id, node_id, seq, peer_id, before FROM in_channels WHERE before IS NOT NULL AND answered IS NULL",
)
"""Requests that follow one without a response."""

C_11 = Rule(
    "C-11", "error", "a channel has one request in flight; one without a response ends its connection, and is repeated with a new "
    "correlation id", "controller 13.1", ("in_channels", "repeats", "rare_fields", "events", "gappy"),
    unless_gaps(f"""
    WITH bodies AS (
        SELECT run_id, node_id, seq, digest AS body FROM rare_fields WHERE api_key IN ({keys(OF_CONTROLLERS)}) AND digest IS NOT NULL),
    gone AS (
        SELECT DISTINCT r.run_id, r.node_id, r.seq FROM repeats r JOIN events e ON r.run_id = e.run_id AND r.node_id = e.node_id
            AND r.peer_id = e.broker AND e.seq BETWEEN r.before AND r.seq AND e.kind IN ('broker_down', 'broker_up', 'broker_fenced')),
    differing AS (
        SELECT r.run_id, r.node_id, r.seq FROM repeats r
        JOIN bodies x ON r.run_id = x.run_id AND r.node_id = x.node_id AND r.before = x.seq
        JOIN bodies y ON r.run_id = y.run_id AND r.node_id = y.node_id AND r.seq = y.seq
        LEFT ANTI JOIN gone g ON r.run_id = g.run_id AND r.node_id = g.node_id AND r.seq = g.seq
        WHERE x.body <> y.body)
    SELECT o.run_id, o.node_id, o.conn_id, o.seq, CASE
        WHEN before_on_connection IS NOT NULL AND (answered_on_connection IS NULL OR answered_on_connection > o.seq)
            THEN format_string('sent to broker %s while the request of seq %s has no response', o.peer_id, before_on_connection)
        WHEN d.seq IS NOT NULL
            THEN format_string('follows the request of seq %s to broker %s, which got no response, with another body', before, o.peer_id)
        WHEN before IS NOT NULL AND answered IS NULL AND correlation_id_before = correlation_id
            THEN format_string('repeats the request of seq %s to broker %s with its correlation id', before, o.peer_id)
        END AS detail,
        array_compact(array(if(before_on_connection IS NOT NULL AND (answered_on_connection IS NULL OR answered_on_connection > o.seq),
            before_on_connection, before), o.seq)) AS evidence
    FROM in_channels o LEFT JOIN differing d ON o.run_id = d.run_id AND o.node_id = d.node_id AND o.seq = d.seq
    """),
)

C_12 = Rule(
    "C-12", "error", "all UpdateMetadata requests of a batch name the same partitions", "controller 13.2, 4.2",
    ("controller_requests", "partition_state"),
    f"""
    WITH named AS (
        SELECT run_id, node_id, seq, bit_xor(xxhash64(topic, partition)) AS named, count(*) AS count
        FROM partition_state WHERE dir = 2 AND api_key = {ApiKey.UPDATE_METADATA} GROUP BY ALL),
    updates AS (
        SELECT r.run_id, r.node_id, r.conn_id, r.seq, r.batch_seq, coalesce(n.named, 0) AS named, coalesce(n.count, 0) AS count
        FROM controller_requests r LEFT JOIN named n ON r.run_id = n.run_id AND r.node_id = n.node_id AND r.seq = n.seq
        WHERE r.dir = 2 AND r.api_key = {ApiKey.UPDATE_METADATA} AND r.batch_seq IS NOT NULL AND r.flags & 2 = 0),
    compared AS (
        SELECT *, first_value(named) OVER w AS named_first, first_value(count) OVER w AS count_first, first_value(seq) OVER w AS first
        FROM updates WINDOW w AS (PARTITION BY run_id, node_id, batch_seq ORDER BY seq))
    SELECT run_id, node_id, conn_id, seq,
        if(named <> named_first OR count <> count_first,
            format_string('names %s partitions, and the request of seq %s names %s others', count, first, count_first), NULL) AS detail,
        array(batch_seq, first, seq) AS evidence
    FROM compared WHERE seq > first
    """,
)

C_13 = Rule(
    "C-13", "error", "UpdateMetadata lists the brokers that count as registered when its batch is made, and no fenced one, and "
    "LeaderAndIsr those of them that lead one of its partitions. Requests go to brokers that are registered", "controller 13.4, RREG-6",
    ("known_brokers", "partition_state", "gappy"),
    unless_gaps(f"""
    WITH leaders AS (
        SELECT run_id, node_id, seq, array_sort(collect_set(leader)) AS leading FROM partition_state
        WHERE dir = 2 AND api_key = {ApiKey.LEADER_AND_ISR} AND cause_seq IS NOT NULL GROUP BY ALL),
    looked AS (
        SELECT k.*, if(api_key = {ApiKey.LEADER_AND_ISR}, array_intersect(coalesce(leading, array()), known.live), known.live) AS expected,
            map_contains_key(known.epochs, peer_id) OR map_contains_key(known.fenced, peer_id) AS is_registered
        FROM known_brokers k LEFT JOIN leaders USING (run_id, node_id, seq))
    SELECT run_id, node_id, conn_id, seq, CASE
        WHEN NOT is_registered THEN format_string('goes to broker %s, which is not registered', peer_id)
        WHEN live <> expected AND api_key = {ApiKey.LEADER_AND_ISR}
            THEN format_string('lists leaders %s, and %s lead and are registered', to_json(live), to_json(expected))
        WHEN live <> expected THEN format_string('lists %s, and %s are registered', to_json(live), to_json(expected))
        END AS detail, array(known.seq, batch_seq, seq) AS evidence
    FROM looked
    """),
)

_TABLE = {
    ApiKey.LEADER_AND_ISR: (("3.4-IV0", 7), ("3.2-IV0", 6), ("2.8-IV1", 5), ("2.4-IV1", 4), ("2.4-IV0", 3), ("2.2-IV0", 2), ("1.0-IV0", 1)),
    ApiKey.UPDATE_METADATA: (
        ("3.4-IV0", 8), ("2.8-IV1", 7), ("2.4-IV1", 6), ("2.2-IV0", 5), ("1.0-IV0", 4),
        ("0.10.2-IV0", 3), ("0.10.0-IV1", 2), ("0.9.0", 1),
    ),
    ApiKey.STOP_REPLICA: (("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1)),
}
"""API → the versions that an inter-broker protocol uses from a release on (controller 13.3); below all of them 0."""


def _number(text: str) -> str:
    """SQL: an inter-broker protocol as a number, so that later ones are higher; one without IV is the last of its release."""
    part = f"coalesce(try_cast(split_part(split_part({text}, '-IV', 1), '.', {{}}) AS BIGINT), 0) * {{}}"
    parts = " + ".join(part.format(place, weight) for place, weight in ((1, 1_000_000), (2, 10_000), (3, 100)))
    return f"({parts} + coalesce(try_cast(nullif(split_part({text}, '-IV', 2), '') AS BIGINT), 99))"


def _expected() -> str:
    rows = [(key, since, version) for key, table in _TABLE.items() for since, version in table]
    whens = [f"WHEN api_key = {key} AND used >= {_number(repr(since))} THEN {version}" for key, since, version in rows]
    return f"CASE {' '.join(whens)} ELSE 0 END"


C_14 = Rule(
    "C-14", "error", "the versions of a controller's requests are those of its inter-broker protocol", "controller 13.3",
    ("controller_requests", "events"),
    f"""
    WITH batches AS (
        SELECT run_id, node_id, seq AS batch_seq, get_json_object(output, '$.ibp') AS ibp FROM events WHERE kind = 'batch'),
    sent AS (
        SELECT r.*, ibp, {_number("ibp")} AS used FROM controller_requests r JOIN batches USING (run_id, node_id, batch_seq)
        WHERE r.dir = 2 AND ibp IS NOT NULL),
    compared AS (SELECT *, {_expected()} AS expected FROM sent)
    SELECT run_id, node_id, conn_id, seq,
        if(api_version <> expected,
            format_string('<api %s> in version %s, and %s is that of %s', api_key, api_version, expected, ibp), NULL) AS detail,
        array(batch_seq, seq) AS evidence
    FROM compared
    """,
)

C_15 = Rule(
    "C-15", "error", "a request has the broker epoch that the controller knew; after a new registration, and only then, it gets "
    "STALE_BROKER_EPOCH",
    "controller 13.4, 15", ("known_brokers", "controller_requests", "ends", "gappy"),
    # The epoch of a process only rises. A newer one than the controller's is found out soon, if the run goes on.
    unless_gaps(f"""
    WITH epochs AS (
        SELECT run_id, receiver, max(broker_epoch) AS newest_epoch FROM controller_requests GROUP BY run_id, receiver)
    SELECT run_id, node_id, conn_id, seq,
        if(broker_epoch <> coalesce(try_element_at(known.epochs, peer_id), try_element_at(known.fenced, peer_id)),
            format_string('broker epoch %s, and %s is that of broker %s', broker_epoch,
                coalesce(try_element_at(known.epochs, peer_id), try_element_at(known.fenced, peer_id)), peer_id), NULL) AS detail,
        array(known.seq, batch_seq, seq) AS evidence
    FROM known_brokers WHERE broker_epoch >= 0
    UNION ALL
    SELECT run_id, node_id, conn_id, seq, CASE
        WHEN error <> 77 AND taken_before.broker_epoch > broker_epoch
            THEN format_string('broker epoch %s gets <error %s> after %s', broker_epoch, error, taken_before.broker_epoch)
        WHEN error = 77 AND taken_behind.broker_epoch <= broker_epoch
            THEN format_string('broker epoch %s gets <error 77>, and %s is taken later', broker_epoch, taken_behind.broker_epoch)
        WHEN error = 77 AND newest_epoch = broker_epoch AND last_ts_ns > ts_ns + {PATIENCE_NS}
            THEN format_string('broker epoch %s gets <error 77>, and the broker has no other one', broker_epoch)
        END,
        array_compact(array(if(error = 77, NULL, taken_before.seq), seq, answer_seq,
            if(error = 77 AND taken_behind.broker_epoch <= broker_epoch, taken_behind.seq, NULL)))
    FROM (
        SELECT *, max(if(error = 0, struct(broker_epoch, seq), NULL)) OVER (PARTITION BY run_id, receiver, source ORDER BY seq
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS taken_before,
            min(if(error = 0, struct(broker_epoch, seq), NULL)) OVER (PARTITION BY run_id, receiver, receiver_process, source ORDER BY seq
                ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS taken_behind
        FROM controller_requests WHERE source = -1 AND broker_epoch >= 0)
    JOIN epochs USING (run_id, receiver) JOIN ends USING (run_id, node_id, process)
    WHERE error IS NOT NULL AND error <> 31
    """),
)

C_20 = Rule(
    "C-20", "error", "LeaderAndIsr goes to replicas of the partition alone, and UpdateMetadata with the same or a later state follows",
    "controller 7, 8, 13.2", ("states", "gappy"),
    unless_gaps(f"""
    WITH looked AS (
        SELECT *, (next_update IS NULL OR next_update.partition_epoch < partition_epoch AND next_update.leader <> -2)
            AND last_update > seq AND coalesce(error, 0) = 0 AS is_alone
        FROM states WHERE api_key = {ApiKey.LEADER_AND_ISR}),
    followed AS (
        SELECT DISTINCT a.run_id, a.node_id, a.seq, a.topic_key, a.partition FROM looked a
        JOIN states b ON a.run_id = b.run_id AND a.receiver = b.receiver AND a.source = b.source AND a.topic_key = b.topic_key
            AND a.partition = b.partition AND b.api_key = {ApiKey.UPDATE_METADATA} AND b.seq > a.seq
            AND (b.partition_epoch >= a.partition_epoch OR b.leader = -2)
        WHERE a.is_alone)
    SELECT a.run_id, a.node_id, a.conn_id, a.seq, CASE
        WHEN NOT array_contains(replicas, receiver)
            THEN format_string('%s-%s: broker %s is not in replicas %s', topic, a.partition, receiver, to_json(replicas))
        WHEN is_alone AND f.seq IS NULL THEN format_string('%s-%s: no UpdateMetadata follows to broker %s', topic, a.partition, receiver)
        END AS detail, array(a.seq) AS evidence
    FROM looked a LEFT JOIN followed f ON a.run_id = f.run_id AND a.node_id = f.node_id AND a.seq = f.seq AND a.topic_key = f.topic_key
        AND a.partition = f.partition
    """),
)

C_22 = Rule(
    "C-22", "error", "a controller that has resigned sends no more requests until it is elected again", "controller 3.1, 10.4",
    ("controller_requests", "events"),
    """
    WITH points AS (
        SELECT run_id, node_id, process, seq, kind = 'controller_resigned' AS has_resigned, CAST(NULL AS BIGINT) AS conn_id,
            CAST(NULL AS SMALLINT) AS api_key
        FROM events WHERE kind IN ('controller_elected', 'controller_resigned')
        UNION ALL
        SELECT run_id, node_id, process, seq, NULL, conn_id, api_key FROM controller_requests WHERE dir = 2),
    known AS (
        SELECT *, last_value(has_resigned, true) OVER w AS is_former, last_value(if(has_resigned IS NULL, NULL, seq), true) OVER w AS since
        FROM points WINDOW w AS (PARTITION BY run_id, node_id, process ORDER BY seq ROWS UNBOUNDED PRECEDING))
    SELECT run_id, node_id, conn_id, seq,
        if(is_former, format_string('<api %s> is sent after the controller resigned', api_key), NULL) AS detail,
        array(since, seq) AS evidence
    FROM known WHERE api_key IS NOT NULL AND is_former IS NOT NULL
    """,
    about="controller_requests",
)

C_25 = Rule(
    "C-25", "error", "what a broker received of a controller is what the controller's journal says it sent, and the controller received "
    "the response that the broker sent", "controller 13", ("rare_fields", "rare_traffic", "gappy"),
    # A correlation id counts on one connection, so two connections of a controller may have the same one. If the controller's journal has
    # fewer of them, it lost its end or its begin.
    unless_gaps(f"""
    WITH requests AS (
        SELECT q.run_id, q.node_id, q.seq, q.conn_id, q.dir, q.peer_id, q.client_id, q.api_key, q.correlation_id, q.controller_id,
            q.controller_epoch, q.digest, a.seq AS answer_seq, a.error_code AS error, a.errors
        FROM rare_fields q LEFT JOIN rare_traffic a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
            AND a.api_key IN ({keys(OF_CONTROLLERS)}) AND a.dir IN (1, 3) AND a.flags & 2 = 0
        WHERE q.api_key IN ({keys(OF_CONTROLLERS)}) AND q.dir IN (0, 2) AND q.has_body AND q.flags & 2 = 0),
    sent AS (
        SELECT run_id, node_id AS sender, peer_id AS receiver, api_key, correlation_id, controller_epoch, collect_set(digest) AS digests,
            count(*) AS n, min(seq) AS seq, min(answer_seq) AS answer_seq, min(error) AS error, min(errors) AS errors
        FROM requests WHERE dir = 2 AND peer_id IS NOT NULL
        GROUP BY run_id, node_id, peer_id, api_key, correlation_id, controller_epoch),
    received AS (
        SELECT *, count(*) OVER (PARTITION BY run_id, node_id, controller_id, api_key, correlation_id, controller_epoch) AS n
        FROM requests WHERE dir = 0 AND client_id = CAST(controller_id AS STRING))
    SELECT r.run_id, r.node_id, r.conn_id, r.seq, CASE
        WHEN r.n <= s.n AND NOT array_contains(s.digests, r.digest)
            THEN format_string('<api %s> with correlation id %s is not what controller %s sent', r.api_key, r.correlation_id, s.sender)
        WHEN s.n = 1 AND r.n = 1 AND (s.error <> r.error OR s.errors <> r.errors)
            THEN concat(format_string('<api %s> with correlation id %s: the response has <error %s> and %s codes', r.api_key,
                r.correlation_id, r.error, r.errors),
                format_string(', and controller %s got <error %s> and %s', s.sender, s.error, s.errors))
        END AS detail,
        array_compact(array(struct(s.sender AS node_id, s.seq AS seq), struct(r.node_id AS node_id, r.seq AS seq),
            if(r.answer_seq IS NULL, NULL, struct(r.node_id AS node_id, r.answer_seq AS seq)),
            if(s.answer_seq IS NULL, NULL, struct(s.sender AS node_id, s.answer_seq AS seq)))) AS evidence
    FROM received r JOIN sent s ON s.run_id = r.run_id AND s.sender = r.controller_id AND s.receiver = r.node_id AND s.api_key = r.api_key
        AND s.correlation_id = r.correlation_id AND s.controller_epoch = r.controller_epoch
    """, of="run"),
    needs=(messages_of(*OF_CONTROLLERS),), is_across=True,
)

SENDING_VIEWS = (ISR_WRITES, IN_CHANNELS, REPEATS)

SENDING_RULES: tuple[Rule, ...] = (C_03, C_04, C_09, C_10, C_11, C_12, C_13, C_14, C_15, C_20, C_22, C_25)
