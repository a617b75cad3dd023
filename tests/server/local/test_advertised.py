"""Where clients find the cluster: the value of `--advertised`."""

from __future__ import annotations

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.server.local.arguments import Advertised, listener_properties


@pytest.mark.parametrize("text", ["[::1]:9092", "::1:9092"])
def test_an_ipv6_address_loses_its_brackets_and_is_the_host_that_the_broker_advertises(text: str) -> None:
    advertised = Advertised.parse(text)
    assert advertised.of(1) == ("::1", 9092)
    config = BrokerConfig({"zookeeper.connect": "z:1"} | listener_properties("PLAINTEXT", "127.0.0.1", 9092, 1, advertised))
    assert [(one.host, one.port) for one in config.advertised_listeners if one.name == "PLAINTEXT"] == [("::1", 9092)]


def test_each_broker_has_the_address_at_its_place_and_those_beyond_the_list_the_next_ports() -> None:
    advertised = Advertised.parse("a:1000, b:2000")
    assert [advertised.of(broker) for broker in (1, 2, 3, 4)] == [("a", 1000), ("b", 2000), ("b", 2001), ("b", 2002)]


@pytest.mark.parametrize("text", ["a", "a:1,", "a:0,b:1"])
def test_each_address_of_a_list_is_checked(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Advertised.parse(text)
