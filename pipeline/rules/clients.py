"""Rules `X`: what clients should do, as their requests show it. A violation is a warning: Klamm did nothing wrong.

Requests with the same client id from the same host come from one client. Brokers do not count as clients
(`klamm.protocol.exchanges.peers`): they look in their own metadata cache. Requests of a client to several brokers are ordered by the
brokers' clocks.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Rule, View, errors_of, messages_of
from klamm.protocol.apis import APIS, ApiKey

CONTROLLER_KEYS = keys(key for key, api in APIS.items() if api.to_controller and api.is_of_clients)

STORM = 100
"""Answers with errors to one API of one client in one second."""

GRACE_NS = 20_000_000
"""A request that arrives so soon after an answer was on its way before the client had read it."""

REFRESH_NS = 10_000_000_000
"""How long a client may wait with a Metadata request after an error that requires one."""

_TOLD_LEADER = f"""(e.error_code IN (6, 74) AND (
        e.api_key = {ApiKey.PRODUCE} AND e.api_version >= 10 OR e.api_key = {ApiKey.FETCH} AND e.api_version >= 16))"""
"""SQL: an error that comes with the new leader (KIP-951), so that the client need not ask for it."""

_FIRST_VERSIONS = {
    8: (ApiKey.FETCH,),
    6: (ApiKey.PRODUCE, ApiKey.METADATA),
    4: (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH),
    3: (ApiKey.LIST_OFFSETS, ApiKey.JOIN_GROUP, ApiKey.CREATE_TOPICS),
    2: (
        ApiKey.FIND_COORDINATOR, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS,
        ApiKey.DELETE_TOPICS, ApiKey.DESCRIBE_CONFIGS,
    ),
    1: (
        ApiKey.DELETE_RECORDS, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.CREATE_PARTITIONS, ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DELETE_GROUPS,
    ),
    0: (
        ApiKey.ELECT_LEADERS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS, 64,
        ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
    ),
}
"""The first version in which the client waits, and the broker answers at once → APIs (KIP-219). 64 is UnregisterBroker."""

THROTTLES_FROM = {int(api): version for version, apis in _FIRST_VERSIONS.items() for api in apis}

CLIENTS = View(
    "clients",
    ("frame_counts", "peers"),
    """
SELECT f.run_id, f.client_id, f.host, max(f.last_ts_ns) AS last_ts_ns, max(struct(f.last_ts_ns, f.node_id, f.last_seq AS seq)) AS last
FROM frame_counts f
JOIN peers p ON p.run_id = f.run_id AND p.node_id = f.node_id AND p.process = f.process AND p.conn_id = f.conn_id AND NOT p.is_broker
WHERE f.dir = 0 AND f.api_key IS NOT NULL
GROUP BY f.run_id, f.client_id, f.host""",
)
"""Clients that sent requests, without brokers."""

DISCOVERIES = View(
    "discoveries",
    ("rare_traffic",),
    f"""
SELECT run_id, client_id, host, ts_ns FROM rare_traffic WHERE dir = 0 AND api_key IN ({ApiKey.METADATA}, {ApiKey.DESCRIBE_CLUSTER})""",
)
"""When clients asked for metadata, on any broker."""

_STUBBORN = f"""
WITH refused AS (
    SELECT DISTINCT e.run_id, e.node_id, e.process, e.conn_id, e.seq, e.ts_ns, t.client_id, t.host
    FROM api_errors e JOIN rare_traffic t ON t.run_id = e.run_id AND t.node_id = e.node_id AND t.seq = e.seq
    WHERE e.error_code = 41 AND e.dir = 1 AND e.api_key IN ({CONTROLLER_KEYS})),
again AS (
    SELECT r.run_id, r.node_id, r.conn_id, r.seq, r.ts_ns, r.client_id, r.host,
        min_by(struct(t.seq, t.ts_ns, t.conn_id), t.seq) AS next
    FROM refused r
    JOIN rare_traffic t ON t.run_id = r.run_id AND t.node_id = r.node_id AND t.process = r.process AND t.client_id <=> r.client_id
        AND t.host = r.host AND t.seq > r.seq
    WHERE t.dir = 0 AND t.api_key IN ({CONTROLLER_KEYS}) AND t.ts_ns > r.ts_ns + {GRACE_NS} GROUP BY ALL),
