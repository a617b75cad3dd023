"""Rules `W`: frames and their order on connections, as docs/spec/wire.md has them. What fails in bodies of answers is in `answers.py`.

A journal may begin or end anywhere. What is still open at its end is not a violation, nor is anything that missing rows might explain.
Frames of which only the header was kept are judged by their headers.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Join, Rows, Rule, View, messages_of
from klamm.pipeline.rules.response_headers import DECODED, TRIED_AGAIN
from klamm.pipeline.rules.traffic import CONNECTION, JOURNALED, PAIRED, RANGE, TOLD, unless_gaps
from klamm.protocol.apis import ApiKey
from klamm.protocol.releases import newest

LIMIT = 104_857_600
"""Bytes of a request, without the length: `socket.request.max.bytes`."""

PATIENCE_NS = 30_000_000_000
"""Minimum age (ns) of an open request, at process end, to count as unanswered, or of a bad connection to count as not closed."""

LONG_PATIENCE_NS = 330_000_000_000
"""The same of APIs that wait for others: a group's members wait for a rebalance, at most five minutes by default."""

KIP_511_SINCE = 3
"""The version of ApiVersions with which KIP-511 came: an older broker names no range where it refuses a version."""

LONG_APIS = keys(
    [
        ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ]
)

_NEWEST = f"try_element_at(map({', '.join(f'{key}, {version}' for key, version in newest().items())}), CAST(api_key AS INT))"

MALFORMED = "'unknown_key', 'unknown_version', 'truncated', 'bad_length', 'malformed'"

_ORDER = Rows(
    "ordered_traffic", "is_answer",
    """CASE WHEN cause_seq IS NULL THEN concat('answers no request: correlation id ', correlation_id)
        WHEN cause_seq < answered_before THEN concat('answers the request of seq ', cause_seq, ' after that of seq ', answered_before)
    END""",
    "array_compact(array(cause_seq, answered_before, seq))",
)

_RANGE = Rows(
    "traffic", f"dir = 1 AND api_key <> {ApiKey.API_VERSIONS} AND cause_seq IS NOT NULL AND told_run IS NOT NULL",
    """CASE WHEN low IS NULL THEN concat('answered <api ', api_key, '>, which is not advertised')
        WHEN api_version NOT BETWEEN low AND high
            THEN concat('answered version ', api_version, ' of <api ', api_key, '>, advertised are ', low, ' to ', high)
    END""",
    "array_compact(array(nullif(from_seq, 0), cause_seq, seq))",
    (TOLD, RANGE),
)

UNEVEN = View(
    "uneven",
    ("frame_counts",),
    f"""
SELECT {", ".join(CONNECTION)} FROM frame_counts WHERE paired > 0 GROUP BY {", ".join(CONNECTION)}
HAVING sum(if(dir = 0, paired, 0)) <> sum(if(dir = 1, paired, 0)) OR bit_xor(pairs) <> 0""",
)
"""Connections that have not one answer for each request, which counts and sums tell: few of all."""

_UNEVEN = Join("uneven", """
LEFT JOIN (SELECT conn_id AS odd_conn, run_id AS odd_run, node_id AS odd_node, process AS odd_process FROM uneven)
ON odd_conn = conn_id AND odd_run = run_id AND odd_node = node_id AND odd_process = process""")

ODD = View(
    "odd",
    ("traffic", "uneven"),
    f"""
SELECT run_id, node_id, process, conn_id, seq, ts_ns, dir, api_key, cause_seq
FROM traffic JOIN uneven USING ({", ".join(CONNECTION)}) WHERE {PAIRED}""",
)
"""The requests and answers of these connections."""

_ANSWERED = Rows("traffic", f"dir = 0 AND {PAIRED} AND odd_conn IS NULL", "CAST(NULL AS STRING)", "array(seq)", (_UNEVEN,))

