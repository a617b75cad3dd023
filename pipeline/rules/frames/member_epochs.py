"""Rules about the epochs of members of groups of KIP-848, as ConsumerGroupHeartbeat requests and their responses show them.

A member joins with epoch 0 and leaves with a negative one. Requests on one connection have an order, and one member is on one connection.
"""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule, View, messages_of
from klamm.pipeline.rules.traffic import CONNECTION
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

_FENCED = f"{int(ErrorCode.UNKNOWN_MEMBER_ID)}, {int(ErrorCode.FENCED_MEMBER_EPOCH)}"

MEMBER_BEATS = View(
    "member_beats",
    ("rare_fields", "gappy"),
    f"""
WITH beats AS (SELECT * FROM rare_fields WHERE api_key = {ApiKey.CONSUMER_GROUP_HEARTBEAT} AND has_body)
SELECT *, lag(struct(epoch, told_epoch, error, seq, answer_seq)) OVER (
    PARTITION BY {", ".join(CONNECTION)}, group_id, member_id ORDER BY seq) AS before
FROM (
    SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, q.client_id, q.group_id, q.generation AS epoch, a.seq AS answer_seq,
        a.error_code AS error, a.generation AS told_epoch,
        -- In version 0 the coordinator names a member that joins.
        if(q.member_id = '', coalesce(a.member_id, ''), q.member_id) AS member_id
    FROM (SELECT * FROM beats LEFT ANTI JOIN gappy USING (run_id, node_id) WHERE dir = 0) q
    LEFT JOIN (SELECT * FROM beats WHERE dir = 1) a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq)""",
    needs=(messages_of(ApiKey.CONSUMER_GROUP_HEARTBEAT),),
)
"""Heartbeats of members, each with what was answered, and the one before it on its connection."""

_WHO = "concat('client ', coalesce(client_id, ''), ', group ', group_id, ', member ', member_id, ': ')"

_RISE = f"""
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN epoch < before.epoch THEN concat({_WHO}, 'epoch ', epoch, ' after ', before.epoch)
        WHEN before.answer_seq < seq AND before.error = 0 AND epoch > greatest(before.epoch, before.told_epoch)
            THEN concat({_WHO}, 'epoch ', epoch, ', and the coordinator told ', before.told_epoch)
    END AS detail,
    array_compact(array(before.seq, before.answer_seq, seq)) AS evidence
FROM member_beats WHERE epoch > 0 AND before.epoch >= 0"""

_BEGINS_AGAIN = f"""
SELECT run_id, node_id, conn_id, seq,
    if(epoch > 0, concat({_WHO}, 'goes on with epoch ', epoch, ' after <error ', before.error, '>'), NULL) AS detail,
    array(before.answer_seq, seq) AS evidence
FROM member_beats WHERE before.error IN ({_FENCED}) AND before.answer_seq < seq"""

_TOLD = """
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    CASE WHEN told_epoch < epoch
            THEN concat('group ', group_id, ', member ', member_id, ': epoch ', told_epoch, ' for a heartbeat with epoch ', epoch)
        WHEN epoch = 0 AND told_epoch < 1 THEN concat('group ', group_id, ', member ', member_id, ': joins with epoch ', told_epoch)
    END AS detail,
    array(seq, answer_seq) AS evidence
FROM member_beats WHERE error = 0 AND epoch >= 0"""

VIEWS = (MEMBER_BEATS,)

_BEATS = (messages_of(ApiKey.CONSUMER_GROUP_HEARTBEAT),)

RULES: tuple[Rule, ...] = (
    Rule(
        "K-14", "warn", "The epochs of a member of a group of KIP-848 do not fall, and are those that the coordinator told, unless it "
        "joins or leaves.", "KIP-848", ("member_beats",), _RISE, about="member_beats", needs=_BEATS,
    ),
    Rule(
        "K-15", "warn", "After UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH a member of a group of KIP-848 joins again with epoch 0, or "
        "leaves.", "KIP-848", ("member_beats",), _BEGINS_AGAIN, about="member_beats", needs=_BEATS,
    ),
    Rule(
        "G-10", "error", "The coordinator gives a member of a group of KIP-848 an epoch from 1 on when it joins, and none below that of "
        "its heartbeat.", "KIP-848", ("member_beats",), _TOLD, about="member_beats", needs=_BEATS,
    ),
)
