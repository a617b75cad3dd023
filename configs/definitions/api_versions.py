"""The APIs and versions that a broker offers to clients, where configs make them fewer than Klamm has.

`klamm.as.version` names a release of Apache Kafka, whose APIs and versions are offered then. `klamm.api.versions` makes the range of a
single API smaller (`Produce=0-7`), or hides it (`Produce=none`). The APIs between brokers cannot be narrowed. A broker uses some other APIs
too, as a follower for example: its requests are served in the full range (`server/requests/api_subset.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from klamm.configs.definitions.types import ConfigError, Values
from klamm.configs.releases import kafka4_releases
from klamm.configs.releases.inter_broker_protocol import LATEST_PRODUCTION, MetadataVersion
from klamm.configs.releases.kafka_releases import is_kafka_4, release_of, versions_in
from klamm.protocol.apis import APIS, Api, ApiKey, Draft, SentBy
from klamm.protocol.errors import did_you_mean

AS_VERSION = "klamm.as.version"
API_VERSIONS = "klamm.api.versions"
BETWEEN_BROKERS = frozenset(key for key, api in APIS.items() if api.cluster_action and api.sent_by is not SentBy.CLIENTS)
"""APIs that only brokers call; `inter.broker.protocol.version` chooses their versions."""

VERIFIES_SINCE = 4
"""The first version of AddPartitionsToTxn that verifies."""

_BY_NAME = {api.name.lower(): api for api in APIS.values()}
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
Range = tuple[int, int]


class OfferedApis(NamedTuple):
    """What a broker offers. An API that is in neither is unknown to it."""

    apis: tuple[Api, ...]
    """Api rows with the offered versions, in the order of their keys. ApiVersions lists drafts only to Klamm's own clients."""
    full: Mapping[int, Range]
    """API key → the versions that requests of brokers may have: without `klamm.api.versions`."""


def parse_api_versions(text: str) -> dict[int, Range | None]:
    """API key → its range, None if it is hidden, from `NAME=LOW-HIGH,NAME=VERSION,NAME=none`. Raises ValueError."""
    narrowed: dict[int, Range | None] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, wanted = (part.strip() for part in entry.partition("="))
        if not equals:
            raise ValueError(f"{entry!r} is not NAME=LOW-HIGH or NAME=none, such as Produce=0-7")
        api = _api(name)
        if api.key in narrowed:
            raise ValueError(f"{api.name} is named twice")
        narrowed[api.key] = _range(api, wanted)
    return narrowed


def _api(name: str) -> Api:
    api = _BY_NAME.get(name.lower())
    if api is None:
        raise ValueError(f"there is no API {name!r}{did_you_mean(name, (each.name for each in _BY_NAME.values()))}")
    if api.key in BETWEEN_BROKERS:
        raise ValueError(f"{api.name} is an API between brokers; inter.broker.protocol.version chooses its versions")
    return api


def _range(api: Api, wanted: str) -> Range | None:
    if wanted.lower() == "none":
        if api.key in (ApiKey.API_VERSIONS, ApiKey.METADATA):
            raise ValueError(f"{api.name} cannot be hidden: every cluster needs it")
        return None
    match = _RANGE.fullmatch(wanted)
    if match is None:
        raise ValueError(f"{api.name}={wanted} is not a range of versions, such as {api.name}={api.min_version}-{api.max_version}, or none")
    low = int(match[1])
    high = low if match[2] is None else int(match[2])
    if low > high:
        raise ValueError(f"{api.name}={wanted} has no version")
    return low, high


def offered_apis(values: Values) -> OfferedApis:
    """What a broker with these configs offers. Raises ConfigError if `klamm.api.versions` names what is not offered anyway."""
    text = values[AS_VERSION]
    release = None if text is None else release_of(text)
    hidden: Mapping[int, Range] = {}
    if release is None:
        full = {int(api.key): (api.min_version, api.max_version) for api in APIS.values() if api.draft is not Draft.KAFKA_4}
    elif is_kafka_4(release):
        hidden = kafka4_releases.between_brokers()
        full = versions_in(release) | hidden
    else:
        between_klamms = APIS[ApiKey.END_PENDING_TRANSACTIONS]  # whatever release they stand for
        full = versions_in(release) | {int(between_klamms.key): (between_klamms.min_version, between_klamms.max_version)}
    ranges: dict[int, Range] = dict(full)
    for key, wanted in _parsed(values[API_VERSIONS]).items():
        name = APIS[key].name
        whose = "Klamm" if release is None else f"Apache Kafka {release}"
        if key not in full:
            raise ConfigError(API_VERSIONS, values[API_VERSIONS], f"{whose} does not have {name}")
        low, high = full[key]
        if wanted is None:
            del ranges[key]
        elif wanted[0] < low or wanted[1] > high:
            raise ConfigError(API_VERSIONS, values[API_VERSIONS], f"{whose} has versions {low}-{high} of {name}")
        else:
            ranges[key] = wanted
    rows = [
        APIS[key]._replace(min_version=low, max_version=high, draft=Draft.KAFKA_3 if key in hidden else _draft(APIS[key]))
        for key, (low, high) in sorted(ranges.items())
    ]
    if hidden:
        full[ApiKey.PRODUCE] = kafka4_releases.OLDEST_PRODUCE, full[ApiKey.PRODUCE][1]
    return OfferedApis(tuple(rows), full)


def _draft(api: Api) -> Draft | None:
    return None if api.draft is Draft.KAFKA_4 else api.draft


def newest_offered(values: Values, key: int, newest: int) -> int | None:
    """The newest version of an API, up to `newest`, that a broker with these configs offers; None if it hides the API."""
    row = next((api for api in offered_apis(values).apis if api.key == key), None)
    return None if row is None else min(newest, row.max_version)


def check_offered(values: Values) -> None:
    """Raises ConfigError if these configs contradict each other."""
    offered_apis(values)
    text = values[AS_VERSION]
    release = None if text is None else release_of(text)
    if release is None:
        return
    protocol, last = "inter.broker.protocol.version", LATEST_PRODUCTION if is_kafka_4(release) else MetadataVersion.of(release)
    if MetadataVersion.of(values[protocol]) > last:
        raise ConfigError(protocol, values[protocol], f"must be at most {last}, the last one of {AS_VERSION}={text}")
    for name in ("kip179.enable", "registerbroker.enable"):
        if values[name]:
            raise ConfigError(name, True, f"must be false with {AS_VERSION}: Apache Kafka {release} does not have these APIs")
    verifies = "transaction.partition.verification.enable"
    if values[verifies] and versions_in(release)[ApiKey.ADD_PARTITIONS_TO_TXN][1] < VERIFIES_SINCE:
        raise ConfigError(verifies, True, f"must be false with {AS_VERSION}={text}: Apache Kafka verifies since 3.6")


def _parsed(text: str | None) -> dict[int, Range | None]:
    return {} if text is None else parse_api_versions(text)
