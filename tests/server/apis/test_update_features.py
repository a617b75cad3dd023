"""UpdateFeatures at a broker that stands for Kafka 4: a level that some broker does not support is not finalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.apis import update_features
from klamm.server.ground.features import FeatureCache
from klamm.tests.services import LostStore, make_context, make_services

NAME, START = "transaction.version", "The update failed for all features since the following feature had an error: "


class Store(LostStore):
    """Two brokers, of which the second one supports what is given."""

    def __init__(self, second: dict[str, tuple[int, int]]) -> None:
        self.second = second
        self.written: dict[str, int] = {}

    async def broker_features(self) -> dict[int, dict[str, tuple[int, int]]]:
        return {1: {NAME: (0, 2)}, 2: self.second}

    async def write_features(self, levels: Mapping[str, int]) -> None:
        self.written |= levels


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({}, "Broker 2 does not support this feature."),
        ({NAME: (0, 1)}, "Broker 2 only supports versions 0-1"),
        ({NAME: (0, 2)}, None),
    ],
)
async def test_a_level_that_another_broker_does_not_support_is_refused(second: dict[str, tuple[int, int]], reason: str | None) -> None:
    store = Store(second)
    services = replace(make_services(admin_store=store), features=FeatureCache({NAME: (0, 2)}))
    kind = messages.UpdateFeaturesRequest
    request = kind(60_000, [kind.FeatureUpdateKey(NAME, 2, upgrade_type=1)])
    response = await update_features.handle_levels(make_context(services, ApiKey.UPDATE_FEATURES, 2), request)
    if reason is None:
        assert (response.error_code, store.written) == (0, {NAME: 2})
    else:
        said = f"{START}Invalid update version 2 for feature {NAME}. {reason}"
        assert (response.error_code, response.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, said)
        assert store.written == {}
