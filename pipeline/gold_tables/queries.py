"""The tables of gold that people look at. Each is one SQL statement over views of silver's tables, and views that are prepared for rules.

The text is Spark's SQL; `pipeline/quick` translates it to DuckDB's.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.pipeline.lake.tables import (
    API_MATRIX,
    CLIENT_SCORECARD,
    EVENT_TABLE,
    GROUP_GENERATIONS,
    HEADERS,
    LATENCY,
    LEADER_TIMELINE,
    OFFSET_COMMITS,
    PARTITION_STATE,
    REASSIGN,
    REASSIGN_SPANS,
    TRANSACTIONS,
    Table,
)
from klamm.pipeline.lake.windows import WindowPart
from klamm.pipeline.rules.groups.calls import COMMITS, GROUP_ENDS, GROUP_JOINS, MEMBER_CALLS
from klamm.pipeline.rules.record import Need
from klamm.pipeline.rules.traffic import FRAME_COUNTS
from klamm.pipeline.rules.transactions.calls import TRANSACTIONS_TOLD, TXN_MARKERS
from klamm.protocol.apis import APIS, ApiKey

_API = f"element_at(map({', '.join(f'{key}, {api.name!r}' for key, api in APIS.items())}), CAST(api_key AS INT))"
"""The name of an API; null for a key that no API has."""

_ADVERTISED = """
SELECT run_id, node_id, CAST(one[0] AS INT) AS key, min(one[1]) AS low, max(one[2]) AS high
FROM (
  SELECT run_id, node_id, explode(from_json(get_json_object(output, '$.apis'), 'array<array<int>>')) AS one
  FROM events WHERE kind = 'advertised'
)
GROUP BY ALL
"""

QUERIES: dict[Table, str] = {
    LATENCY: f"""
SELECT *, {_API} AS api, parts[0] AS p50_ns, parts[1] AS p99_ns, parts[2] AS p999_ns
FROM (
  SELECT run_id, node_id, dir, api_key, count(*) AS count, max(latency_ns) AS max_ns,
    percentile_approx(latency_ns, array(0.5, 0.99, 0.999), 10000) AS parts
  FROM headers WHERE :rows AND dir IN (1, 3) AND latency_ns IS NOT NULL AND api_key IS NOT NULL
  GROUP BY run_id, node_id, dir, api_key
)
""",
    API_MATRIX: f"""
SELECT h.*, {_API} AS api,
  if(api_key <> {ApiKey.API_VERSIONS} AND NOT coalesce(api_version BETWEEN a.low AND a.high, true), requests, 0) AS outside
FROM (
  SELECT run_id, node_id, client_sw, client_id, api_key, api_version,
    sum(if(dir = 0, frames, 0)) AS requests, sum(if(dir = 1, frames, 0)) AS responses, sum(if(dir = 1, failed, 0)) AS errors,
    sum(undecoded) AS quarantined
  FROM frame_counts WHERE :counts AND dir IN (0, 1)
  GROUP BY run_id, node_id, client_sw, client_id, api_key, api_version
) h
LEFT JOIN ({_ADVERTISED}) a ON a.run_id = h.run_id AND a.node_id = h.node_id AND a.key = h.api_key
""",
    LEADER_TIMELINE: f"""
