"""Section 2: negotiation of versions."""

from __future__ import annotations

import struct
from typing import Any

from klamm.conform.case import Section, expect
from klamm.conform.connection import decoded, expect_error
from klamm.conform.lab import Lab
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

SECTION = Section(2, "negotiation", "Negotiation of versions")
NONE = ErrorCode.NONE
NEEDED = (
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.API_VERSIONS,
)


def _request(name: str = "conform", version: str = "1.0") -> Any:
    return messages.ApiVersionsRequest(client_software_name=name, client_software_version=version)


async def _versions(lab: Lab, version: int) -> Any:
    return await (await lab.connect()).ask(_request(), version)


async def _unsupported(lab: Lab, version: int) -> Any:
    """The response to ApiVersions of a version that no server has, which has to be that of version 0."""
    connection = await lab.connect()
    sent = connection.frame(messages.ApiVersionsRequest(), 0)
    frame = sent.frame[:6] + struct.pack(">h", version) + sent.frame[8:] + b"\x00\x01\x01\x00"
    payload = await connection.raw(struct.pack(">i", len(frame) - 4) + frame[4:])
    expect(payload is not None, "the connection was closed")
    response = decoded(sent, payload or b"")
    expect_error((await connection.ask(_request(), 0)).error_code, NONE, what="ApiVersions 0 after it")
    return response


@SECTION.must(1, "ApiVersions lists each API once.", "KIP-35")
async def each_once(lab: Lab) -> None:
    keys = [each.api_key for each in (await _versions(lab, 0)).api_keys]
    expect(len(keys) == len(set(keys)), "a key is listed twice")


@SECTION.must(2, "The lowest version of an API is not above its highest one, and not negative.", "KIP-35")
async def ranges(lab: Lab) -> None:
    bad = [each.api_key for each in (await _versions(lab, 0)).api_keys if not 0 <= each.min_version <= each.max_version]
    expect(not bad, f"keys {bad}")


@SECTION.must(3, "ApiVersions lists itself, with version 0.", "KIP-35, KIP-511")
async def lists_itself(lab: Lab) -> None:
    found = [each.min_version for each in (await _versions(lab, 0)).api_keys if each.api_key == ApiKey.API_VERSIONS]
    expect(found == [0], f"lowest versions {found}")


@SECTION.must(4, "Every version of ApiVersions lists the same ranges.", "KIP-511")
async def same_in_all_versions(lab: Lab) -> None:
    seen = set()
    for version in range(lab.version("ApiVersions") + 1):
        response = await _versions(lab, version)
        expect_error(response.error_code, NONE, what=f"version {version}")
        seen.add(tuple(sorted(tuple(each) for each in response.api_keys)))
    expect(len(seen) == 1, "versions of ApiVersions list different ranges")


@SECTION.must(5, "A version of ApiVersions that is too high is answered in version 0 with UNSUPPORTED_VERSION.", "KIP-511")
async def too_high(lab: Lab) -> None:
    expect_error((await _unsupported(lab, 99)).error_code, ErrorCode.UNSUPPORTED_VERSION)


@SECTION.must(6, "That response lists the versions of ApiVersions, so that the client can choose one.", "KIP-511")
async def names_its_versions(lab: Lab) -> None:
    lab.version("ApiVersions", 4, 3)  # a server without KIP-511 lists nothing
    keys = {each.api_key: each.max_version for each in (await _unsupported(lab, 99)).api_keys}
    expect(ApiKey.API_VERSIONS in keys, f"it lists keys {sorted(keys)}")
    expect(keys[ApiKey.API_VERSIONS] == lab.versions[ApiKey.API_VERSIONS][1], "it lists another highest version")


@SECTION.must(7, "The highest version number is answered like that too.", "KIP-511")
async def highest_number(lab: Lab) -> None:
    expect_error((await _unsupported(lab, 32767)).error_code, ErrorCode.UNSUPPORTED_VERSION)


@SECTION.must(8, "A software name with characters that are not allowed is INVALID_REQUEST.", "KIP-511")
async def bad_software_name(lab: Lab) -> None:
    response = await (await lab.connect()).ask(_request(name="-conform?"), lab.version("ApiVersions", 4, 3))
    expect_error(response.error_code, ErrorCode.INVALID_REQUEST)


@SECTION.must(9, "An empty software version is INVALID_REQUEST.", "KIP-511")
async def empty_software_version(lab: Lab) -> None:
    response = await (await lab.connect()).ask(_request(version=""), lab.version("ApiVersions", 4, 3))
    expect_error(response.error_code, ErrorCode.INVALID_REQUEST)


@SECTION.must(10, "ApiVersions may be sent again and between other requests.", "KIP-35")
async def again(lab: Lab) -> None:
    connection = await lab.connect()
    for _ in range(3):
        expect_error((await connection.ask(_request(), 0)).error_code, NONE)
        await connection.ask(messages.MetadataRequest(topics=[]), lab.version("Metadata", 8, 1))


@SECTION.must(11, "A client need not send ApiVersions at all.", "KIP-35")
async def not_at_all(lab: Lab) -> None:
    await (await lab.connect()).ask(messages.MetadataRequest(topics=[]), lab.version("Metadata"))


@SECTION.should(12, "The APIs of producers and of consumers in groups are there.", "KIP-35")
async def needed(lab: Lab) -> None:
    missing = [key.name for key in NEEDED if key not in lab.versions]
    expect(not missing, f"not advertised: {', '.join(missing)}")


@SECTION.must(13, "The throttle time of ApiVersions is not negative.", "KIP-219")
async def throttle_time(lab: Lab) -> None:
    response = await _versions(lab, lab.version("ApiVersions", 4, 1))
    expect(response.throttle_time_ms >= 0, f"{response.throttle_time_ms} ms")


@SECTION.must(14, "The range of a supported feature is not empty.", "KIP-584")
async def supported_features(lab: Lab) -> None:
    response = await _versions(lab, lab.version("ApiVersions", 4, 3))
    bad = [each.name for each in response.supported_features if each.min_version > each.max_version]
    expect(not bad, f"features {bad}")


@SECTION.must(15, "A finalized feature is in the range of the supported one.", "KIP-584")
async def finalized_features(lab: Lab) -> None:
    response = await _versions(lab, lab.version("ApiVersions", 4, 3))
    supported = {each.name: each.max_version for each in response.supported_features}
    bad = [each.name for each in response.finalized_features if each.max_version_level > supported.get(each.name, 32767)]
    expect(not bad, f"features {bad}")


@SECTION.must(16, "The lowest version of a supported feature is not 0 before ApiVersions 4.", "KIP-1022")
async def no_zero_before_4(lab: Lab) -> None:
    response = await _versions(lab, lab.version("ApiVersions", 3, 3))
    bad = [each.name for each in response.supported_features if each.min_version == 0]
    expect(not bad, f"features {bad}")


@SECTION.must(17, "Each broker that Metadata names answers ApiVersions.", "KIP-35")
async def all_brokers(lab: Lab) -> None:
    for broker in (await lab.metadata()).brokers:
        response = await (await lab.connect((broker.host, broker.port))).ask(_request(), 0)
        expect_error(response.error_code, NONE, what=f"broker {broker.node_id}")
