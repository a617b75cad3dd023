"""Configs that narrow what a broker offers: which values are refused, and with which words."""

from __future__ import annotations

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.describe import ConfigSource, describe_broker
from klamm.configs.releases.kafka_releases import WITH_ZOOKEEPER, versions_in
from klamm.protocol import messages
from klamm.protocol.apis import ADMIN_SOFTWARE, APIS, BROKER_SOFTWARE, ApiKey, Draft
from klamm.server.apis.handlers import offered_by
from klamm.tests.protocol import golden
from klamm.tests.services import make_services, respond

AS, RANGES, PROTOCOL = "klamm.as.version", "klamm.api.versions", "inter.broker.protocol.version"
REFUSED = [
    ({AS: "4.5"}, AS, "must be a version of Apache Kafka from 1.0 to 4.4"),
    ({RANGES: "Prduce=0-7"}, RANGES, "there is no API 'Prduce'; did you mean Produce?"),
    ({RANGES: "xyz=0"}, RANGES, "there is no API 'xyz'"),
    ({RANGES: "Produce"}, RANGES, "'Produce' is not NAME=LOW-HIGH or NAME=none, such as Produce=0-7"),
    ({RANGES: "Produce=a-b"}, RANGES, "Produce=a-b is not a range of versions, such as Produce=0-11, or none"),
    ({RANGES: "Produce=7-3"}, RANGES, "Produce=7-3 has no version"),
    ({RANGES: "Produce=0-7,produce=0-6"}, RANGES, "Produce is named twice"),
    ({RANGES: "Produce=0-12"}, RANGES, "Klamm has versions 0-11 of Produce"),
    ({RANGES: "Produce=0-10", AS: "2.8"}, RANGES, "Apache Kafka 2.8 has versions 0-9 of Produce"),
    ({RANGES: "DescribeCluster=none", AS: "2.7"}, RANGES, "Apache Kafka 2.7 does not have DescribeCluster"),
    ({RANGES: "ApiVersions=none"}, RANGES, "ApiVersions cannot be hidden: every cluster needs it"),
    ({RANGES: "LeaderAndIsr=0-3"}, RANGES, "LeaderAndIsr is an API between brokers; inter.broker.protocol.version chooses its versions"),
    ({AS: "2.8", PROTOCOL: "3.0"}, PROTOCOL, "must be at most 2.8-IV1, the last one of klamm.as.version=2.8"),
    ({AS: "2.8", "kip179.enable": "on"}, "kip179.enable", "must be false with klamm.as.version: Apache Kafka 2.8 does not have these APIs"),
    (
        {AS: "2.8", "registerbroker.enable": "on"},
        "registerbroker.enable",
        "must be false with klamm.as.version: Apache Kafka 2.8 does not have these APIs",
    ),
    (
        {AS: "3.5", "transaction.partition.verification.enable": "true"},
        "transaction.partition.verification.enable",
        "must be false with klamm.as.version=3.5: Apache Kafka verifies since 3.6",
    ),
]


def config(**properties: str) -> BrokerConfig:
    return BrokerConfig({"zookeeper.connect": "z:1"} | properties)


@pytest.mark.parametrize(("properties", "key", "reason"), REFUSED, ids=str)
def test_a_value_that_is_not_possible_is_refused(properties: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**properties)
    assert (caught.value.key, caught.value.reason) == (key, reason)


def ranges_of(made: BrokerConfig) -> dict[int, tuple[int, int]]:
    return {api.key: (api.min_version, api.max_version) for api in offered_by(made)}


def test_without_these_configs_all_is_offered() -> None:
    everything = {api.key: (api.min_version, api.max_version) for api in APIS.values() if api.draft is not Draft.KAFKA_4}
    hidden = {ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH}
    assert ranges_of(config()) == {key: versions for key, versions in everything.items() if key not in hidden}