counted AS (
    SELECT a.run_id, a.node_id, a.conn_id, a.seq, a.next, a.client_id, count(d.ts_ns) AS discoveries
    FROM again a
    JOIN clients c ON c.run_id = a.run_id AND c.client_id <=> a.client_id AND c.host = a.host
    LEFT JOIN discoveries d ON d.run_id = a.run_id AND d.client_id <=> a.client_id AND d.host = a.host
        AND d.ts_ns BETWEEN a.ts_ns AND a.next.ts_ns
    GROUP BY ALL)
SELECT run_id, node_id, next.conn_id AS conn_id, next.seq AS seq,
    if(discoveries = 0, concat('client ', coalesce(client_id, ''), ' sends to a broker that had answered NOT_CONTROLLER, without a ',
        'request for metadata between'), NULL) AS detail,
    array(seq, next.seq) AS evidence
FROM counted"""

THROTTLED = View(
    "throttled",
    ("notable",),
    f"""
SELECT * FROM (
    SELECT run_id, node_id, process, conn_id, seq, ts_ns, client_id, CAST(throttle_ms AS BIGINT) AS throttle_ms
    FROM notable
    WHERE dir = 1 AND throttle_ms > 0
        AND api_version >= try_element_at(map({", ".join(f"{key}, {version}" for key, version in THROTTLES_FROM.items())}),
            CAST(api_key AS INT)))
WHERE throttle_ms * 1000000 > {GRACE_NS}""",
)
"""Answers that ask the client to wait."""

_IMPATIENT = f"""
SELECT r.run_id, r.node_id, r.conn_id, coalesce(min(t.seq), r.seq) AS seq,
    if(min(t.seq) IS NULL, NULL, concat('client ', coalesce(r.client_id, ''), ' sent ',
        (min_by(t.ts_ns, t.seq) - r.ts_ns) DIV 1000000, ' ms after an answer that asks for ',
        r.throttle_ms, ' ms')) AS detail,
    array_compact(array(r.seq, min(t.seq))) AS evidence
FROM throttled r
LEFT JOIN traffic t ON t.run_id = r.run_id AND t.node_id = r.node_id AND t.process = r.process AND t.conn_id = r.conn_id AND t.dir = 0
    AND t.seq > r.seq AND t.ts_ns > r.ts_ns + {GRACE_NS} AND t.ts_ns < r.ts_ns + r.throttle_ms * 1000000
GROUP BY r.run_id, r.node_id, r.process, r.conn_id, r.seq, r.ts_ns, r.client_id, r.throttle_ms"""

_STORM = f"""
SELECT t.run_id, t.node_id, CAST(NULL AS BIGINT) AS conn_id, max(t.seq) AS seq,
    if(count(*) > {STORM}, concat(count(*), ' answers with errors to <api ', t.api_key, '> of client ', coalesce(t.client_id, ''),
        ' in one second'), NULL) AS detail,
    array(min(t.seq), max(t.seq)) AS evidence
FROM notable t
JOIN clients c ON c.run_id = t.run_id AND c.client_id <=> t.client_id AND c.host = t.host
WHERE t.dir = 1 AND t.errors > 0
GROUP BY t.run_id, t.node_id, t.client_id, c.host, t.api_key, t.ts_ns DIV 1000000000"""

LASTING = View(
    "lasting",
    ("notable", "api_errors", "clients"),
    f"""
SELECT DISTINCT e.run_id, e.node_id, e.conn_id, e.seq, e.ts_ns, e.error_code, t.client_id, t.host, c.last.node_id AS last_node_id,
    c.last.seq AS last_seq
FROM api_errors e JOIN notable t ON t.run_id = e.run_id AND t.node_id = e.node_id AND t.seq = e.seq
JOIN clients c ON c.run_id = t.run_id AND c.client_id <=> t.client_id AND c.host = t.host AND c.last_ts_ns > e.ts_ns + {REFRESH_NS}
WHERE e.dir = 1 AND e.api_key IN ({ApiKey.PRODUCE}, {ApiKey.FETCH}, {ApiKey.LIST_OFFSETS}) AND e.error_code IN (3, 5, 6, 74)
    AND NOT {_TOLD_LEADER}""",
    needs=(errors_of(3, 5, 6, 74),),
)
"""Errors that ask a client for new metadata, and after which the client sent requests for long enough: `last_seq` is the last one."""

_STALE = f"""
WITH counted AS (
    SELECT f.run_id, f.node_id, f.conn_id, f.seq, f.error_code, f.client_id, f.last_node_id, f.last_seq, count(d.ts_ns) AS discoveries
    FROM lasting f LEFT JOIN discoveries d ON d.run_id = f.run_id AND d.client_id <=> f.client_id AND d.host = f.host
        AND d.ts_ns BETWEEN f.ts_ns - {GRACE_NS} AND f.ts_ns + {REFRESH_NS}
    GROUP BY ALL)
