"""`klamm serve --as-version` and `--api-version`: what the brokers offer, and what is refused."""

from __future__ import annotations

import pytest

from klamm.protocol.apis import ApiKey
from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import call
from klamm.tests.cli.served_cluster import topics_at
from klamm.tests.reference.releases import listed


def test_serve_takes_a_version_and_ranges_and_gives_them_to_brokers_in_processes(start: Start) -> None:
    words = ("--as-version", "2.4", "--api-version", "Metadata=0-8", "--api-version", "OffsetDelete=none")
    said = start("serve", "--processes", "--brokers", 2, "--port", 0, "--json", "--topic", "orders:3:2", *words).ready()
    for broker in said["brokers"]:
        offered = listed(broker["port"])
        assert offered[ApiKey.METADATA] == (0, 8)
        assert offered[ApiKey.FETCH] == (0, 11)
        assert ApiKey.OFFSET_DELETE not in offered
    assert topics_at(said["bootstrap_servers"]) == {"orders": 3}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--as-version", "0.11"), "Invalid value for '--as-version': '0.11' is not a version of Apache Kafka from 1.0 to 4.4"),
        (("--api-version", "Fech=1"), "Invalid value for '--api-version': there is no API 'Fech'; did you mean Fetch?"),
        (("--as-version", "1.0", "--api-version", "Fetch=0-7"), "Apache Kafka 1.0 has versions 0-6 of Fetch"),
        (("--api-version", "CreateTopics=none", "--topic", "t"), "the cluster needs CreateTopics, which klamm.api.versions hides"),
    ],
    ids=str,
)
def test_what_cannot_be_offered_is_one_line(words: tuple[str, ...], reason: str) -> None:
    said = call("serve", "--port", 0, "--brokers", 1, *words)
    assert said.returncode in (1, 2)
    assert reason in said.stderr.splitlines()[-1]
