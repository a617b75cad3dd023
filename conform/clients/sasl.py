"""Section 8: clients that authenticate with SASL."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.conform.case import Level, expect
from klamm.conform.clients.client_lab import ClientLab
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import by_connection, expect_at_most

SECTION = ClientSection(8, "sasl", "authentication")
MUST, SHOULD = Level.MUST, Level.SHOULD
COUNT = 20
BEFORE = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
GUIDE = "Kafka protocol guide: SASL authentication sequence"


async def _produced(lab: ClientLab, count: int = COUNT, **variables: Any) -> None:
    """The client writes this number of records, as the user of the cluster."""
    await lab.create()
    await lab.client("produce", lab.cluster.client, RECORDS=count, **variables)
    await lab.cluster.wait_for_high_watermark(lab.topic, 0, count)
    for requests in by_connection(lab.requests()).values():
        apis = [each.api for each in requests]
        first = next((at for at, api in enumerate(apis) if api not in BEFORE), len(apis))
        expect("SaslAuthenticate" in apis[:first] or first == len(apis), f"{apis[first : first + 1]} came before SaslAuthenticate")


for index, mechanism in enumerate(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), 1):
    SECTION.client(MUST, index, f"A client authenticates with {mechanism} on each connection, and then works.", GUIDE, sasl=mechanism)(
        _produced
    )


async def _refused(lab: ClientLab, config: dict[str, str], api: str) -> None:
    """Let the client try for a while what it must not succeed with, unless it gives up."""
    await lab.create()
    program = await lab.begin_client("produce", lab.cluster.client | config, RECORDS=1)
    await lab.until(lambda: lab.requests(api) or not program.is_running)
    await lab.pause(2000, program)
    if not program.is_running:
        await lab.finish(program, may_fail=True)
    expect(not lab.requests("Produce", "Metadata"), "the client goes on without having authenticated")
    expect(not program.told, "the client says that the record was acknowledged")


@SECTION.client(MUST, 4, "A client whose password is wrong does not go on.", GUIDE, sasl="PLAIN")
async def _(lab: ClientLab) -> None:
    await _refused(lab, {"sasl.password": "wrong"}, "SaslAuthenticate")


@SECTION.client(SHOULD, 5, "A client whose password is wrong tries again with pauses, if at all.", "KIP-144, KIP-152", sasl="PLAIN")
async def _(lab: ClientLab) -> None:
    await _refused(lab, {"sasl.password": "wrong"}, "SaslAuthenticate")
    expect_at_most(lab.requests("SaslAuthenticate"), 25, 1000)


@SECTION.client(MUST, 6, "A client sends no token when the broker does not have its mechanism.", "KIP-43", sasl="PLAIN")
async def _(lab: ClientLab) -> None:
    await _refused(lab, {"sasl.mechanism": "SCRAM-SHA-256"}, "SaslHandshake")
    expect(not lab.requests("SaslAuthenticate"), "there is a SaslAuthenticate")


SHORT: dict[str, Any] = {"sasl": "PLAIN", "config": {"connections.max.reauth.ms": "3000"}}
SECTION.client(MUST, 7, "A client goes on when its sessions end, each record once and in order.", "KIP-368", **SHORT)(
    partial(_produced, count=50, PAUSE_MS=100)
)


@SECTION.client(SHOULD, 8, "A client authenticates again on its connection before its session ends.", "KIP-368", **SHORT)
async def _(lab: ClientLab) -> None:
    await _produced(lab, 50, PAUSE_MS=100)
    for requests in by_connection(lab.requests()).values():
        if any(each.api == "Produce" for each in requests):
            count = sum(each.api == "SaslAuthenticate" for each in requests)
            expect(count > 1, "a connection with Produce requests of five seconds was authenticated once")
