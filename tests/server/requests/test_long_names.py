"""Names that a request can have, but that do not fit into the text of an error with its other words.

Apache Kafka 3.9.1 was asked: it cannot encode the response, and refuses the whole request with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError, StringTooLong
from klamm.server.apis.handlers import HANDLERS
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.tests.services import make_services

LONGEST = 32_767
UNEXPECTED = "The server experienced an unexpected error when processing the request."


async def describe(name: str, version: int) -> list[tuple[int, str | None]]:
    """(error code, message) of a topic with this name, and of another invalid one."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    rows = [resource(resource_type=2, resource_name=each, configuration_keys=None) for each in (name, "a b")]
    payload = messages.encode_request(32, version, 1, "test", messages.encode(messages.DescribeConfigsRequest(resources=rows), version))[4:]
    response: Any = Dispatcher(make_services(), HANDLERS).begin(Peer("PLAINTEXT", "127.0.0.1", ResponseCache()), payload)
    if isinstance(response, Awaitable):
        response = await response
    _, offset = messages.decode_response_header(32, version, response[4:])
    decoded, _ = messages.decode("DescribeConfigsResponse", version, response[4:], offset)
    return [(row.error_code, row.error_message) for row in decoded.results]


@pytest.mark.parametrize("version", [1, 4])
async def test_a_name_that_does_not_fit_into_the_text_of_its_error_refuses_the_request_without_a_fault(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    for length in (32_700, LONGEST):
        assert await describe("a" * length, version) == [(-1, UNEXPECTED)] * 2
    assert [(record.levelno, record.exc_info) for record in caplog.records] == [(logging.WARNING, None)] * 2
    assert "DescribeConfigs" in caplog.text and "a string of 32781 bytes is too long" in caplog.text


@pytest.mark.parametrize("version", [1, 4])
async def test_a_name_whose_error_is_as_long_as_possible_has_it(version: int, caplog: pytest.LogCaptureFixture) -> None:
    code, message = (await describe("a" * 32_600, version))[0]
    assert code == 17 and message is not None and len(message) == 32_681
    assert not caplog.records


@pytest.mark.parametrize("version", [1, 4])
def test_only_a_string_that_is_too_long_is_told_apart(version: int) -> None:
    row = messages.DescribeConfigsResponse.DescribeConfigsResult

    def encoded(code: int, message: str) -> bytes:
        return messages.encode(messages.DescribeConfigsResponse(results=[row(error_code=code, error_message=message)]), version)

    with pytest.raises(StringTooLong, match="a string of 32768 bytes is too long"):
        encoded(0, "ä" * (LONGEST // 2 + 1))
    with pytest.raises(LocalProtocolError) as refused:
        encoded(1 << 15, "a" * LONGEST)
    assert not isinstance(refused.value, StringTooLong)
