"""Where clients find the cluster: the value of `--advertised`."""

from __future__ import annotations

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.server.local.arguments import Advertised, listener_properties


@pytest.mark.parametrize("text", ["[::1]:9092", "::1:9092"])
def test_an_ipv6_address_loses_its_brackets_and_is_the_host_that_the_broker_advertises(text: str) -> None:
    advertised = Advertised.parse(text)
    assert advertised == ("::1", 9092)
    config = BrokerConfig({"zookeeper.connect": "z:1"} | listener_properties("PLAINTEXT", "127.0.0.1", 9092, 1, advertised))
    assert [(one.host, one.port) for one in config.advertised_listeners if one.name == "PLAINTEXT"] == [("::1", 9092)]