_ONCE = f"""
WITH answers AS (
    SELECT run_id, node_id, cause_seq AS seq, count(*) AS n, min(seq) AS first, max(seq) AS last FROM odd WHERE dir = 1
    GROUP BY run_id, node_id, cause_seq),
newest AS (
    SELECT run_id, node_id, process, conn_id, max(cause_seq) AS newest FROM odd WHERE dir = 1 GROUP BY ALL),
requests AS (
    SELECT t.run_id, t.node_id, t.process, t.conn_id, t.seq, t.ts_ns, t.api_key, a.n, a.first, a.last
    FROM odd t LEFT JOIN answers a ON a.run_id = t.run_id AND a.node_id = t.node_id AND a.seq = t.seq WHERE t.dir = 0),
open AS (
    SELECT r.*, c.seq AS closed, e.last_ts_ns, e.is_gapless, w.newest,
        row_number() OVER (PARTITION BY r.run_id, r.node_id, r.process, r.conn_id ORDER BY r.seq) AS nth
    FROM requests r
    LEFT JOIN closings c ON c.run_id = r.run_id AND c.node_id = r.node_id AND c.process = r.process AND c.conn_id = r.conn_id
    LEFT JOIN ends e ON e.run_id = r.run_id AND e.node_id = r.node_id AND e.process = r.process
    LEFT JOIN newest w ON w.run_id = r.run_id AND w.node_id = r.node_id AND w.process = r.process AND w.conn_id = r.conn_id
    WHERE r.n IS NULL)
SELECT run_id, node_id, conn_id, seq, if(n > 1, concat('answered ', n, ' times'), NULL) AS detail,
    array(seq, first, last) AS evidence
FROM requests WHERE n IS NOT NULL
UNION ALL
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN NOT is_gapless THEN NULL
        WHEN newest > seq THEN concat('not answered, but the later request of seq ', newest, ' is')
        WHEN closed > seq THEN NULL
        WHEN nth = 1 AND last_ts_ns - ts_ns > if(api_key IN ({LONG_APIS}), {LONG_PATIENCE_NS}, {PATIENCE_NS})
            THEN concat('not answered for ', (last_ts_ns - ts_ns) DIV 1000000000, ' s')
    END, array_compact(array(seq, if(newest > seq, newest, NULL)))
FROM open"""

TOO_NEW = View(
    "too_new",
    ("notable", "quarantine"),
    f"""
    SELECT t.run_id, t.node_id, t.process, t.conn_id, t.seq, t.api_version, t.low, t.high, t.told_seq
    FROM notable t
    LEFT JOIN quarantine q ON q.run_id = t.run_id AND q.node_id = t.node_id AND q.seq = t.seq
    WHERE t.dir = 0 AND t.api_key = {ApiKey.API_VERSIONS} AND t.api_version NOT BETWEEN t.low AND t.high
        -- The header is whole: the client id and no tagged field are there.
        AND (q.seq IS NULL OR (length(q.frame) >= 15 AND (
            (hex(substring(q.frame, 13, 2)) >= '8000' AND hex(substring(q.frame, 15, 1)) = '00')
            OR hex(substring(q.frame, 15 + least(1000000, CAST(conv(hex(substring(q.frame, 13, 2)), 16, 10) AS INT)), 1)) = '00')))""",
)
"""ApiVersions requests with a whole header, in a version outside the range that was advertised."""

_TOO_NEW = f"""
WITH answers AS (
    SELECT t.run_id, t.node_id, t.cause_seq, t.seq, t.reason, t.error_code, keys
    FROM traffic t LEFT JOIN (
        SELECT run_id, node_id, seq, advertised AS keys FROM fields WHERE api_key = {ApiKey.API_VERSIONS} AND dir = 1 AND error_code = 35) b
        ON b.run_id = t.run_id AND b.node_id = t.node_id AND b.seq = t.seq
    WHERE t.dir = 1 AND t.api_key = {ApiKey.API_VERSIONS})
SELECT q.run_id, q.node_id, q.conn_id, q.seq,
    CASE WHEN a.seq IS NULL AND c.seq IS NOT NULL AND e.is_gapless
            THEN concat('version ', q.api_version, ' is not answered, the connection is closed')
        WHEN a.seq IS NULL THEN NULL
        WHEN a.reason IS NOT NULL THEN concat('version ', q.api_version, ': the answer is no body of version 0')
        WHEN NOT a.error_code <=> 35 THEN concat('version ', q.api_version, ' is answered with <error ', coalesce(a.error_code, 0), '>')
        WHEN size(a.keys) = 0 AND q.high < {KIP_511_SINCE} THEN NULL
        WHEN a.keys IS NOT NULL AND NOT (size(a.keys) = 1 AND a.keys[0].key <=> {ApiKey.API_VERSIONS} AND a.keys[0].low <=> q.low
                AND a.keys[0].high <=> q.high)
            THEN concat('version ', q.api_version, ': the answer is not the one entry of <api {ApiKey.API_VERSIONS}> from ', q.low,
                ' to ', q.high)
    END AS detail,
    array_compact(array(q.told_seq, q.seq, a.seq, if(a.seq IS NULL, c.seq, NULL))) AS evidence
FROM too_new q
LEFT JOIN answers a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
LEFT JOIN closings c ON c.run_id = q.run_id AND c.node_id = q.node_id AND c.process = q.process AND c.conn_id = q.conn_id
    AND c.seq > q.seq
LEFT JOIN ends e ON e.run_id = q.run_id AND e.node_id = q.node_id AND e.process = q.process"""