SELECT run_id, node_id, conn_id, seq,
    if(discoveries = 0, concat('client ', coalesce(client_id, ''),
        ' sends no request for metadata within {REFRESH_NS // 1_000_000_000} s of <error ', error_code, '>'), NULL) AS detail,
    array(struct(node_id, seq), struct(last_node_id AS node_id, last_seq AS seq)) AS evidence
FROM counted"""

VIEWS = (CLIENTS, DISCOVERIES, THROTTLED, LASTING)

_OWNED_ONCE = f"""
WITH sends AS (
    SELECT run_id, node_id, conn_id, seq, answer_seq, group_id, generation, known.seq AS known_seq, sent
    FROM member_calls
    WHERE api_key = {ApiKey.SYNC_GROUP} AND array_contains(codes, 0) AND known.generation = generation AND known.protocol_type = 'consumer'
        AND exists(sent, each -> each.assignment.partitions IS NOT NULL)),
members AS (SELECT * EXCEPT (sent) FROM sends LATERAL VIEW explode(sent) AS s),
topics AS (SELECT * EXCEPT (s), s.memberId AS member_id FROM members LATERAL VIEW explode(s.assignment.partitions) AS t),
owned AS (SELECT * EXCEPT (t), t.topic AS topic FROM topics LATERAL VIEW explode(t.partitions) AS partition),
twice AS (
    SELECT run_id, node_id, seq, min(struct(concat(topic, '-', partition) AS place, members)) AS one FROM (
        SELECT run_id, node_id, seq, topic, partition, array_sort(collect_set(member_id)) AS members FROM owned
        GROUP BY run_id, node_id, seq, topic, partition HAVING count(DISTINCT member_id) > 1)
    GROUP BY run_id, node_id, seq)
SELECT s.run_id, s.node_id, s.conn_id, s.seq,
    if(t.one IS NULL, NULL, concat('client ', coalesce(c.client_id, ''), ': group ', s.group_id, ', generation ', s.generation,
        ': the members ', array_join(t.one.members, ', '), ' get ', t.one.place)) AS detail,
    array(s.known_seq, s.seq) AS evidence
FROM sends s LEFT JOIN twice t ON t.run_id = s.run_id AND t.node_id = s.node_id AND t.seq = s.seq
LEFT JOIN rare_traffic c ON c.run_id = s.run_id AND c.node_id = s.node_id AND c.seq = s.seq AND t.one IS NOT NULL"""
"""About a leader, which is a client: the broker does not look into assignments."""

RULES: tuple[Rule, ...] = (
    Rule(
        "X-01", "warn", "After NOT_CONTROLLER a client sends no more requests for the controller to that broker before it has asked for "
        "metadata.", "wire 9", ("rare_traffic", "api_errors", "clients", "discoveries"), _STUBBORN,
        needs=(errors_of(41),),
    ),
    Rule(
        "X-02", "warn", "A client waits as long as an answer asks (KIP-219).", "wire 8", ("throttled", "traffic"), _IMPATIENT,
        about="throttled",
    ),
    Rule(
        "X-03", "warn", f"A client gets no more than {STORM} answers with errors to one API from a broker in a second.", "advice",
        ("notable", "clients"), _STORM,
    ),
    Rule(
        "X-04", "warn",
        f"A client that goes on asks for metadata within {REFRESH_NS // 1_000_000_000} s of error 3, 5, 6 or 74 to Produce, "
        "Fetch or ListOffsets, unless the response may name the new leader (KIP-951).", "wire 9",
        ("lasting", "discoveries"), _STALE, about="lasting", is_across=True,
    ),
    Rule(
        "X-05", "warn", "The leader of a consumer group gives a partition to one member of a generation.", "clients",
        ("member_calls", "rare_traffic"),
        _OWNED_ONCE, about="member_calls", needs=(messages_of(ApiKey.SYNC_GROUP),),
    ),
)
