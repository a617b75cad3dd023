"""HOST:PORT means the same wherever it is written."""

from __future__ import annotations

import pytest
from click import BadParameter, ParamType

import klamm
from klamm.cli.journal.import_capture import BrokerAddress
from klamm.cli.shell.parameters import AdvertisedAddress, HostPort
from klamm.protocol.addresses import address_of

EVERYWHERE: list[ParamType[object]] = [HostPort(), HostPort(lowest_port=0), BrokerAddress()]


@pytest.mark.parametrize(
    ("text", "address"),
    [("Kafka-1:9092", ("Kafka-1", 9092)), ("[::1]:1", ("::1", 1)), ("::1:65535", ("::1", 65535)), ("10.0.0.1:09", ("10.0.0.1", 9))],
)
def test_host_and_port_are_read_in_the_same_way_everywhere(text: str, address: tuple[str, int]) -> None:
    for kind in EVERYWHERE:
        assert tuple(kind(text))[-2:] == address  # type: ignore[arg-type]
    assert AdvertisedAddress()(text).listed == (address,)
    klamm.Proxy(text, listen=text)


@pytest.mark.parametrize(
    "text", ["", "kafka", ":9092", "kafka:", "kafka:x", "kafka:65536", "kafka:-1", "kafka:²", "kafka:٣", "k:" + "9" * 5000, "[]:1",
             "[::1:9092", "::1]:9092", "http://kafka:9092", "me@kafka:9092", "ka fka:9092", "a:1,b:2"],
)
def test_what_is_no_host_and_port_is_refused_everywhere_in_one_line(text: str) -> None:
    for kind in EVERYWHERE:
        with pytest.raises(BadParameter, match=r"is not (\[ID=\])?HOST:PORT, such as "):
            kind(text)
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        klamm.Proxy("kafka:9092", listen=text)


def test_port_0_is_one_only_to_listen() -> None:
    assert address_of("127.0.0.1:0", lowest_port=0) == ("127.0.0.1", 0)
    for kind in (HostPort(), AdvertisedAddress(), BrokerAddress()):
        with pytest.raises(BadParameter):
            kind("127.0.0.1:0")
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        klamm.Proxy("127.0.0.1:0")
