"""Each result of a case, and what a server that is none looks like: a server of the test answers on a real socket."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from klamm.conform import reports
from klamm.conform.case import Absent, Case, Level, Outcome, Result, Unreachable, expect
from klamm.conform.connection import expect_error
from klamm.conform.lab import Lab, SaslPlace
from klamm.conform.runner import NoSuchCase, chosen, run, run_case
from klamm.conform.sections.catalogue import SECTIONS
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[Lab]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(closing, "127.0.0.1", 0)
    async with listening:
        yield Lab("127.0.0.1", listening.sockets[0].getsockname()[1])


async def negotiates(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers ApiVersions of any version in version 0, and nothing else."""
    while True:
        payload = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        row = messages.ApiVersionsResponse.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)
        body = messages.encode(messages.ApiVersionsResponse(api_keys=[row]), 0)
        writer.write(messages.encode_response(ApiKey.API_VERSIONS, 0, int.from_bytes(payload[4:8], "big"), body))


NOT_ALLOWED = "the user of the connection may not do it"
TOO_OLD = "version 1 has no DeleteTopicsRequest.topics, and it may not be left out"


async def passes(lab: Lab) -> None:
    await (await lab.connect()).ask(messages.ApiVersionsRequest(), 0)


async def breaks(lab: Lab) -> None:
    expect(False, "it is broken")


async def lacks(lab: Lab) -> None:
    raise Absent("it is not there")


async def hangs(lab: Lab) -> None:
    await asyncio.Event().wait()


async def reads_nothing(lab: Lab) -> None:
    records: Any = None
    bytes(records)


async def is_not_authorized(lab: Lab) -> None:
    expect_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE, what="CreateTopics")


async def asks_for_what_is_newer(lab: Lab) -> None:
    state = messages.DeleteTopicsRequest.DeleteTopicState(name="x")
    await (await lab.connect()).ask(messages.DeleteTopicsRequest(topics=[state], timeout_ms=1), 1)


async def reads_another_config(lab: Lab) -> None:
    configs: dict[str, str] = {}
    configs["retention.ms"]


@pytest.mark.parametrize(
    ("level", "case", "result", "reason"),
    [
        (Level.MUST, passes, Result.PASS, ""),
        (Level.MUST, breaks, Result.FAIL, "it is broken"),
        (Level.SHOULD, breaks, Result.NON_STRICT, "it is broken"),
        (Level.INFO, breaks, Result.INFO, "it is broken"),
        (Level.INFO, passes, Result.INFO, ""),
        (Level.MUST, lacks, Result.MISSING, "it is not there"),
        (Level.MUST, hangs, Result.FAIL, "no end within 0.3 s"),
        (Level.MUST, is_not_authorized, Result.MISSING, f"CreateTopics: TOPIC_AUTHORIZATION_FAILED: {NOT_ALLOWED}"),
        (Level.MUST, asks_for_what_is_newer, Result.MISSING, "no version of the server has the request: " + TOO_OLD),
        (Level.MUST, reads_nothing, Result.FAIL, "a response is not as it has to be: TypeError: cannot convert 'NoneType' object to bytes"),
        (Level.MUST, reads_another_config, Result.FAIL, "a response is not as it has to be: KeyError: 'retention.ms'"),
    ],
)
async def test_each_result(level: Level, case: Callable[[Lab], Awaitable[None]], result: Result, reason: str) -> None:
    one = Case("x", 1, "1", level, "A sentence.", "a source", case)
    async with server(negotiates) as lab:
        outcomes, left = await run([one], lab, 0.3, lambda _: None)
    assert [(each.result, each.reason) for each in outcomes] == [(result, reason)]
    assert left == ""


async def test_what_cannot_be_deleted_is_named_and_the_other_kinds_are_deleted() -> None:
    """A coordinator that never comes does not keep the topics."""
    deleted: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            payload = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            key, correlation_id = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[4:8], "big")
            version = 1 if key == ApiKey.METADATA else 0
            writer.write(messages.encode_response(key, version, correlation_id, messages.encode(response(key, payload), version)))

    def response(key: int, payload: bytes) -> Any:
        if key == ApiKey.METADATA:
            return messages.MetadataResponse()
        if key == ApiKey.FIND_COORDINATOR:
            return messages.FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        _, offset = messages.decode_request_header(payload)
        deleted.extend(messages.decode("DeleteTopicsRequest", 0, payload, offset)[0].topic_names)
        return messages.DeleteTopicsResponse()

    async with server(serve) as lab:
        lab.versions = dict.fromkeys((ApiKey.FIND_COORDINATOR, ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS), (0, 0))
        lab.versions[ApiKey.METADATA] = (1, 1)
        lab.group()
        lab.remember(topic := lab.name())
        left = await lab.clean_up(0.2)
    assert left == f"groups that begin with {lab.prefix}: they were not deleted within 0.2 s"
    assert deleted == [topic]


