"""The response to an unsupported version of ApiVersions: since Kafka 2.4 it names the versions of ApiVersions."""

from __future__ import annotations

import pytest

from klamm.protocol.apis import APIS, ApiKey
from klamm.server.requests.api_subset import unsupported_body
from klamm.tests.services import broker_config


@pytest.mark.parametrize(("release", "size"), [("1.0", 6), ("2.3", 6), ("2.4", 12), ("3.9", 12)])
def test_older_brokers_name_no_version_in_the_response_to_an_unsupported_one(release: str, size: int) -> None:
    body = unsupported_body(APIS[ApiKey.API_VERSIONS], broker_config(1, klamm_as_version=release))
    assert (body[:2], len(body)) == (b"\0\x23", size)
