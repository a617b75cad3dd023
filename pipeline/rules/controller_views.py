"""What several rules about the controller read: its requests with their responses, and the states of partitions that they carry.

A frame between two brokers may be in both journals. The receiver's own journal counts where it is in the run, because its rows stand in
the order in which the receiver read the frames and know its process; else the sender's rows count. `judged` says which rows count, and
`source` which journal orders them: -1 the receiver's own, else the sender's.

Topics are told apart by `topic_key`: the topic id, or the name where a version carries no id. A name can come to mean another topic, so
rules that compare brokers leave out topics without ids that were deleted in the run, and windows start again with leader -2.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import View, messages_of
from klamm.protocol.apis import OF_CONTROLLERS, ApiKey

ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

OF_PARTITION = "PARTITION BY run_id, receiver, source, topic_key, partition, incarnation ORDER BY seq"
"""A partition as one receiver was told of it."""

CONTROLLER_REQUESTS = View(
    "controller_requests",
    ("rare_fields", "rare_traffic", "journals"),
    f"""
    WITH journaled AS (SELECT DISTINCT run_id AS of_run, node_id AS journaled_id FROM journals),
    responses AS (
        SELECT run_id, node_id, cause_seq AS seq, min(seq) AS answer_seq, min_by(error_code, seq) AS error
        FROM rare_traffic WHERE dir IN (1, 3) AND api_key IN ({keys(OF_CONTROLLERS)}) AND cause_seq IS NOT NULL GROUP BY ALL),
    requests AS (
        SELECT run_id, node_id, process, seq, ts_ns, conn_id, dir, api_key, api_version, correlation_id, flags,
            if(dir = 2, cause_seq, NULL) AS batch_seq, peer_id,
            if(dir = 0, node_id, peer_id) AS receiver, if(dir = 0, process, 0) AS receiver_process, if(dir = 0, -1, node_id) AS source,
            controller_id, controller_epoch, broker_epoch, live
        FROM rare_fields WHERE api_key IN ({keys(OF_CONTROLLERS)}) AND dir IN (0, 2) AND has_body)
    SELECT requests.*, answer_seq, error, dir = 0 OR (peer_id IS NOT NULL AND journaled_id IS NULL) AS judged,
        if(bool_or(api_key = {ApiKey.UPDATE_METADATA} AND flags & 2 <> 0) OVER channel, NULL,
            max(if(api_key = {ApiKey.UPDATE_METADATA}, seq, NULL)) OVER channel) AS last_update
    FROM requests LEFT JOIN responses USING (run_id, node_id, seq)
    LEFT JOIN journaled ON dir = 2 AND run_id = of_run AND peer_id = journaled_id
    WINDOW channel AS (PARTITION BY run_id, node_id, dir, receiver, controller_epoch, broker_epoch)
    """,
    needs=(messages_of(*OF_CONTROLLERS),),
)
"""LeaderAndIsr, StopReplica and UpdateMetadata requests, one row for each frame. `answer_seq` is null where no response came, `error` is
the top-level code. `live` are the ids in LiveBrokers, or LiveLeaders, sorted. `last_update` is the last UpdateMetadata of this
controller epoch to this registration of the receiver."""

REFUSED = View(
    "refused_states",
    ("rare_fields",),
    f"""
    SELECT run_id, node_id, seq, nullif(one.topicId, '{ZERO_ID}') AS refused_id, one.topicName AS refused_topic,
        one.partitionIndex AS partition, one.errorCode AS refusal
    FROM (
        SELECT run_id, node_id, cause_seq AS seq, explode(refused) AS one FROM rare_fields
        WHERE api_key = {ApiKey.LEADER_AND_ISR} AND dir IN (1, 3) AND errors > 0 AND error_code = 0)
    """,
)
"""Partitions of LeaderAndIsr requests that the receiver responded with an error to."""

STATES = View(
    "states",
    ("partition_state", "controller_requests", "refused_states"),
    f"""
    WITH joined AS (
        SELECT s.run_id, s.node_id, s.process, s.seq, s.ts_ns, s.conn_id, s.api_key, s.api_version, s.topic, s.partition,
            coalesce(nullif(s.topic_id, '{ZERO_ID}'), s.topic) AS topic_key, coalesce(s.topic_id, '{ZERO_ID}') <> '{ZERO_ID}' AS has_id,
            s.leader, s.leader_epoch, s.isr, s.replicas, s.offline, s.adding, s.removing, s.partition_epoch,
            if(s.api_key = {ApiKey.LEADER_AND_ISR} AND s.api_version >= 6, s.recovery, NULL) AS recovery,
            coalesce(s.is_new, false) AS is_new,
            r.receiver, r.receiver_process, r.source, r.controller_id, r.controller_epoch, r.broker_epoch, r.batch_seq, r.answer_seq,
            r.last_update, if(r.error = 0, coalesce(f.refusal, 0), r.error) AS error
        FROM partition_state s
        JOIN controller_requests r ON s.run_id = r.run_id AND s.node_id = r.node_id AND s.seq = r.seq AND r.judged
        LEFT JOIN refused_states f ON s.run_id = f.run_id AND s.node_id = f.node_id AND s.seq = f.seq AND s.partition = f.partition
            AND (s.topic_id = f.refused_id OR s.topic = f.refused_topic)
        WHERE s.api_key IN ({ApiKey.LEADER_AND_ISR}, {ApiKey.UPDATE_METADATA}) AND s.dir IN (0, 2)),
    named AS (SELECT *, if(has_id, 0, receiver_process) AS incarnation FROM joined),
    segmented AS (
        SELECT *, lag(struct(replicas, seq)) OVER ({OF_PARTITION}) AS before, lead(seq) OVER ({OF_PARTITION}) AS next_seq,
            sum(if(leader = -2 AND api_key = {ApiKey.UPDATE_METADATA}, 1, 0)) OVER ({OF_PARTITION} ROWS UNBOUNDED PRECEDING) AS deletions
        FROM named),
    tellings AS (
        SELECT *, if(error = 0 AND leader <> -2, struct(deletions, leader_epoch AS epoch, answer_seq, seq), NULL) AS told_leader_epoch,
            if(error = 0 AND leader <> -2, struct(deletions, partition_epoch AS epoch, answer_seq, seq), NULL) AS told_partition_epoch,
            if(api_key = {ApiKey.UPDATE_METADATA} AND coalesce(error, 0) = 0,
                struct(partition_epoch, leader, offline, seq, controller_epoch, broker_epoch), NULL) AS update
        FROM segmented)
    SELECT * EXCEPT (told_leader_epoch, told_partition_epoch, update, next_seq, before),
        max(told_leader_epoch) OVER ({OF_PARTITION} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS leader_epoch_before,
        max(told_partition_epoch) OVER ({OF_PARTITION} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS partition_epoch_before,
        last_value(if(before.replicas <> replicas, before, NULL), true) OVER ({OF_PARTITION} ROWS UNBOUNDED PRECEDING) AS others,
        row_number() OVER ({OF_PARTITION}) AS nth,
        if(api_key = {ApiKey.LEADER_AND_ISR}, coalesce(lead(update, 1) OVER ({OF_PARTITION}), lead(update, 2) OVER ({OF_PARTITION}),
            lead(update, 3) OVER ({OF_PARTITION})), NULL) AS next_update
    FROM tellings
    """,
)
"""What receivers were told of partitions by LeaderAndIsr and UpdateMetadata, one row for each partition of each judged frame.

`error` is null without a response, else the top-level code, else that of the partition. `leader_epoch_before` and
`partition_epoch_before` have the highest epoch that the receiver took before, with `deletions`, which is compared first: how often
it was told that the topic is being deleted. `others` has the last list of replicas told before that differs from this one, and its `seq`.
`next_update` is what UpdateMetadata said next, for rows of LeaderAndIsr."""

PARTITION_EPOCHS = View(
    "partition_epochs",
    ("states",),
    f"""
    WITH deleted AS (
        SELECT DISTINCT run_id, topic_key FROM states WHERE leader = -2 AND NOT has_id),
    facts AS (
        SELECT run_id, topic_key, partition, partition_epoch, any_value(topic) AS topic,
            min(leader) AS leader, max(leader) AS leader_most, min(leader_epoch) AS leader_epoch, max(leader_epoch) AS leader_epoch_most,
            min(isr) AS isr, max(isr) AS isr_most, min(recovery) AS recovery, max(recovery) AS recovery_most,
            min(if(api_key = {ApiKey.LEADER_AND_ISR}, api_version, api_version - 1)) AS lowest_version, max(controller_id) AS controller_id,
            min(struct(ts_ns, node_id, seq, conn_id)) AS first, max(struct(ts_ns, node_id, seq, conn_id)) AS last,
            min(struct(leader, leader_epoch, isr, coalesce(recovery, 0) AS recovery, ts_ns, node_id, seq, conn_id)) AS least,
            max(struct(leader, leader_epoch, isr, coalesce(recovery, 0) AS recovery, ts_ns, node_id, seq, conn_id)) AS most
        FROM states LEFT ANTI JOIN deleted USING (run_id, topic_key)
        WHERE leader <> -2 AND partition_epoch >= 0 GROUP BY run_id, topic_key, partition, partition_epoch)
    SELECT *, lag(partition_epoch) OVER w AS epoch_before, lag(leader) OVER w AS leader_before, lag(leader_epoch) OVER w AS
        leader_epoch_before, lag(isr) OVER w AS isr_before, lag(first) OVER w AS first_before,
        last_value(if(recovery IS NOT NULL, struct(partition_epoch, recovery, first), NULL), true)
            OVER (PARTITION BY run_id, topic_key, partition ORDER BY partition_epoch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            AS mark_before
    FROM facts WINDOW w AS (PARTITION BY run_id, topic_key, partition ORDER BY partition_epoch)
    """,
)
"""Each state of each partition that any receiver was told, by partition epoch, beside the one before. Where frames disagree about
one, `leader` and `leader_most` differ, and so on, and `least` and `most` are two frames that do. `lowest_version` counts as LeaderAndIsr
does: UpdateMetadata is one higher."""

TOPIC_NAMES = View(
    "topic_names",
    ("partition_state",),
    """
    SELECT run_id, topic_id AS named_key, max(topic) AS topic_name FROM partition_state
    WHERE topic_id IS NOT NULL AND topic IS NOT NULL GROUP BY run_id, topic_id
    """,
)
"""The names of topics that have ids, for what people read."""

ALTERS = View(
    "alters",
    ("rare_fields", "journals", "topic_names"),
    f"""
    WITH requests AS (
        SELECT run_id, node_id, process, seq, conn_id, dir, api_version, peer_id, broker_id, altered AS topics
        FROM rare_fields WHERE api_key = {ApiKey.ALTER_PARTITION} AND dir IN (0, 2) AND has_body),
    topics AS (SELECT * EXCEPT (topics, place, t), place AS topic_place, t FROM requests LATERAL VIEW posexplode(topics) each AS place, t),
    asked AS (
        SELECT * EXCEPT (t, p), coalesce(nullif(t.topicId, '{ZERO_ID}'), t.topicName) AS topic_key,
            p.partitionIndex AS partition, p.leaderEpoch AS leader_epoch, p.partitionEpoch AS partition_epoch,
            coalesce(p.newIsr, transform(p.newIsrWithEpochs, each -> each.brokerId)) AS isr, coalesce(p.leaderRecoveryState, 0) AS recovery
        FROM topics LATERAL VIEW posexplode(t.partitions) each AS place, p),
    latest AS (
        SELECT *, row_number() OVER (PARTITION BY run_id, node_id, seq, topic_key, partition ORDER BY topic_place DESC, place DESC) AS nth
        FROM asked),
    answers AS (
        SELECT run_id, node_id, seq AS answer_seq, cause_seq AS seq, error_code AS top_error,
            alterations AS topics
        FROM rare_fields WHERE api_key = {ApiKey.ALTER_PARTITION} AND dir IN (1, 3)),
    results AS (
        SELECT run_id, node_id, seq, coalesce(nullif(t.topicId, '{ZERO_ID}'), t.topicName) AS topic_key, explode(t.partitions) AS result
        FROM (SELECT run_id, node_id, seq, explode(topics) AS t FROM answers)),
    journaled AS (SELECT DISTINCT run_id AS of_run, node_id AS journaled_id FROM journals)
    SELECT l.* EXCEPT (nth, place, topic_place), coalesce(topic_name, l.topic_key) AS topic, answer_seq, top_error, result,
        l.dir = 0 OR (l.peer_id IS NOT NULL AND journaled_id IS NULL) AS judged
    FROM latest l LEFT JOIN answers a ON l.run_id = a.run_id AND l.node_id = a.node_id AND l.seq = a.seq
    LEFT JOIN results r ON l.run_id = r.run_id AND l.node_id = r.node_id AND l.seq = r.seq AND l.topic_key = r.topic_key
        AND l.partition = r.result.partitionIndex
    LEFT JOIN journaled ON l.dir = 2 AND l.run_id = of_run AND l.peer_id = journaled_id
    LEFT JOIN topic_names n ON n.run_id = l.run_id AND n.named_key = l.topic_key
    WHERE nth = 1
    """,
    needs=(messages_of(ApiKey.ALTER_PARTITION),),
)
"""Partitions of AlterPartition requests with what the controller responded: `result` is null without a response, or with a top-level
error. Of a partition named twice the last entry is the row, as the controller takes it. `topic` is the id if no frame has the name."""

KNOWN_BROKERS = View(
    "known_brokers",
    ("events", "controller_requests"),
    """
    WITH changes AS (
        SELECT run_id, node_id, seq, broker, kind, CAST(get_json_object(output, '$.epoch') AS BIGINT) AS epoch,
            kind IN ('broker_fenced', 'broker_unfenced') AS about_fenced,
            sum(if(kind = 'controller_elected', 1, 0)) OVER (PARTITION BY run_id, node_id ORDER BY seq) AS term
        FROM events
        WHERE kind IN ('controller_elected', 'broker_up', 'broker_down', 'broker_fenced', 'broker_unfenced')),
    latest AS (
        SELECT a.run_id, a.node_id, a.seq, b.broker, b.about_fenced, max_by(struct(b.kind, b.epoch), b.seq) AS last
        FROM changes a JOIN changes b ON a.run_id = b.run_id AND a.node_id = b.node_id AND a.term = b.term AND b.seq <= a.seq AND a.term > 0
        GROUP BY ALL),
    snapshots AS (
        SELECT run_id, node_id, seq,
            array_sort(collect_set(if(last.kind = 'broker_up', broker, NULL))) AS live,
            map_from_entries(array_distinct(collect_list(
                if(last.kind = 'broker_up', struct(broker, last.epoch), NULL)))) AS epochs,
            map_from_entries(array_distinct(collect_list(
                if(last.kind = 'broker_fenced', struct(broker, last.epoch), NULL)))) AS fenced
        FROM latest GROUP BY run_id, node_id, seq),
    points AS (
        SELECT run_id, node_id, seq AS at, struct(seq, live, epochs, fenced) AS known, NULL AS request FROM snapshots
        UNION ALL
        SELECT run_id, node_id, batch_seq, NULL,
            struct(seq, conn_id, api_key, peer_id, broker_epoch, live, batch_seq)
        FROM controller_requests WHERE dir = 2 AND batch_seq IS NOT NULL)
    SELECT run_id, node_id, request.*, known_then AS known FROM (
        SELECT *, last_value(known, true) OVER (PARTITION BY run_id, node_id ORDER BY at, request IS NOT NULL ROWS UNBOUNDED PRECEDING)
            AS known_then
        FROM points)
    WHERE request IS NOT NULL AND known_then IS NOT NULL
    """,
)
"""Requests of controllers beside the brokers that the controller knew when it made their batch: `known.live` are those that count as
registered, `known.epochs` their epochs, `known.fenced` the epochs of fenced ones, `known.seq` the row that says so."""

VIEWS = (CONTROLLER_REQUESTS, REFUSED, STATES, PARTITION_EPOCHS, TOPIC_NAMES, ALTERS, KNOWN_BROKERS)