@pytest.mark.parametrize("case", ["sasl/11.6", "sasl/11.10"])
async def test_reports_do_not_have_the_password(case: str) -> None:
    """PLAIN sends it as it is, and reports are shown to others."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            payload = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if b"se-cret" in payload:
                received.append(payload)
            body = messages.encode(messages.SaslHandshakeResponse(mechanisms=["PLAIN"]), 1)
            writer.write(messages.encode_response(ApiKey.SASL_HANDSHAKE, 1, int.from_bytes(payload[4:8], "big"), body))

    received: list[bytes] = []
    async with server(serve) as lab:
        lab.sasl = SaslPlace(*lab.address, "PLAIN", "eve", "se-cret")
        (chosen_one,) = chosen(SECTIONS, [case])
        outcome = await run_case(chosen_one, lab, 1)
    assert received and outcome.exchanges
    assert not [each for each in outcome.exchanges if b"se-cret" in each.request]
    assert b"se-cret".hex(" ") not in reports.as_html("here:1", [outcome], "")


async def test_a_quota_is_removed_within_a_limit_where_the_server_is_silent() -> None:
    async with server(is_silent) as lab:
        with pytest.raises(Absent, match="the server has no AlterClientQuotas"):
            lab.undo(messages.AlterClientQuotasRequest())
        lab.versions = dict.fromkeys((ApiKey.METADATA, ApiKey.ALTER_CLIENT_QUOTAS), (0, 1))
        lab.undo(messages.AlterClientQuotasRequest())
        assert await lab.clean_up(0.2) == f"users and quotas that begin with {lab.prefix}: they were not deleted within 0.2 s"


def ends(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(data)
        await writer.drain()

    return serve


async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def wants_authentication(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a listener with SASL: it answers ApiVersions, and closes the connection of what is no authentication."""
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    row = messages.ApiVersionsResponse.ApiVersion
    keys = [row(api_key=key, min_version=1, max_version=1) for key in (ApiKey.METADATA, ApiKey.SASL_HANDSHAKE)]
    body = messages.encode(messages.ApiVersionsResponse(api_keys=keys), 0)
    writer.write(messages.encode_response(ApiKey.API_VERSIONS, 0, 1, body))
    await reader.readexactly(4)


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (ends(b""), "closed instead of a response"),
        (ends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "begins like HTTP"),
        (ends(b"\x15\x03\x03\x00\x02\x02\x46"), "begins like TLS"),
        (ends(b"\x7f\xff\xff\xff" + bytes(50)), "a frame of 2147483647 bytes"),
        (ends(b"\0\0\0\x05" + bytes(5)), "correlation id 0"),
        (ends(b"\0\0\0\x0a\0\0\0\x01" + b"\x7f" * 6), "does not decode"),
        (wants_authentication, "has its listener SASL"),
        (is_silent, "does not answer within 0.3 s"),
    ],
    ids=["closes", "http", "tls", "two gigabytes", "wrong id", "garbage", "sasl", "silent"],
)
async def test_a_server_that_is_none_is_one_line(serve: Serve, reason: str) -> None:
    async with server(serve) as lab:
        with pytest.raises(Unreachable, match=reason) as failure:
            await run(chosen(SECTIONS, ["frames"]), lab, 0.3, lambda _: None)
    assert "\n" not in str(failure.value)


async def test_a_server_that_only_negotiates_fails_or_lacks_cases_and_the_run_ends() -> None:
    async with server(negotiates) as lab:
        outcomes, _ = await run(chosen(SECTIONS, ["negotiation", "produce/6.1"]), lab, 0.2, lambda _: None)
    results = {each.case.id: each.result for each in outcomes}
    assert results["negotiation/2.1"] is Result.PASS
    assert results["negotiation/2.5"] is Result.FAIL
    assert results["negotiation/2.12"] is Result.NON_STRICT
    assert results["produce/6.1"] is Result.MISSING


def test_ids_are_unique_and_there_are_enough_cases() -> None:
    cases = chosen(SECTIONS, ())
    assert len({case.id for case in cases}) == len(cases) > 1800
    assert len([case for case in cases if case.section != "versions"]) > 290
    assert [section.number for section in SECTIONS] == list(range(1, 14))


def test_names_choose_sections_and_cases() -> None:
    assert {case.section for case in chosen(SECTIONS, ["6", "fetch"])} == {"produce", "fetch"}
    assert [case.id for case in chosen(SECTIONS, ["produce/6.3"])] == ["produce/6.3"]
    assert {case.index.split(".")[0] for case in chosen(SECTIONS, ["versions/3.Fetch.*"])} == {"Fetch"}
    with pytest.raises(NoSuchCase, match=r"'produce/6\.999'"):
        chosen(SECTIONS, ["produce/6.999"])


async def test_reports_have_each_case_with_its_frames() -> None:
    cases = [
        Case("frames", 1, "1", Level.MUST, "A < b & c.", "KIP-1", passes),
        Case("x", 2, "1", Level.MUST, "It fails.", "KIP-2", breaks),
        Case("x", 2, "2", Level.SHOULD, "It should.", "KIP-2", breaks),
        Case("x", 2, "3", Level.MUST, "It is there.", "KIP-2", lacks),
    ]
    async with server(negotiates) as lab:
        outcomes, left = await run(cases, lab, 1, lambda _: None)
    assert [len(reports.failed(outcomes, strict)) for strict in (False, True)] == [1, 2]
    whole = json.loads(json.dumps(reports.as_json("server", "here:1", outcomes, left)))
    assert whole["totals"] == {"Pass": 1, "Non-strict": 1, "Fail": 1, "Info": 0, "Missing": 1}
    suites = ElementTree.fromstring(reports.as_junit(outcomes, strict=False))
    assert [(suite.get("name"), suite.get("failures"), suite.get("skipped")) for suite in suites] == [("frames", "0", "0"), ("x", "1", "1")]
    page = reports.as_html("here:1", outcomes, left)
    assert "A &lt; b &amp; c." in page and "ApiVersions 0, correlation id 1" in page and "Apache Kafka 3.9.1" in page


def test_control_characters_do_not_break_junit() -> None:
    outcome = Outcome(Case("x", 1, "1", Level.MUST, "One.", "KIP-1", breaks), Result.FAIL, 'a\x00b"<\x1b')
    ElementTree.fromstring(reports.as_junit([outcome], strict=False))