REFUSED = View(
    "refused_requests",
    ("notable",),
    f"""
SELECT run_id, node_id, process, conn_id, seq, ts_ns,
    concat('what is ', replace(reason, '_', ' '), coalesce(concat(' (', err, ')'), '')) AS what, CAST(NULL AS BIGINT) AS told_seq
FROM notable
WHERE dir = 0 AND reason IN ({MALFORMED}) AND flags & 10 = 0 AND NOT (api_key <=> {ApiKey.API_VERSIONS} AND reason = 'unknown_version')
    -- A server may know more than the decoder: what it advertised, or, if it did not say, what some release of Apache Kafka has.
    AND NOT (reason IN ('unknown_key', 'unknown_version')
        AND if(is_told, coalesce(api_version BETWEEN low AND high, false), coalesce(api_version <= {_NEWEST}, false)))
UNION ALL
SELECT run_id, node_id, process, conn_id, seq, ts_ns,
    if(low IS NULL, concat('<api ', api_key, '>, which is not advertised,'),
        concat('version ', api_version, ' of <api ', api_key, '>, advertised are ', low, ' to ', high, ',')),
    told_seq
FROM notable
WHERE dir = 0 AND reason IS NULL AND api_key <> {ApiKey.API_VERSIONS} AND is_told
    AND (low IS NULL OR api_version NOT BETWEEN low AND high)""",
)
"""Requests that must get no response, and the reason in words."""

_CLOSED = f"""
WITH answered AS (
    SELECT t.run_id, t.node_id, t.process, t.conn_id, r.seq,
        min(if(t.cause_seq = r.seq, t.seq, NULL)) AS own, min(if(t.cause_seq > r.seq, t.seq, NULL)) AS later
    FROM refused_requests r
    JOIN traffic t ON t.run_id = r.run_id AND t.node_id = r.node_id AND t.process = r.process AND t.conn_id = r.conn_id
    WHERE t.dir = 1 AND t.cause_seq >= r.seq GROUP BY ALL)
SELECT r.run_id, r.node_id, r.conn_id, r.seq,
    CASE WHEN a.own IS NOT NULL THEN concat(r.what, ' is answered')
        WHEN a.later IS NOT NULL THEN concat('after ', r.what, ' the connection serves on')
        WHEN c.seq IS NULL AND e.is_gapless AND e.last_ts_ns - r.ts_ns > {PATIENCE_NS}
            THEN concat('after ', r.what, ' the connection stays open')
    END AS detail,
    array_compact(array(r.told_seq, r.seq, a.own, a.later, c.seq)) AS evidence
FROM refused_requests r
LEFT JOIN answered a ON a.run_id = r.run_id AND a.node_id = r.node_id AND a.seq = r.seq
LEFT JOIN closings c ON c.run_id = r.run_id AND c.node_id = r.node_id AND c.process = r.process AND c.conn_id = r.conn_id AND c.seq > r.seq
LEFT JOIN ends e ON e.run_id = r.run_id AND e.node_id = r.node_id AND e.process = r.process"""