async def listed(version: int, software: str, **properties: str) -> dict[int, tuple[int, int]]:
    """API key → (oldest, newest) version that a broker with these configs lists to a client of this name."""
    asked = messages.ApiVersionsRequest(client_software_name=software, client_software_version="1.0")
    response = await respond(make_services(offers=offered_by(config(**properties))), asked, version)
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("properties", [{}, {"registerbroker.enable": "on"}, {AS: "3.9"}], ids=str)
async def test_a_client_sees_the_list_of_kafka(version: int, properties: dict[str, str]) -> None:
    recorded = {answer["version"]: answer["decoded"]["apiKeys"] for answer in golden.table("apiversions.json")["answers"]}[version]
    expected = {row["apiKey"]: (row["minVersion"], row["maxVersion"]) for row in recorded}
    assert await listed(version, "apache-kafka-java", **properties) == expected


@pytest.mark.parametrize("software", ["apache-kafka-java", ADMIN_SOFTWARE, BROKER_SOFTWARE])
@pytest.mark.parametrize("release", WITH_ZOOKEEPER)
async def test_a_client_sees_the_list_of_the_release(release: str, software: str) -> None:
    """`versions_in` is what was measured at a broker of the release (`test_kafka_releases.py`). Brokers of Klamm ask each other how
    transactions end, whatever release they stand for."""
    is_asked = software != "apache-kafka-java" and config(**{AS: release}).inter_broker_protocol_version.has_leader_recovery
    ends = {ApiKey.END_PENDING_TRANSACTIONS: (0, 0)} if is_asked else {}
    assert await listed(3, software, **{AS: release}) == versions_in(release) | ends


async def test_clients_of_klamm_see_the_apis_of_drafts_that_are_switched_on() -> None:
    for software in (ADMIN_SOFTWARE, BROKER_SOFTWARE):
        extra = set(await listed(3, software)) - set(await listed(3, "kcat"))
        assert extra == {
            ApiKey.REASSIGN_PARTITIONS, ApiKey.ALTER_INTERBROKER_THROTTLED_RATES, ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS,
            ApiKey.END_PENDING_TRANSACTIONS,
        }
        both = set(await listed(3, software, **{"registerbroker.enable": "on"}))
        assert both - set(await listed(3, "kcat")) == extra | {ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH}


def test_a_single_api_is_narrowed_or_hidden_and_all_others_stay() -> None:
    everything = ranges_of(config())
    narrowed = ranges_of(config(**{RANGES: " produce = 3-7, Fetch=11 ,OffsetDelete=NONE,ReassignPartitions=none"}))
    expected = everything | {ApiKey.PRODUCE: (3, 7), ApiKey.FETCH: (11, 11)}
    del expected[ApiKey.OFFSET_DELETE], expected[ApiKey.REASSIGN_PARTITIONS]
    assert narrowed == expected


def test_a_single_api_is_narrowed_below_what_the_release_has() -> None:
    narrowed = ranges_of(config(**{AS: "2.8.1", RANGES: "Produce=0-7"}))
    assert (narrowed[ApiKey.PRODUCE], narrowed[ApiKey.FETCH]) == ((0, 7), (0, 12))


def test_a_release_with_an_older_protocol_hides_transactions_below_0_11() -> None:
    older, newer = (set(ranges_of(config(**{AS: "1.0", PROTOCOL: protocol, "log.message.format.version": protocol}))) for protocol in
                    ("0.10.2", "0.11.0"))
    assert newer - older == {
        ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS, ApiKey.TXN_OFFSET_COMMIT
    }


def test_a_default_of_the_release_is_described_as_a_default_and_a_given_value_wins() -> None:
    made = config(**{AS: "2.4", "offsets.retention.minutes": "5"})
    rows = {row.name: row for row in describe_broker(made)}
    assert (rows["message.max.bytes"].value, rows["message.max.bytes"].source) == ("1000012", ConfigSource.DEFAULT)
    assert [(s.value, s.source) for s in rows["message.max.bytes"].synonyms] == [("1000012", ConfigSource.DEFAULT)]
    assert rows["offsets.retention.minutes"].value == "5"
    assert AS not in rows
    made.apply_dynamic({"message.max.bytes": "7"}, {})
    assert made.get("message.max.bytes") == 7
    made.apply_dynamic({}, {})
    assert made.get("message.max.bytes") == 1_000_012
