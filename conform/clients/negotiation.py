"""Section 1: versions, frames and tagged fields."""

from __future__ import annotations

import re
from functools import partial

from klamm.conform.case import Level, expect
from klamm.conform.clients.client_lab import END, ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import after, by_connection, decoded, with_error
from klamm.testing.request import Request

SECTION = ClientSection(1, "negotiation", "versions and frames")
MUST, SHOULD = Level.MUST, Level.SHOULD
COUNT = 10
GUIDE = "Kafka protocol guide: retrieving supported API versions"
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def _all_tasks(lab: ClientLab) -> None:
    """Produce, consume, and be a member of a group."""
    await lab.create()
    await lab.client("produce", {"enable.idempotence": "false"}, RECORDS=COUNT)
    await lab.write(END)
    for task in ("consume", "group"):
        expect_numbers((await lab.client(task)).values[:-1], COUNT, f"what the client read ({task})")


@SECTION.client(SHOULD, 1, "The first request on a connection is ApiVersions.", GUIDE)
async def _(lab: ClientLab) -> None:
    await _all_tasks(lab)
    for requests in by_connection(lab.requests()).values():
        expect(requests[0].api == "ApiVersions", f"the first request of a connection is {requests[0].api}")


def _expect_versions(requests: list[Request], ranges: dict[str, tuple[int, int]], broker: int | None = None) -> None:
    for each in requests:
        low, high = ranges.get(each.api, (0, 99))
        if broker in (None, each.broker):
            expect(low <= each.version <= high, f"{each.api} {each.version} was sent to a broker that has {low} to {high}")


OLD = {"Produce": (3, 5), "Fetch": (4, 7), "Metadata": (1, 5), "OffsetCommit": (2, 3), "JoinGroup": (2, 3), "FindCoordinator": (0, 1)}


@SECTION.client(
    MUST,
    2,
    "A client sends no version that the broker does not have.",
    GUIDE,
    api_versions={name: f"{low}-{high}" for name, (low, high) in OLD.items()},
)
async def _(lab: ClientLab) -> None:
    await _all_tasks(lab)
    _expect_versions(lab.requests(), OLD)


@SECTION.client(
    MUST,
    3,
    "Each broker is sent the versions that it has itself, in a cluster of brokers with different ones.",
    GUIDE,
    broker_config={2: {"klamm.api.versions": "Produce=3-6,Fetch=4-8,ListOffsets=1-3"}},
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[1], [2], [3]])
    for partition in range(3):
        await lab.client("produce", {"enable.idempotence": "false"}, RECORDS=COUNT, PARTITION=partition)
        await lab.write(END, partition=partition, at_most=6)
        expect_numbers((await lab.client("consume", PARTITION=partition)).values[:-1], COUNT, f"partition {partition}")
    _expect_versions(lab.requests(), {"Produce": (3, 6), "Fetch": (4, 8), "ListOffsets": (1, 3)}, 2)


for index, release in enumerate(("2.1", "2.4", "2.8", "3.3"), 4):
    SECTION.client(MUST, index, f"A client works with brokers of Apache Kafka {release}.", "KIP-35, KIP-896", as_version=release)(
        _all_tasks
    )


@SECTION.client(
    MUST, 8, "After UNSUPPORTED_VERSION of ApiVersions a client asks again in a version that the broker has.", "KIP-511", as_version="2.1"
)
async def _(lab: ClientLab) -> None:
    await _all_tasks(lab)
    for requests in by_connection(lab.requests()).values():
        for refused in with_error(requests, "UNSUPPORTED_VERSION"):
            asked = [each.version for each in after(requests, refused, "ApiVersions")]
            expect(max(asked, default=0) <= 2, f"ApiVersions was asked for again in the versions {asked}")


async def _tagged(lab: ClientLab, *apis: str) -> None:
    for api in apis:
        lab.fault(api=api, unknown_tags=True, may_miss=True)
    await _all_tasks(lab)


TAGGED = (
    ("Metadata",),
    ("Produce",),
    ("Fetch", "ListOffsets"),
    ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
    ("OffsetCommit", "OffsetFetch"),
)
for index, apis in enumerate(TAGGED, 9):
    names = " and ".join((", ".join(apis[:-1]), apis[-1])) if len(apis) > 1 else apis[0]
    SECTION.client(MUST, index, f"A client ignores tagged fields that it does not know, in responses of {names}.", "KIP-482")(
        partial(lambda lab, apis: _tagged(lab, *apis), apis=apis)
    )


@SECTION.client(MUST, 14, "Requests decode, and have no bytes after their end.", "Kafka protocol guide")
async def _(lab: ClientLab) -> None:
    await _all_tasks(lab)
    decoded(lab.requests())


@SECTION.client(SHOULD, 15, "Each request of a connection has a correlation id of its own.", "Kafka protocol guide: requests")
async def _(lab: ClientLab) -> None:
    await _all_tasks(lab)
    for requests in by_connection(lab.requests()).values():
        ids = [each.correlation_id for each in requests]
        expect(len(set(ids)) == len(ids), "a correlation id was used twice")


@SECTION.client(SHOULD, 16, "A client says its name and version in ApiVersions, in the form that brokers accept.", "KIP-511")
async def _(lab: ClientLab) -> None:
    await _all_tasks(lab)
    newer = [each for each in lab.requests("ApiVersions") if each.version >= 3 and each.request is not None]
    expect(newer, "ApiVersions was not sent in version 3 or 4")
    for each in newer:
        for text in (each.request.client_software_name, each.request.client_software_version):
            expect(SOFTWARE.fullmatch(text), f"{text!r} is not a name or version as brokers accept it")


async def _works(lab: ClientLab, **fault: object) -> None:
    lab.fault(**fault)
    await _all_tasks(lab)


SECTION.client(MUST, 17, "A client connects again when a response of ApiVersions is cut in the middle.", "Kafka protocol guide: network")(
    partial(_works, api="ApiVersions", close="amid", first=2)
)
SECTION.client(MUST, 18, "A client gets through a Metadata response that is cut in the middle.", "Kafka protocol guide: network")(
    partial(_works, api="Metadata", close="amid", first=2)
)
