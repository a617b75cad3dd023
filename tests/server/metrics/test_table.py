"""The table of metrics: it has every MBean of a real broker and no other, and its names follow from theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.server.mbeans.mbean import Kind, prometheus_name
from klamm.server.mbeans.table import SHOWN
from klamm.server.mbeans.table import TABLE as PRESENT
from klamm.server.metrics.controller_counts import STATES, TIMERS
from klamm.tests.server.metrics.absent_mbeans import ABSENT

TABLE = (*PRESENT, *ABSENT)

LISTED = frozenset((Path(__file__).with_name("mbeans.txt")).read_text().splitlines())
"""Of real brokers, with keys but without their values."""

LATER = frozenset(
    f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec,topic"
    for name in ("BytesRejected", "FailedFetchRequests", "FailedProduceRequests", "FetchMessageConversions", "NoKeyCompactedTopicRecords",
                 "ProduceMessageConversions")
)
"""A broker registers these for a topic when the first of them happens, which it need not have in the story."""


def test_the_table_has_every_mbean_of_a_real_broker() -> None:
    assert LISTED - {row.object_name for row in TABLE} == set()


def test_the_table_has_no_mbean_that_a_real_broker_lacks() -> None:
    assert {row.object_name for row in TABLE} - LISTED <= LATER


def test_what_kafka_lacks_has_a_name_of_its_own() -> None:
    assert {row.name.partition(":")[0] for row in SHOWN if row not in TABLE} == {"klamm.server"}


def test_a_row_is_read_or_says_why_not() -> None:
    assert all(row.read is not None for row in SHOWN)
    assert [row.object_name for row in ABSENT if not row.note] == []


def test_no_two_rows_have_the_same_samples() -> None:
    shown = [(row.metric, row.labels) for row in SHOWN if row.read is not None]
    assert len(shown) == len(set(shown))


def test_rows_of_one_metric_are_of_one_kind() -> None:
    kinds: dict[str, set[Kind]] = {}
    for row in TABLE:
        if row.read is not None:
            kinds.setdefault(row.metric, set()).add(row.kind)
    assert {metric: found for metric, found in kinds.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("name", "kind", "attribute", "metric"),
    [
        ("kafka.log:type=LogManager,name=OfflineLogDirectoryCount", Kind.GAUGE, "", "kafka_log_logmanager_offlinelogdirectorycount"),
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", Kind.METER, "", "kafka_server_brokertopicmetrics_bytesin"),
        ("kafka.log:type=LogCleanerManager,name=uncleanable-bytes", Kind.GAUGE, "", "kafka_log_logcleanermanager_uncleanable_bytes"),
        ("kafka.server:type=socket-server-metrics", Kind.SELECTOR, "request-total", "kafka_server_socket_server_metrics_request_total"),
    ],
)
def test_the_name_in_prometheus_follows_from_that_of_the_mbean(name: str, kind: Kind, attribute: str, metric: str) -> None:
    assert prometheus_name(name, kind, attribute) == metric


def test_every_timer_of_the_controller_is_in_the_table() -> None:
    names = {row.name.rpartition("name=")[2] for row in TABLE if row.kind is Kind.TIMER and row.read is not None}
    assert set(TIMERS) <= names
    assert all(0 < number < 18 for number, _ in STATES.values())
