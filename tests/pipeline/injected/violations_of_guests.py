"""Injections by a client whose frames are added to the journal: for rules about what no client of the stories does. And counterparts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import REQUEST_IN, RESPONSE_OUT, Edits, Row, TrueRun, injected, neutral

MS = 1_000_000
GRACE_MS = 20
"""How long after an answer a request counts as sent before the client had read it."""


class Guest:
    """A client with a connection of its own to a broker that is not the controller. Its rows follow each other, before the broker stops."""

    def __init__(self, world: TrueRun, listener: str = "PLAINTEXT") -> None:
        frames = world.frames(Api.METADATA, RESPONSE_OUT)
        controllers = {row["node_id"] for row in world.events("controller_elected")}
        elsewhere = [row for row in frames if row["node_id"] not in controllers]
        self._like = (elsewhere or frames)[-1]
        self.node_id = self._like["node_id"]
        self._listener = listener
        self._number = 0
        self.edits: Edits = {}
        self.open(1)

    def open(self, conn: int) -> None:
        """Go on with this connection."""
        self._conn = 90_000 + conn

    def _row(self, at_ms: float, columns: Row) -> Row:
        self._number += 1
        node, seq = self._like["node_id"], self._like["seq"] + self._number / 1000
        second_ns = (self._like["ts_ns"] // 10**9 + 1) * 10**9
        times = {"ts_ns": second_ns + round(at_ms * MS), "mono_ns": self._like["mono_ns"] + 10**9 + round(at_ms * MS)}
        row = {**columns, "seq": seq, "conn_id": self._conn, **times}
        self.edits[node, seq] = row
        return row

    def exchange(self, at_ms: float, key: int, version: int, request: Any, response: Any, answer_at_ms: float | None = None) -> None:
        """A request, and its answer at the same moment or later; none if it is None."""
        number = self._number + 1
        body = messages.encode(request, version)
        frame = messages.encode_request(key, version, number, "guest", body)
        like = {
            **self._like, "kind": "accepted", "listener": self._listener, "peer": "192.0.2.1:1", "peer_id": None, "client_id": "guest",
            "client_sw": None, "api_key": int(key), "api_version": version, "correlation_id": number, "flags": 0, "latency_ns": None,
        }
        asked = self._row(at_ms, {**like, "dir": REQUEST_IN, "cause_seq": None, "frame": frame})
        if response is not None:
            answer = messages.encode_response(key, version, number, messages.encode(response, version))
            self._row(
                at_ms if answer_at_ms is None else answer_at_ms,
                {**like, "dir": RESPONSE_OUT, "cause_seq": asked["seq"], "latency_ns": 0, "frame": answer},
            )

    def close(self, at_ms: float) -> None:
        """The broker closes the connection."""
        row = self._row(at_ms, neutral(self._like))
        row.update({"kind": "conn_close", "output": '{"by":"us","reason":null}'})


def guest(rule: str, name: str, *, edge: bool = False, allowed: bool = False, listener: str = "PLAINTEXT") -> Callable[[Any], Any]:
    """What a guest does. The function gets it."""

    def register(visits: Callable[[Guest], None]) -> Callable[[Guest], None]:
        def make(world: TrueRun) -> Edits:
            one = Guest(world, listener)
            visits(one)
            return one.edits

        injected(rule, name, edge=edge, allowed=allowed)(make)
        return visits

    return register


# ---

REFUSED = messages.CreateTopicsResponse(topics=[messages.CreateTopicsResponse.CreatableTopicResult(
    name="x", error_code=41, error_message="This is not the correct controller for this cluster.", num_partitions=-1,
    replication_factor=-1, configs=[])])
CREATE = messages.CreateTopicsRequest(topics=[messages.CreateTopicsRequest.CreatableTopic(
    name="x", num_partitions=1, replication_factor=1, assignments=[], configs=[])], timeout_ms=1000, validate_only=False)


def _insists(one: Guest, after_ms: float, asks: bool = False) -> None:
    one.exchange(0, Api.CREATE_TOPICS, 5, CREATE, REFUSED)
    if asks:
        _asks(one, 10)
    one.exchange(after_ms, Api.CREATE_TOPICS, 5, CREATE, REFUSED)


def _asks(one: Guest, at_ms: float) -> None:
    """For metadata, by DescribeCluster."""
    one.exchange(
        at_ms, Api.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest(), messages.DescribeClusterResponse(error_code=31, brokers=[]))


guest("X-01", "a client asks the same broker again, just after it has read the answer", edge=True)(
    lambda one: _insists(one, GRACE_MS + 0.001))
guest("X-01", "a client asks the same broker again a second later")(lambda one: _insists(one, 1000))
guest("X-01", "the next request was on its way", allowed=True)(lambda one: _insists(one, GRACE_MS))
guest("X-01", "a client asks for metadata, and the same broker again", allowed=True)(lambda one: _insists(one, 1000, asks=True))

# ---

GROUPS = messages.ListGroupsRequest()


def _throttled(one: Guest, after_ms: float) -> None:
    one.exchange(0, Api.LIST_GROUPS, 3, GROUPS, messages.ListGroupsResponse(throttle_time_ms=100, groups=[]))
    one.exchange(after_ms, Api.LIST_GROUPS, 3, GROUPS, messages.ListGroupsResponse(groups=[]))


guest("X-02", "a client waits a microsecond less than it was asked to", edge=True)(lambda one: _throttled(one, 99.999))
guest("X-02", "a client does not wait")(lambda one: _throttled(one, 25))
guest("X-02", "a client waits as long as it was asked to", allowed=True)(lambda one: _throttled(one, 100))
guest("X-02", "the next request was on its way", allowed=True)(lambda one: _throttled(one, GRACE_MS))

# ---


def _storm(one: Guest, answers: int, step_ms: float = 1) -> None:
    for number in range(answers):
        one.exchange(number * step_ms, Api.LIST_GROUPS, 3, GROUPS, messages.ListGroupsResponse(error_code=15, groups=[]))


guest("X-03", "101 answers with errors in a second", edge=True)(lambda one: _storm(one, 101))
guest("X-03", "300 answers with errors in a second")(lambda one: _storm(one, 300))
guest("X-03", "100 answers with errors in a second", allowed=True)(lambda one: _storm(one, 100))
guest("X-03", "101 answers with errors in a second and a bit", allowed=True)(lambda one: _storm(one, 101, 10))

# ---

LIST = messages.ListOffsetsRequest
OFFSETS = LIST(replica_id=-1, isolation_level=0, topics=[
    LIST.ListOffsetsTopic(name="gone", partitions=[LIST.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)])])
LISTED = messages.ListOffsetsResponse
UNKNOWN = LISTED(topics=[LISTED.ListOffsetsTopicResponse(name="gone", partitions=[
    LISTED.ListOffsetsPartitionResponse(partition_index=0, error_code=3)])])


def _stale(one: Guest, asks_at_ms: float | None, goes_on_until_ms: float = 20_000) -> None:
    one.exchange(0, Api.LIST_OFFSETS, 5, OFFSETS, UNKNOWN)
    if asks_at_ms is not None:
        _asks(one, asks_at_ms)
    one.exchange(goes_on_until_ms, Api.LIST_GROUPS, 3, GROUPS, messages.ListGroupsResponse(groups=[]))


guest("X-04", "a client asks for metadata a microsecond too late", edge=True)(lambda one: _stale(one, 10_000.001))
guest("X-04", "a client goes on without metadata")(lambda one: _stale(one, None))
guest("X-04", "a client asks for metadata at the last moment", allowed=True)(lambda one: _stale(one, 10_000))
guest("X-04", "a client goes on until the last moment only", allowed=True)(lambda one: _stale(one, None, 10_000))

# --- W-06: Klamm offers no SASL, so the whole listener is added

VERSIONS, TOLD = messages.ApiVersionsRequest("guest", "1"), messages.ApiVersionsResponse(api_keys=[])


def _logs_in(one: Guest, conn: int, at_ms: float) -> None:
    one.open(conn)
    one.exchange(at_ms, Api.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest("PLAIN"), messages.SaslHandshakeResponse(0, ["PLAIN"]))
    one.exchange(at_ms + 1, Api.SASL_AUTHENTICATE, 1, messages.SaslAuthenticateRequest(b"****"), messages.SaslAuthenticateResponse())


def _sasl(one: Guest, early: Callable[[Guest], None]) -> None:
    _logs_in(one, 1, 0)
    one.open(2)
    early(one)


def _served(one: Guest) -> None:
    one.exchange(10, Api.LIST_GROUPS, 3, GROUPS, messages.ListGroupsResponse(groups=[]))


def _twice(one: Guest) -> None:
    for at_ms in (10, 11):
        one.exchange(at_ms, Api.API_VERSIONS, 3, VERSIONS, TOLD)


def _once(one: Guest) -> None:
    one.exchange(10, Api.API_VERSIONS, 3, VERSIONS, TOLD)
    _logs_in(one, 2, 11)
    _served(one)


def _refused(one: Guest) -> None:
    one.exchange(10, Api.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest("PLAIN"), messages.SaslHandshakeResponse(0, ["PLAIN"]))
    one.exchange(11, Api.LIST_GROUPS, 3, GROUPS, messages.ListGroupsResponse(error_code=34, groups=[]))
    one.close(12)


guest("W-06", "a second ApiVersions is answered before authentication", edge=True, listener="SASL")(lambda one: _sasl(one, _twice))
guest("W-06", "a request is served before authentication", listener="SASL")(lambda one: _sasl(one, _served))
guest("W-06", "one ApiVersions is answered before authentication", allowed=True, listener="SASL")(lambda one: _sasl(one, _once))
guest("W-06", "a request before authentication is refused, and the connection closed", allowed=True, listener="SASL")(
    lambda one: _sasl(one, _refused))
