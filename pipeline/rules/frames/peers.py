"""Which connections are those of brokers and controllers, and which of clients: `klamm.protocol.exchanges.peers` in SQL."""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import View, messages_of
from klamm.protocol.apis import BROKER_SOFTWARE, ONLY_OF_BROKERS, ApiKey
from klamm.protocol.exchanges.peers import BROKER_NAMES, UNNAMED

PEERS = View(
    "peers",
    ("frame_counts",),
    f"""
SELECT run_id, node_id, process, conn_id,
    coalesce(bool_or(api_key IN ({keys(sorted(ONLY_OF_BROKERS))})), false) OR coalesce(bool_or(follower_fetches > 0), false)
    OR coalesce(bool_or(client_sw LIKE '{BROKER_SOFTWARE}/%'), false)
    OR coalesce(bool_or(client_id RLIKE '^({BROKER_NAMES})$'), false)
        AND coalesce(bool_and(api_key IN ({keys(sorted(UNNAMED))}) AND (api_key <> {ApiKey.FETCH} OR follower_fetches > 0)), true)
        AS is_broker
FROM frame_counts WHERE dir = 0 GROUP BY run_id, node_id, process, conn_id""",
)
"""The connections that brokers accepted, and whether their other end is a broker or a controller."""

BODY_COUNTS = View(
    "body_counts",
    ("frame_counts", "peers"),
    """
SELECT f.part, f.dir, f.api_key, coalesce(p.is_broker, false) AS is_broker, CAST(sum(f.frames - f.undecoded) AS BIGINT) AS decoded
FROM frame_counts f
LEFT JOIN peers p ON p.run_id = f.run_id AND p.node_id = f.node_id AND p.process = f.process AND p.conn_id = f.conn_id
WHERE f.dir IN (0, 1) AND f.part IS NOT NULL GROUP BY ALL""",
)
"""How many frames decode, by part of gold, direction, API and kind of peer."""

FLAWS = View(
    "flaws",
    ("fields", "peers"),
    """
SELECT f.run_id, f.node_id, f.process, f.conn_id, f.seq, f.dir, f.cause_seq, f.client_id, f.flaw.rule AS rule, f.flaw.detail AS detail,
    coalesce(p.is_broker, false) AS is_broker
FROM (
    SELECT run_id, node_id, process, conn_id, seq, dir, cause_seq, client_id, flaw
    FROM fields LATERAL VIEW explode(flaws) AS flaw WHERE dir IN (0, 1)) f
LEFT JOIN peers p ON p.run_id = f.run_id AND p.node_id = f.node_id AND p.process = f.process AND p.conn_id = f.conn_id""",
)
"""What single bodies show to be wrong (`pipeline/decode/flaw_finders.py`)."""

MOVED = View(
    "moved",
    ("partition_state", "ends"),
    """
SELECT s.run_id, s.topic, s.partition, bool_or(e.node_id IS NULL) AS is_unseen
FROM partition_state s
LEFT JOIN (SELECT DISTINCT run_id, node_id FROM ends) e ON e.run_id = s.run_id AND e.node_id = s.leader
WHERE s.topic IS NOT NULL AND s.leader >= 0
GROUP BY s.run_id, s.topic, s.partition
HAVING min(s.leader) <> max(s.leader) OR min(s.leader_epoch) <> max(s.leader_epoch) OR min(s.topic_id) <> max(s.topic_id)""",
)
"""The partitions that have several leaders, leader epochs or topic ids, as frames say; `is_unseen`: one of the leaders has no journal."""

DELETED = View(
    "deleted_topics",
    ("rare_fields", "topic_names"),
    f"""
WITH named AS (
    SELECT run_id, api_version, explode(names) AS name FROM rare_fields WHERE api_key = {ApiKey.DELETE_TOPICS} AND dir = 0)
SELECT d.run_id, coalesce(n.topic_name, d.name) AS topic, n.topic_name IS NULL AND d.api_version >= 6 AND length(d.name) = 22 AS is_id
FROM named d LEFT JOIN topic_names n ON n.run_id = d.run_id AND n.named_key = d.name""",
    needs=(messages_of(ApiKey.DELETE_TOPICS),),
)
"""The topics that somebody asked to delete; `is_id`: one that has this id, and nobody knows its name."""

SAME_LOG = ("deleted_topics", "moved")
"""What `of_one_log` reads."""


def of_one_topic(rows: str) -> str:
    """SQL: the rows of topics that nobody asked to delete in the run."""
    return f"""{rows} LEFT ANTI JOIN deleted_topics USING (run_id, topic)
    LEFT ANTI JOIN (SELECT run_id FROM deleted_topics WHERE is_id) USING (run_id)"""


def of_one_log(rows: str) -> str:
    """SQL: the rows of partitions with one log and one leader in the whole run, as far as is known."""
    return f"{of_one_topic(rows)} LEFT ANTI JOIN moved USING (run_id, topic, partition)"


VIEWS = (PEERS, BODY_COUNTS, FLAWS, MOVED, DELETED)