_SASL = f"""
WITH listeners AS (
    SELECT DISTINCT run_id, node_id, process, listener FROM traffic WHERE dir = 1 AND api_key = {ApiKey.SASL_HANDSHAKE} AND error_code = 0),
marks AS (
    SELECT run_id, node_id, process, conn_id, min(seq) AS seq FROM events WHERE kind = 'authenticated' GROUP BY ALL),
signs AS (
    SELECT run_id, node_id, process, conn_id,
        min(if(api_key = {ApiKey.SASL_HANDSHAKE} AND error_code = 0 AND api_version >= 1 AND dir = 1, seq, NULL)) AS handshake,
        coalesce(min(if(api_key = {ApiKey.SASL_AUTHENTICATE} AND error_code = 0 AND dir = 1, seq, NULL)),
            max(if(flags & 8 <> 0, seq, NULL))) AS done,
        max(if(dir = 1, seq, NULL)) AS last
    FROM traffic GROUP BY ALL),
early AS (
    SELECT t.*, s.handshake, s.last,
        count_if(t.api_key = {ApiKey.API_VERSIONS} AND t.error_code = 0) OVER so_far AS versions_told,
        count_if(t.api_key = {ApiKey.SASL_HANDSHAKE} AND t.error_code = 0) OVER so_far AS handshakes
    FROM traffic t
    JOIN listeners l ON l.run_id = t.run_id AND l.node_id = t.node_id AND l.process = t.process AND l.listener <=> t.listener
    JOIN signs s ON s.run_id = t.run_id AND s.node_id = t.node_id AND s.process = t.process AND s.conn_id = t.conn_id
    LEFT JOIN marks m ON m.run_id = t.run_id AND m.node_id = t.node_id AND m.process = t.process AND m.conn_id = t.conn_id
    WHERE t.dir = 1 AND t.api_key IS NOT NULL AND (coalesce(m.seq, s.done) IS NULL OR t.seq < coalesce(m.seq, s.done))
    WINDOW so_far AS (PARTITION BY t.conn_id, t.run_id, t.node_id, t.process ORDER BY t.seq))
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN api_key = {ApiKey.SASL_HANDSHAKE} AND error_code = 0 AND handshakes > 1
            THEN 'a second SaslHandshake succeeds before authentication'
        WHEN api_key = {ApiKey.SASL_HANDSHAKE} AND error_code <> 0 AND handshakes > 0 AND last > seq
            THEN 'after a second SaslHandshake before authentication the connection serves on'
        WHEN api_key IN ({ApiKey.SASL_HANDSHAKE}, {ApiKey.SASL_AUTHENTICATE}) OR (api_key = {ApiKey.API_VERSIONS} AND error_code <> 0)
            OR (api_key = {ApiKey.API_VERSIONS} AND versions_told <= 1) THEN NULL
        WHEN api_key = {ApiKey.API_VERSIONS} THEN 'a second ApiVersions is answered before authentication'
        WHEN error_code = 0 OR errors = 0 AND error_code IS NOT NULL THEN concat('<api ', api_key, '> is served before authentication')
        WHEN handshake IS NULL OR handshake > seq
            THEN concat('<api ', api_key, '> is answered before authentication without a SaslHandshake of version 1')
        WHEN last > seq THEN concat('after <api ', api_key, '> before authentication the connection serves on')
    END AS detail,
    array_compact(array(handshake, cause_seq, seq)) AS evidence
FROM early"""

_LENGTH = Rows(
    "traffic", "flags & 8 = 0 AND (dir IN (1, 2) OR reason IS NULL)",
    f"""CASE WHEN length_prefix IS NULL THEN 'has no length'
        WHEN flags & 2 = 0 AND frame_bytes <> length_prefix + 4L
            THEN concat('has ', frame_bytes, ' bytes, its length says ', length_prefix + 4L)
        WHEN frame_bytes > length_prefix + 4L THEN concat('has ', frame_bytes, ' bytes, its length says ', length_prefix + 4L)
        WHEN dir = 0 AND length_prefix > {LIMIT} THEN concat('a request of ', length_prefix, ' bytes is taken')
    END""",
    "array(seq)",
)

_WHOLE = Rows(
    "traffic",
    """(dir IN (1, 2) OR dir = 3 AND peer_id IS NOT NULL AND journaled_id IS NULL) AND flags & 10 = 0
        AND NOT coalesce(reason IN ('no_request', 'unknown_key', 'unknown_version'), false)
        AND (reason IS NOT NULL OR bytes_left IS NOT NULL)""",
    """CASE WHEN reason IS NOT NULL THEN concat('<api ', api_key, '> version ', api_version, ': ', replace(reason, '_', ' '),
            coalesce(concat(', ', err), ''))
        WHEN bytes_left <> 0 THEN concat('<api ', api_key, '> version ', api_version, ': ', bytes_left, ' bytes over')
        WHEN err NOT LIKE 'left out:%' THEN err
    END""",
    "array_compact(array(cause_seq, seq))",
    (JOURNALED,),
)

