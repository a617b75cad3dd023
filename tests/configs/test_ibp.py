"""Steps of the inter-broker protocol: names, order, and what each one brings (controller 13.3)."""

from __future__ import annotations

import pytest

from klamm.configs.releases.inter_broker_protocol import LATEST_PRODUCTION, VERSIONS, MetadataVersion

# IBP: LeaderAndIsr, UpdateMetadata, StopReplica
REQUESTS = {
    "0.8.0": (0, 0, 0),
    "0.8.2": (0, 0, 0),
    "0.9.0": (0, 1, 0),
    "0.10.0-IV0": (0, 1, 0),
    "0.10.0-IV1": (0, 2, 0),
    "0.10.2-IV0": (0, 3, 0),
    "0.11.0": (0, 3, 0),
    "1.0-IV0": (1, 4, 0),
    "2.1": (1, 4, 0),
    "2.2-IV0": (2, 5, 1),
    "2.3": (2, 5, 1),
    "2.4-IV0": (3, 5, 1),
    "2.4-IV1": (4, 6, 2),
    "2.5": (4, 6, 2),
    "2.6-IV0": (4, 6, 3),
    "2.8-IV0": (4, 6, 3),
    "2.8-IV1": (5, 7, 3),
    "3.1": (5, 7, 3),
    "3.2-IV0": (6, 7, 3),
    "3.3": (6, 7, 3),
    "3.4-IV0": (7, 8, 4),
    "3.8": (7, 8, 4),
    "3.9": (7, 8, 4),
}


@pytest.mark.parametrize("text", REQUESTS)
def test_request_versions(text):
    version = MetadataVersion.of(text)
    assert (version.leader_and_isr_version, version.update_metadata_version, version.stop_replica_version) == REQUESTS[text]


# IBP: Fetch, ListOffsets, OffsetForLeaderEpoch, truncation on fetch, truncation by epochs; printed by MetadataVersion of 3.9.1
FOLLOWERS = {
    "0.8.2": (0, 0, 0, False, False),
    "0.9.0": (1, 0, 0, False, False),
    "0.10.0": (2, 0, 0, False, False),
    "0.10.1-IV1": (3, 0, 0, False, False),
    "0.10.2": (3, 1, 0, False, False),
    "0.11.0-IV0": (4, 2, 0, False, False),
    "0.11.0-IV1": (5, 2, 0, False, False),
    "0.11.0": (5, 2, 0, False, True),
    "1.1": (7, 2, 0, False, True),
    "2.0-IV0": (7, 2, 1, False, True),
    "2.0": (8, 3, 1, False, True),
    "2.1-IV1": (8, 4, 2, False, True),
    "2.1": (10, 4, 2, False, True),
    "2.2": (10, 5, 2, False, True),
    "2.3": (11, 5, 3, False, True),
    "2.7-IV0": (11, 5, 3, False, True),
    "2.7-IV1": (12, 5, 3, True, True),
    "2.8-IV0": (12, 6, 4, True, True),
    "3.0": (12, 7, 4, True, True),
    "3.1": (13, 7, 4, True, True),
    "3.5-IV0": (14, 8, 4, True, True),
    "3.5": (15, 8, 4, True, True),
    "3.7-IV3": (15, 8, 4, True, True),
    "3.7": (16, 8, 4, True, True),
    "3.8": (16, 8, 4, True, True),
    "3.9": (17, 9, 4, True, True),
}


@pytest.mark.parametrize("text", FOLLOWERS)
def test_a_followers_request_versions_and_its_way_to_truncate_follow_the_protocol(text):
    version = MetadataVersion.of(text)
    assert (
        version.fetch_version,
        version.list_offsets_version,
        version.offset_for_leader_epoch_version,
        version.has_truncation_on_fetch,
        version.has_offset_for_leader_epoch,
    ) == FOLLOWERS[text]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("3.9", "3.9-IV0"),
        ("3.9.1", "3.9-IV0"),
        ("2.7", "2.7-IV2"),
        ("0.10.0", "0.10.0-IV1"),
        ("0.10.0.1", "0.10.0-IV1"),
        ("0.8.2", "0.8.2"),
        ("2.8-IV1", "2.8-IV1"),
        ("3.5.2-x", "3.5-IV2"),
        ("4.0-IV1", "4.0-IV1"),
    ],
)
def test_texts(text, name):
    assert str(MetadataVersion.of(text)) == name


@pytest.mark.parametrize("text", ["", "5", "4.0", "2.8-IV9", "0.10", "x", "3", "3.9-IV0-IV1"])
def test_no_versions(text):
    assert MetadataVersion.find(text) is None
    with pytest.raises(ValueError, match="is not an inter-broker protocol version"):
        MetadataVersion.of(text)


def test_order():
    assert len(VERSIONS) == 57
    assert list(VERSIONS) == sorted(VERSIONS)
    assert len(set(VERSIONS)) == 57
    assert MetadataVersion.of("0.10.2") > MetadataVersion.of("0.9.0")
    assert MetadataVersion.of("3.9") == LATEST_PRODUCTION


SINCE = {
    "has_alter_partition": "2.7-IV2",
    "has_topic_ids": "2.8-IV0",
    "has_leader_recovery": "3.2-IV0",
    "has_feature_versioning": "2.7-IV0",
    "has_producer_id_allocation": "3.0-IV0",
}


@pytest.mark.parametrize("feature", SINCE)
def test_features_begin_and_stay(feature):
    since = MetadataVersion.of(SINCE[feature])
    assert [getattr(version, feature) for version in VERSIONS] == [version >= since for version in VERSIONS]


@pytest.mark.parametrize(
    ("text", "broker_node", "feature_node", "records"),
    [
        ("0.9.0", 2, 1, 0),
        ("0.10.0-IV0", 2, 1, 1),
        ("0.10.0-IV1", 4, 1, 1),
        ("0.11.0", 4, 1, 2),
        ("2.6", 4, 1, 2),
        ("2.7", 5, 1, 2),
        ("3.3", 5, 2, 2),
    ],
)
def test_formats(text, broker_node, feature_node, records):
    version = MetadataVersion.of(text)
    assert (version.broker_node_version, version.feature_node_version, version.record_version) == (broker_node, feature_node, records)
