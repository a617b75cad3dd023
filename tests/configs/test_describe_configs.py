"""DescribeConfigs: who is answered what, in each version."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from klamm.configs.log_levels import log_levels
from klamm.protocol import messages
from klamm.server.apis import describe_configs
from klamm.server.requests.context import CloseConnection
from klamm.server.security.authorizer import Operation
from klamm.tests.configs.conftest import BROKER, LOGGER, SET, TOPIC, describing
from klamm.tests.services import Denying

CLIENT_METRICS = 16


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "t1", 0),
        (TOPIC, "nope", 3),
        (TOPIC, "", 17),
        (TOPIC, "a b", 17),
        (TOPIC, "a" * 250, 17),
        (BROKER, "0", 0),
        (BROKER, "+00", 0),
        (BROKER, "", 0),
        (BROKER, "1", 42),
        (BROKER, "-1", 42),
        (BROKER, "x", 42),
        (BROKER, " 0", 42),
        (LOGGER, "0", 0),
        (LOGGER, "1", 42),
        (LOGGER, "", 42),
        (CLIENT_METRICS, "x", 42),
        (0, "x", 42),
        (3, "x", 42),
        (32, "x", 42),
        (99, "x", 42),
    ],
)
async def test_codes(node, kind, name, code):
    for version in range(5):
        (result,) = await node.describe((kind, name, None), version=version)
        assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
        assert (result.error_message == "") == (code in (0, 3))
        assert bool(result.configs) == (code == 0 and (kind, name) != (BROKER, ""))


async def test_client_metrics_are_refused_in_the_words_of_kafka(node):
    results = await node.describe((CLIENT_METRICS, "x", None), (CLIENT_METRICS, "", None))
    assert [result.error_message for result in results] == [
        "Config type client-metrics is only supported on KRaft clusters",
        "Client metrics subscription name must not be empty",
    ]


async def test_a_type_that_does_not_exist_refuses_the_whole_request(node):
    results = await node.describe((TOPIC, "t1", None), (3, "x", None), (BROKER, "0", None))
    assert [(result.error_code, result.configs) for result in results] == [(42, [])] * 3


async def test_elsewhere_each_resource_counts_for_itself(node):
    results = await node.describe(
        (TOPIC, "t1", None), (BROKER, "7", None), (TOPIC, "t1", None), (CLIENT_METRICS, "x", None), (LOGGER, "0", None)
    )
    assert [result.error_code for result in results] == [0, 42, 0, 42, 0]


async def test_keys(node):
    results = await node.describe((TOPIC, "t1", ["retention.ms", "nope", "retention.ms"]), (BROKER, "0", ["nope"]), (TOPIC, "t1", []))
    assert [row.name for row in results[0].configs] == ["retention.ms"]
    assert results[1].configs == []
    assert len(results[2].configs) == 36
    assert len((await node.describe((BROKER, "0", None)))[0].configs) == 314


async def test_a_resource_named_often_is_described_once_and_answered_each_time(node):
    """In little more memory than its answer takes."""
    often = [(BROKER, "0", None), (TOPIC, "t1", None), (BROKER, "0", ["num.partitions"]), (BROKER, "1", None)] * 50
    alone = await node.describe(*often[:4])
    tracemalloc.start()
    try:
        answer = await node.request_encoded(describing(*often), 4)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * len(answer)
    assert messages.decode("DescribeConfigsResponse", 4, answer)[0].results == alone * 50


async def test_more_configs_than_a_client_takes_close_the_connection(node, monkeypatch):
    monkeypatch.setattr(describe_configs, "MAX_RESPONSE_BYTES", 100_000)
    assert len(await node.describe(*[(BROKER, "0", None)] * 3)) == 3
    with pytest.raises(CloseConnection, match="the configs of 20 resources are more than 100000 bytes"):
        await node.describe(*[(BROKER, "0", None)] * 20)


async def test_versions(node):
    def row(result):
        return result.configs[0]

    keys = (TOPIC, "t1", ["retention.ms"])
    everything = {"include_synonyms": True, "include_documentation": True}
    newest = row((await node.describe(keys, **everything))[0])
    synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym
    assert newest.synonyms == [synonym("retention.ms", "1000", 1)]
    assert (newest.config_source, newest.config_type, newest.read_only, newest.is_sensitive) == (1, 5, False, False)
    assert newest.documentation.startswith("How long records are kept")
    plain = row((await node.describe(keys))[0])
    assert (plain.synonyms, plain.documentation) == ([], None)
    for version in (1, 2):
        old = row((await node.describe(keys, version=version, include_synonyms=True))[0])
        assert (old.config_source, old.synonyms, old.config_type) == (1, newest.synonyms, 0)
    oldest = row((await node.describe(keys, version=0))[0])
    assert (oldest.value, oldest.is_default) == ("1000", False)


async def test_levels(node):
    (result,) = await node.describe((LOGGER, "0", None))
    rows = {row.name: row for row in result.configs}
    assert rows.keys() == log_levels().keys()
    assert len(rows) == len(result.configs) > 130
    assert {(row.config_source, row.config_type, row.read_only, row.documentation) for row in result.configs} == {(6, 0, False, "")}


async def test_unknown_configs_are_sensitive(node):
    await node.zk.set("/config/topics/t1", b'{"version":1,"config":{"nope.k":"v","retention.ms":"5"}}')
    (result,) = await node.describe((TOPIC, "t1", ["nope.k"]), include_synonyms=True)
    (row,) = result.configs
    assert (row.value, row.is_sensitive, row.config_source, row.config_type) == (None, True, 1, 0)
    assert [(s.name, s.value, s.source) for s in row.synonyms] == [("nope.k", None, 1)]


@pytest.mark.parametrize(
    ("data", "code"),
    [(b'{"version":1,"config":{"retention.ms":"bad"}}', -1), (b'{"version":1,"config":{"retention.ms":5}}', -1), (b"no json", 0)],
)
async def test_stored_nonsense(node, data, code):
    await node.zk.set("/config/topics/t1", data)
    (result,) = await node.describe((TOPIC, "t1", ["retention.ms"]))
    assert result.error_code == code


async def test_a_topic_without_config_node(node):
    await node.zk.delete("/config/topics/t1")
    assert await node.values(TOPIC, "t1", "retention.ms") == {"retention.ms": "604800000"}


async def test_sources(node):
    for entity, value in ((("", "300000")), ("0", "200000")):
        assert await node.increment((BROKER, entity, [("log.segment.bytes", SET, value)])) == [0]
    await node.eventually(lambda: node.config.get("log.segment.bytes") == 200_000)
    (topic,) = await node.describe((TOPIC, "t22", ["segment.bytes"]), include_synonyms=True)
    assert [(s.name, s.value, s.source) for s in topic.configs[0].synonyms] == [
        ("log.segment.bytes", "200000", 2),
        ("log.segment.bytes", "300000", 3),
        ("log.segment.bytes", "1073741824", 5),
    ]
    (default,) = await node.describe((BROKER, "", None), include_synonyms=True)
    assert [(row.name, row.value, row.config_source) for row in default.configs] == [("log.segment.bytes", "300000", 3)]
    assert [s.source for s in default.configs[0].synonyms] == [3]


async def test_what_may_not_be_seen_comes_last(node):
    node.services = replace(node.services, authorizer=Denying((Operation.DESCRIBE_CONFIGS, "t1")))
    results = await node.describe((TOPIC, "t1", None), (TOPIC, "t22", None), (BROKER, "0", None), (TOPIC, "nope", None))
    assert [(r.resource_name, r.error_code) for r in results] == [("t22", 0), ("0", 0), ("nope", 3), ("t1", 29)]
    node.services = replace(node.services, authorizer=Denying((Operation.DESCRIBE_CONFIGS, "kafka-cluster")))
    results = await node.describe((BROKER, "0", None), (BROKER, "", None), (LOGGER, "0", None), (TOPIC, "t1", None))
    assert [(r.resource_name, r.error_code) for r in results] == [("t1", 0), ("0", 31), ("", 31), ("0", 31)]
    results = await node.describe((BROKER, "0", None), (LOGGER, "0", None))
    assert [(r.resource_type, r.error_code, r.configs) for r in results] == [(BROKER, 31, []), (LOGGER, 31, [])]


async def test_no_resources(node):
    assert await node.describe() == []