_OVERTAKEN = Join("overtakers", """
LEFT JOIN (
    SELECT run_id AS overtaker_run, node_id AS overtaker_node, process AS overtaker_process, conn_id AS overtaker_conn,
        correlation_id AS overtaker_id, seq AS overtaker_seq
    FROM overtakers)
ON conn_id = overtaker_conn AND run_id = overtaker_run AND node_id = overtaker_node AND process = overtaker_process
    AND if(is_numbered, correlation_id, NULL) = overtaker_id""")
"""Which request has the correlation id of another one that may overtake others: the first of these is `overtaker_seq`, else null."""

_BEFORE = f"CASE WHEN api_key = {ApiKey.METADATA} THEN metadata_id_before WHEN is_overtaking THEN id_before ELSE other_id_before END"

_CORRELATION = Rows(
    "ordered_traffic", "is_numbered",
    f"""CASE WHEN correlation_id <= ({_BEFORE}).correlation_id
            THEN concat('<api ', api_key, '> of client ', coalesce(client_id, ''), ' has correlation id ', correlation_id, ' after ',
                ({_BEFORE}).correlation_id)
        WHEN overtaker_seq < seq
            THEN concat('<api ', api_key, '> of client ', coalesce(client_id, ''), ' has correlation id ', correlation_id, ' again')
    END""",
    f"array_compact(array(if(correlation_id <= ({_BEFORE}).correlation_id, ({_BEFORE}).seq, overtaker_seq), seq))",
    (_OVERTAKEN,),
)

_THROTTLE = Rows(
    "traffic", "dir = 1 AND throttle_ms IS NOT NULL",
    "if(throttle_ms < 0, concat('<api ', api_key, '> version ', api_version, ': throttle time ', throttle_ms, ' ms'), NULL)",
    "array_compact(array(cause_seq, seq))",
)

VIEWS = (UNEVEN, ODD, TOO_NEW, REFUSED)

RULES: tuple[Rule, ...] = (
    Rule(
        "W-01", "error", "Responses leave in the order of their requests, per connection.", "wire 1", rows=_ORDER,
    ),
    Rule(
        "W-02", "error", "An answered request has a version within the range that this broker advertised (ApiVersions any).", "wire 4, 5",
        rows=_RANGE,
    ),
    Rule(
        "W-03", "error",
        "Every request is answered once, unless it gets no response (acks=0), or its connection or the run ends.",
        "wire 1",
        ("odd", "closings", "ends"), _ONCE, rows=_ANSWERED, about="odd",
    ),
    Rule(
        "W-04", "error",
        "ApiVersions with a whole header and a version outside the range that the broker advertised is answered with error "
        f"35 and the entry of key 18, in a body of version 0. Without version {KIP_511_SINCE} (before Kafka 2.4) it may have no entry.",
        "wire 4",
        ("too_new", "traffic", "closings", "ends", "fields"), _TOO_NEW, about="too_new",
    ),
    Rule(
        "W-05", "error", "After an unknown key or version, or a malformed request, the connection is closed without a response. Surplus "
        "bytes and bad UTF-8 are not malformed.", "wire 1", ("refused_requests", "traffic", "closings", "ends"), _CLOSED,
        about="refused_requests",
    ),
    Rule(
        "W-06", "error", "Before authentication a SASL listener answers one successful ApiVersions, one successful SaslHandshake, "
        "SaslAuthenticate and tokens. All else closes the connection, after a handshake of version 1 behind an answer with error 34.",
        "wire 4, 7",
        ("traffic", "events", "gappy"), unless_gaps(_SASL), needs=(messages_of(ApiKey.SASL_HANDSHAKE),),
    ),
    Rule(
        "W-07", "error", "A response has header version 1 if its API is flexible in this version, else 0; ApiVersions always 0.", "wire 2",
        ("quarantine", "ends"), rows=DECODED, tried=TRIED_AGAIN, about="quarantine",
    ),
    Rule("W-08", "error", "The length in front of a frame is that of the frame, and within the limit.", "wire 1", rows=_LENGTH),
    Rule("W-09", "error", "A body that a broker sends, with or without a journal of its own, decodes, with no bytes over; a "
         "sample has the same bytes when it is encoded again.", "wire 3", rows=_WHOLE),
    Rule(
        "W-10", "warn",
        "A client uses no correlation id twice on a connection, and they rise, but ApiVersions, Metadata and telemetry may overtake "
        "requests that wait for the connection.", "clients", rows=_CORRELATION,
    ),
    Rule("W-12", "error", "A throttle time is not negative.", "wire 8", rows=_THROTTLE),
)