WITH told AS (
  SELECT run_id, topic, topic_id, partition, leader, leader_epoch, controller_epoch, node_id, seq, ts_ns,
    -- A topic without an id begins again under its name when it has been deleted.
    if(coalesce(topic_id, 'AAAAAAAAAAAAAAAAAAAAAA') <> 'AAAAAAAAAAAAAAAAAAAAAA', 0, coalesce(sum(if(leader = -2, 1, 0)) OVER (
      PARTITION BY run_id, topic, topic_id, partition ORDER BY ts_ns, node_id, seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0)) AS life
  FROM partition_state
  WHERE api_key IN ({ApiKey.LEADER_AND_ISR}, {ApiKey.UPDATE_METADATA}) AND dir IN (0, 2)
    AND leader >= -2 AND leader_epoch IS NOT NULL AND topic IS NOT NULL
), leaders AS (
  SELECT run_id, topic, topic_id, partition, life, leader, leader_epoch,
    min_by(struct(controller_epoch, node_id, seq, ts_ns), struct(ts_ns, node_id, seq)) AS first
  FROM told WHERE leader >= -1 GROUP BY run_id, topic, topic_id, partition, life, leader, leader_epoch
), deletions AS (
  SELECT run_id, topic, coalesce(topic_id, '') AS id, partition, life, min(ts_ns) AS ts_ns FROM told
  WHERE leader = -2 GROUP BY run_id, topic, coalesce(topic_id, ''), partition, life
)
SELECT l.run_id, l.topic, l.topic_id, l.partition, l.leader, l.leader_epoch, l.first.controller_epoch AS controller_epoch,
  l.first.node_id AS node_id, l.first.seq AS seq, l.first.ts_ns AS from_ts_ns,
  coalesce(lead(l.first.ts_ns) OVER (
    PARTITION BY l.run_id, l.topic, l.topic_id, l.partition, l.life ORDER BY l.leader_epoch, l.first.ts_ns), d.ts_ns) AS to_ts_ns
FROM leaders l LEFT JOIN deletions d ON d.run_id = l.run_id AND d.topic = l.topic AND d.id = coalesce(l.topic_id, '')
  AND d.partition = l.partition AND d.life = l.life
""",
    REASSIGN_SPANS: """
WITH throttles AS (
  SELECT run_id, node_id, coalesce(topic, '') AS throttled, ts_ns AS at_ns, kind = 'throttle_set' AS is_set
  FROM events WHERE kind IN ('throttle_set', 'throttle_removed')
), phases AS (
  SELECT r.run_id, r.node_id, r.process, r.topic, r.partition, r.step, r.phase, r.seq, r.ts_ns, c.ts_ns AS cause_ts_ns
  FROM reassign r LEFT JOIN events c ON c.run_id = r.run_id AND c.node_id = r.node_id AND c.seq = r.cause_seq
  WHERE r.kind = 'reassign_phase' AND r.phase IS NOT NULL AND r.topic IS NOT NULL
), throttled AS (
  SELECT p.run_id, p.node_id, p.seq, max_by(t.is_set, t.at_ns) AS is_set
  FROM phases p JOIN throttles t ON t.run_id = p.run_id AND t.throttled = p.topic AND t.at_ns <= p.ts_ns
  GROUP BY p.run_id, p.node_id, p.seq
)
SELECT p.run_id, p.node_id, p.topic, p.partition, p.step, p.phase, p.seq,
  coalesce(lag(p.ts_ns) OVER steps, p.cause_ts_ns, p.ts_ns) AS from_ts_ns,
  p.ts_ns AS to_ts_ns, coalesce(t.is_set, false) AS throttle
FROM phases p LEFT JOIN throttled t ON t.run_id = p.run_id AND t.node_id = p.node_id AND t.seq = p.seq
WINDOW steps AS (PARTITION BY p.run_id, p.node_id, p.process, p.topic, p.partition, p.step ORDER BY p.seq)
""",
    CLIENT_SCORECARD: """
SELECT c.*, l.parts[0] AS p50_ns, l.parts[1] AS p99_ns
FROM (
  SELECT run_id, client_sw, client_id, count(DISTINCT struct(node_id, process, conn_id)) AS connections,
    sum(if(dir = 0, frames, 0)) AS requests, sum(if(dir = 1, frames, 0)) AS responses, sum(if(dir = 0, unanswered, 0)) AS no_response,
    sum(if(dir = 1, failed, 0)) AS errors, sum(if(dir = 0, surplus, 0)) AS surplus,
    sum(if(dir = 0, undecoded, 0)) AS quarantined, size(collect_set(api_key)) AS apis,
    min(first_ts_ns) AS first_ts_ns, max(last_ts_ns) AS last_ts_ns
  FROM frame_counts WHERE :counts AND dir IN (0, 1) AND kind = 'accepted'
  GROUP BY run_id, client_sw, client_id
) c
LEFT JOIN (
  SELECT run_id, client_sw, client_id, percentile_approx(latency_ns, array(0.5, 0.99), 10000) AS parts
  FROM headers WHERE :rows AND dir = 1 AND kind = 'accepted' AND latency_ns IS NOT NULL
  GROUP BY run_id, client_sw, client_id
) l ON l.run_id = c.run_id AND l.client_sw <=> c.client_sw AND l.client_id <=> c.client_id
""",
    GROUP_GENERATIONS: f"""
WITH told AS (
  SELECT run_id, node_id, process, group_id, turn, life, generation, min_by(protocol_type, answer_seq) AS protocol_type,
    min_by(protocol, answer_seq) AS protocol, min_by(leader, answer_seq) AS leader,
    coalesce(max(nullif(size(members), 0)), count(DISTINCT member_id)) AS members, min(answer_seq) AS seq, min(ts_ns) AS from_ts_ns,
    min(answer_ts_ns) AS joined_ts_ns
  FROM group_joins GROUP BY run_id, node_id, process, group_id, turn, life, generation
), used AS (
  SELECT run_id, node_id, process, group_id, turn, known.life AS life, generation,
    count(DISTINCT member_id) AS synced, min(answer_ts_ns) AS stable_ts_ns,
    max(if(exists(sent, each -> each.assignment.partitions IS NOT NULL),
      size(flatten(transform(sent, each -> coalesce(flatten(transform(each.assignment.partitions, t -> t.partitions)), array())))),
      NULL)) AS partitions
  FROM member_calls WHERE api_key = {ApiKey.SYNC_GROUP} AND array_contains(codes, 0) AND known.generation = generation
  GROUP BY run_id, node_id, process, group_id, turn, known.life, generation
)
SELECT t.run_id, t.node_id, t.process, t.group_id, t.generation, t.protocol_type, t.protocol, t.leader, t.members,
  coalesce(u.synced, 0) AS synced, u.partitions AS partitions, t.seq, t.from_ts_ns, t.joined_ts_ns, u.stable_ts_ns AS stable_ts_ns,
  least(t.next_ts_ns, e.ended_ts_ns) AS to_ts_ns,
  if(t.next_ts_ns IS NULL OR e.ended_ts_ns < t.next_ts_ns, e.ended_node, t.next_node) AS final_node,
  if(t.next_ts_ns IS NULL OR e.ended_ts_ns < t.next_ts_ns, e.ended_seq, t.next_seq) AS final_seq
FROM (
  SELECT *, lead(joined_ts_ns) OVER next AS next_ts_ns, lead(node_id) OVER next AS next_node, lead(seq) OVER next AS next_seq
  FROM told WINDOW next AS (PARTITION BY run_id, group_id ORDER BY joined_ts_ns)
) t LEFT JOIN group_ends e ON e.run_id = t.run_id AND e.node_id = t.node_id AND e.process = t.process AND e.group_id = t.group_id
  AND e.turn = t.turn AND e.life = t.life AND e.generation = t.generation
LEFT JOIN used u ON u.run_id = t.run_id AND u.node_id = t.node_id AND u.process = t.process AND u.group_id = t.group_id
  AND u.turn = t.turn AND u.life = t.life AND u.generation = t.generation
""",
    OFFSET_COMMITS: """
SELECT run_id, node_id, seq, ts_ns, client_id, group_id, member_id, generation, topic, partition, committed_offset, error_code
FROM commits
""",
    TRANSACTIONS: """
SELECT t.run_id, t.node_id, t.process, t.transactional_id, t.producer_id, t.producer_epoch, array_join(t.partitions, ', ') AS partitions,
  t.groups, CASE WHEN t.is_commit THEN 'commit' WHEN t.end_seq IS NOT NULL THEN 'abort'
    WHEN t.init_seq IS NOT NULL OR f.producer_id IS NOT NULL THEN 'fenced' END AS outcome,
  t.seq, t.end_seq, t.from_ts_ns, t.end_ts_ns, t.node_id AS final_node, coalesce(t.end_answer_seq, t.init_answer_seq) AS final_seq
FROM transactions_told t LEFT JOIN (SELECT DISTINCT run_id, producer_id, producer_epoch FROM txn_markers WHERE NOT is_commit) f
  ON f.run_id = t.run_id AND f.producer_id = t.producer_id AND f.producer_epoch = t.producer_epoch + 1
""",
}


INPUTS: dict[Table, tuple[str, ...]] = {
    LATENCY: (HEADERS,),
    API_MATRIX: (FRAME_COUNTS.name, EVENT_TABLE.name),
    LEADER_TIMELINE: (PARTITION_STATE.name,),
    REASSIGN_SPANS: (REASSIGN.name, EVENT_TABLE.name),
    CLIENT_SCORECARD: (HEADERS, FRAME_COUNTS.name),
    GROUP_GENERATIONS: (GROUP_JOINS.name, MEMBER_CALLS.name, GROUP_ENDS.name),
    OFFSET_COMMITS: (COMMITS.name,),
    TRANSACTIONS: (TRANSACTIONS_TOLD.name, TXN_MARKERS.name),
}
"""The views that the queries read, of silver or prepared for rules."""

NEEDS: dict[Table, tuple[Need, ...]] = {
    GROUP_GENERATIONS: GROUP_JOINS.needs, OFFSET_COMMITS: COMMITS.needs, TRANSACTIONS: TRANSACTIONS_TOLD.needs,
}
"""If none of these holds, the table has no rows, and its query does not run."""


SUMS = (LATENCY, API_MATRIX, CLIENT_SCORECARD)
"""Tables with a row for each window of a run: they sum up frames. In their queries `:rows` is whether a frame of `headers` is in the part
of gold that is made, and `:counts` the same of a row of `frame_counts`."""

OF_ROWS = (OFFSET_COMMITS,)
"""Tables whose rows are in the window that has their `seq`."""

THAT_END = (GROUP_GENERATIONS, TRANSACTIONS)
"""Tables whose rows may go on for many windows: a row is in the window in which it ended, and until then among those that are not final. In
their queries `final_node` and `final_seq` are the row of the journal that ended it, null if none did. All other tables are made again of
what the controller did since the run began."""


def query_of(table: Table, part: WindowPart | None = None, translated: Callable[[str], str] = str, sign: str = ":") -> str:
    """The query of a table, or of one part of it if each part has rows of its own. It can be `translated`: only for its first text another
    engine is asked, so that the translation of all parts is the same; parameters have another `sign` there."""
    query = translated(QUERIES[table])
    if table in SUMS:
        rows, counts = ("true", "true") if part is None else (f"({part.rows})", part.is_named)
        return query.replace(f"{sign}rows", rows).replace(f"{sign}counts", counts)
    if part is None or table not in (*OF_ROWS, *THAT_END):
        return query
    if table in OF_ROWS:
        return f"SELECT * FROM ({query}) WHERE {part.rows}"
    ended = part.rows.replace("node_id", "final_node").replace("seq", "final_seq")
    return f"SELECT * FROM ({query}) WHERE {ended}" + ("" if part.is_final else " OR final_seq IS NULL")
