from __future__ import annotations

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import OF_CONTROLLERS, ONLY_OF_BROKERS, Api, ApiKey, SentBy
from klamm.tests.protocol import golden


def test_ranges_and_headers_are_those_of_a_zookeeper_mode_broker() -> None:
    rows = {row["key"]: row for row in golden.table("headers.json") if row["zk_broker"]}
    shipped = {key: api for key, api in messages.APIS.items() if not api.draft}
    assert shipped.keys() == rows.keys()
    for key, row in rows.items():
        api = shipped[key]
        assert (api.name, api.min_version, api.max_version) == (row["name"], row["lowest"], row["highest"])
        assert (api.flexible_from, api.cluster_action) == (row["flexible_from"], row["cluster_action"])
        assert {str(v): api.request_header_version(v) for v in range(api.max_version + 1)} == row["request_header"]
        assert {str(v): api.response_header_version(v) for v in range(api.max_version + 1)} == row["response_header"]


def test_ranges_are_what_a_broker_advertises() -> None:
    answers = golden.table("apiversions.json")["answers"]
    decoded = answers[0]
    payload = golden.payload(decoded["response_hex"])
    _, offset = messages.decode_response_header(ApiKey.API_VERSIONS, decoded["version"], payload)
    body, _ = messages.decode("ApiVersionsResponse", decoded["version"], payload, offset)
    shipped = {api.key: (api.min_version, api.max_version) for api in messages.APIS.values() if not api.draft}
    assert {row.api_key: (row.min_version, row.max_version) for row in body.api_keys} == shipped


def test_drafts_are_marked() -> None:
    assert {key for key, api in messages.APIS.items() if api.draft} == {
        55, 64, 71, 72, 74, 75, *range(76, 82), *range(83, 95), 100, 101, 1790, 1791, 1792, 7040
    }


def test_the_table_agrees_with_the_definitions() -> None:
    for api in messages.APIS.values():
        for suffix in ("Request", "Response"):
            schema = messages.message_type(api.name + suffix).schema
            assert schema.api_key == api.key
            assert schema.valid == (api.min_version, api.last_version)
            for version in range(api.min_version, api.last_version + 1):
                assert (version in schema.flexible) == api.is_flexible(version), (api.name, version)


def test_headers_that_break_the_rule() -> None:
    shutdown, versions = messages.APIS[ApiKey.CONTROLLED_SHUTDOWN], messages.APIS[ApiKey.API_VERSIONS]
    assert [shutdown.request_header_version(v) for v in range(4)] == [0, 1, 1, 2]
    assert [versions.response_header_version(v) for v in range(6)] == [0] * 6
    assert [versions.request_header_version(v) for v in (-1, 2, 3, 4, 32767)] == [1, 1, 2, 2, 2]


def test_the_facts_of_a_row_agree_with_each_other() -> None:
    for api in messages.APIS.values():
        if api.sent_by in (SentBy.BROKERS, SentBy.CONTROLLER):
            assert api.cluster_action, api.name
        if api.is_unmeasured:
            assert api.cluster_action, api.name
        if api.to_controller:
            assert api.sent_by is not SentBy.CONTROLLER, api.name
    assert set(OF_CONTROLLERS) == {4, 5, 6} and {4, 5, 6, 7, 56, 58, 67, 100, 101, 7040} == ONLY_OF_BROKERS


@pytest.mark.parametrize("api", messages.APIS.values(), ids=lambda api: api.name)
def test_apis_that_only_read_are_named_describe_or_list_or_are_listed_here(api: Api) -> None:
    others = {
        "Fetch", "Metadata", "OffsetFetch", "FindCoordinator", "OffsetForLeaderEpoch", "ApiVersions", "ConsumerGroupDescribe",
        "MetadataFetch", "ShareGroupDescribe", "StreamsGroupDescribe",
    }
    assert api.reads == (api.name.startswith(("Describe", "List")) or api.name in others)
