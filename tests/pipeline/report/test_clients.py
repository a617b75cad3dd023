"""What the report says of clients: their errors with what changed just before, their requests in order; brokers are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.lake.tables import API_ERRORS, LEADER_TIMELINE, MESSAGES
from klamm.pipeline.report import clients, evidence, facts, write
from klamm.pipeline.report.reading import Place, StoredTables
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.journal.writing import START_NS, TinyJournal
from klamm.tests.pipeline.report import lakes

STEP_NS = 20_000_000
LEADER_MOVED_NS = START_NS + 3 * STEP_NS
OF_CLIENT = {"kind": "accepted", "listener": "PLAINTEXT"}


def _journal(lake: Path, requests: int = 1, with_admins: bool = False) -> dict[str, int]:
    """Broker 1 with a client that gets an error, one that meets a fault, one that sends `requests` requests, and two other brokers."""
    seqs = {}
    with TinyJournal(lake, lakes.RUN, 1) as broker:
        broker.step_ns = STEP_NS
        broker.connection(1, peer="127.0.0.1:5001", client_id="shop", client_sw="librdkafka/2.16", **OF_CLIENT)
        seqs["request"] = broker.request(1, ApiKey.METADATA, 12, messages.MetadataRequest())
        seqs["response"] = broker.response(1, seqs["request"], messages.MetadataResponse(controller_id=1))
        broker.connection(2, peer="127.0.0.1:5002", client_id="till", **OF_CLIENT)
        seqs["lost"] = broker.request(2, ApiKey.METADATA, 12, messages.MetadataRequest())
        broker.event("fault_injected", broker=1, input={"name": "fault 3", "is_dropped": True}, cause=seqs["lost"])
        broker.connection(3, peer="127.0.0.1:5003", client_id="quiet", **OF_CLIENT)
        for _ in range(requests):
            broker.response(3, broker.request(3, ApiKey.METADATA, 12, messages.MetadataRequest()), messages.MetadataResponse())
        broker.connection(4, peer="127.0.0.1:5004", client_id="2", **OF_CLIENT)
        broker.request(4, ApiKey.UPDATE_METADATA, 8, messages.UpdateMetadataRequest())
        broker.connection(5, peer="127.0.0.1:5005", client_id="broker-3-fetcher-0", **OF_CLIENT)
        follower = messages.FetchRequest.ReplicaState(replica_id=3, replica_epoch=9)
        broker.request(5, ApiKey.FETCH, 17, messages.FetchRequest(replica_state=follower))
        for conn, client in ((6, "admin"), (7, "7")) if with_admins else ():
            broker.connection(conn, peer=f"127.0.0.1:500{conn}", client_id=client, **OF_CLIENT)
            broker.request(conn, ApiKey.WRITE_TXN_MARKERS, 1, messages.WriteTxnMarkersRequest())
    return seqs


def _lake(lake: Path, requests: int = 1, flags: int = 0, *, with_admins: bool = False) -> dict[str, int]:
    seqs = _journal(lake, requests, with_admins)
    lakes.write_bronze(lake)
    row: dict[str, Any] = {
        "node_id": 1, "process": 1, "conn_id": 1, "dir": int(Direction.RESPONSE_OUT), "kind": "accepted", "client_id": "shop",
        "client_sw": "librdkafka/2.16", "api_key": int(ApiKey.METADATA), "seq": seqs["response"], "request_seq": seqs["request"],
        "ts_ns": LEADER_MOVED_NS + STEP_NS, "path": "topics[].errorCode", "error_code": int(ErrorCode.LEADER_NOT_AVAILABLE), "count": 2,
        "flags": int(flags),
    }
    lakes.write(lake, MESSAGES, [{"node_id": 1, "process": 1, "conn_id": 5, "replica_id": 3}])
    lakes.write(lake, API_ERRORS, [row, row | {"conn_id": 4, "client_id": "2", "seq": 99, "request_seq": 98}])
    moved = {"topic": "orders", "partition": 0, "node_id": 1, "controller_epoch": 1}
    lakes.write(lake, LEADER_TIMELINE, [
        moved | {"leader": 1, "leader_epoch": 0, "from_ts_ns": LEADER_MOVED_NS - clients.JUST_BEFORE_NS - STEP_NS},
        moved | {"leader": 2, "leader_epoch": 1, "from_ts_ns": LEADER_MOVED_NS},
        moved | {"leader": -1, "leader_epoch": 2, "from_ts_ns": LEADER_MOVED_NS + 5 * STEP_NS},
    ])
    return seqs


def _sent(lake: Path) -> clients.Sent:
    tables = StoredTables(lake, lakes.RUN)
    return clients.sent(tables, tables.read(LEADER_TIMELINE, LEADER_TIMELINE.names))


def test_an_error_has_its_frames_and_what_changed_just_before(tmp_path: Path) -> None:
    seqs = _lake(tmp_path)
    shop = _sent(tmp_path).clients[0]
    assert (shop.name, shop.software, shop.requests, shop.errors) == ("shop", "librdkafka/2.16", 1, 1)
    (error,) = shop.shown
    assert (error.request, error.response) == (Place(1, seqs["request"]), Place(1, seqs["response"]))
    assert (error.api, error.errors) == ("Metadata", "2 × LEADER_NOT_AVAILABLE")
    assert error.before == ["0.020 s before: orders-0 got leader 2 (epoch 1)"], "neither what is long ago nor what came later"


def test_brokers_are_no_clients(tmp_path: Path) -> None:
    _lake(tmp_path, with_admins=True)
    sent = _sent(tmp_path)
    assert [client.name for client in sent.clients] == ["shop", "7", "admin", "quiet", "till"], "who aborts a transaction is a client"
    assert (sent.number, sent.requests, sent.of_brokers) == (5, 5, 2)
    assert {row["client"] for row in sent.listed} == {"shop", "quiet", "till", "admin", "7"}


def test_errors_of_a_response_that_was_cut_are_the_least_number(tmp_path: Path) -> None:
    _lake(tmp_path, flags=Flag.CUT)
    sent = _sent(tmp_path)
    assert sent.clients[0].shown[0].errors == "at least 2 × LEADER_NOT_AVAILABLE"
    assert sent.listed[0]["result"] == "at least 2 × LEADER_NOT_AVAILABLE"
    assert [(row["counted"], row["count"]) for row in facts.collect(lakes.stored(tmp_path)).errors] == [("at least", 4)]


def test_requests_are_listed_with_what_came_of_them(tmp_path: Path) -> None:
    _lake(tmp_path)
    rows = _sent(tmp_path).listed
    assert [(row["client"], row["api"], row["version"], row["result"], row["fault"]) for row in rows] == [
        ("shop", "Metadata", "v12", "2 × LEADER_NOT_AVAILABLE", ""), ("till", "Metadata", "v12", "no response", "fault 3: is_dropped=True"),
        ("quiet", "Metadata", "v12", "", ""),
    ]
    assert [row["ms"] is None for row in rows] == [False, True, False]


def test_a_long_list_has_the_errors_and_the_latest_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "LISTED", 10)
    _lake(tmp_path, requests=60)
    sent = _sent(tmp_path)
    assert [row["client"] for row in sent.listed] == ["shop", "till", *["quiet"] * 8]
    assert sent.requests == 62
    assert sent.listed == sorted(sent.listed, key=lambda row: row["at_ms"])
    every = _sent(tmp_path).listed
    assert every[-1]["request"].seq > every[2]["request"].seq > 100, "the latest ones"


def test_the_page_links_an_error_to_its_frames(tmp_path: Path) -> None:
    seqs = _lake(tmp_path)
    page = write.rendered(lakes.stored(tmp_path), {})
    for name in ("request", "response"):
        assert f'<a href="#row-1-{seqs[name]}">{name}</a>' in page
        assert f'id="row-1-{seqs[name]}"' in page
    assert evidence.places(facts.collect(lakes.stored(tmp_path))) == []
    assert "all requests" in page.lower()
