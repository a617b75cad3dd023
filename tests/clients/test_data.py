"""Client libraries write and read while leaders move, brokers are killed and controllers change; none loses an acknowledged record.

All clients write at the same time, each to a topic of its own, through the same trouble: a leader is stopped, another is killed, the
controller is replaced. Then each reads what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from klamm.chaos.clients.producers import Producing
from klamm.chaos.clients.reading import read_all
from klamm.chaos.histories.history import judge
from klamm.tests.clients.traffic import Aio, Java, Js, Python, Traffic
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_for
from klamm.tests.histories.chaos import SETTINGS
from klamm.tests.reference.jars import CLIENTS_OF_2016, TOOL_OF_KIP_183, VERSION, jars

BROKERS = (1, 2, 3)
MAKERS: dict[str, Callable[[str, str], Traffic]] = {"kafka-python": Python, "aiokafka": Aio, "kafkajs": Js}


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Members]:
    """Three brokers, each a process of its own, whose sessions are short."""
    made = Members(Path(), Tree(zookeeper, chroot), tmp_path, lambda _: SETTINGS)
    try:
        made.klamm(*BROKERS)
        yield made
    finally:
        made.close()
        made.tree.close()


def create(members: Members, topic: str, partitions: int) -> None:
    members.create(topic, [[*BROKERS[p % 3 :], *BROKERS[: p % 3]] for p in range(partitions)], {"min.insync.replicas": "2"})


def trouble(members: Members, goes_on: Callable[[], None]) -> None:
    """A leader stops and returns, another is killed and returns, a new controller is elected; between two, everybody goes on."""
    goes_on()
    members.brokers[1].stop()
    goes_on()
    members.start(1)
    goes_on()
    members.brokers[2].kill()
    goes_on()
    wait_for(lambda: members.tree.exists("/brokers/ids/2") is None, "the session of 2 is over")
    members.start(2)
    epoch = members.tree.controller_epoch()
    members.tree.delete("/controller")
    wait_for(lambda: members.tree.controller_epoch() > epoch, "another controller")
    goes_on()


@pytest.mark.slow
def test_clients_lose_nothing_while_leaders_brokers_and_controllers_change(members: Members) -> None:
    traffics: dict[str, Traffic] = {}
    for name, make in MAKERS.items():
        create(members, name, make.partitions)  # type: ignore[attr-defined]  # the makers are the classes
        traffics[name] = make(members.bootstrap(), name).start()
    create(members, "confluent", 3)
    confluent = Producing(members.bootstrap(), "confluent", 3, "confluent", idempotent=True).start()

    def goes_on() -> None:
        counts = {name: traffic.sent.count for name, traffic in traffics.items()}
        acknowledged = confluent.acknowledged
        for name, traffic in traffics.items():
            wait_for(lambda t=traffic, n=name: t.failure or t.sent.count > counts[n] + 20, f"{name} goes on", 60)  # type: ignore[misc]
        wait_for(lambda: confluent.acknowledged > acknowledged + 20, "confluent goes on", 60)

    try:
        trouble(members, goes_on)
    finally:
        confluent.finish()
        for traffic in traffics.values():
            traffic.finish()
    for name, traffic in traffics.items():
        verdict = judge([traffic.sent], traffic.read())
        print(f"{name}: {verdict.text()}; errors {sorted(set(traffic.sent.errors.values()))}")
        assert verdict.faults == {}, name
        assert verdict.acknowledged > 100, name
    verdict = judge(confluent.sent, read_all(members.bootstrap(), "confluent", 3))
    print(f"confluent: {verdict.text()}; fatal {confluent.fatal}")
    assert verdict.faults == {}


KEEP_TRYING = ["--producer-property", "retries=1000000", "--producer-property", "max.in.flight.requests.per.connection=1"]
# this one's own options win over properties: by default it gives a record up, without a word, when it had no leader for 1.5 s
KEEP_TRYING_OF_2016 = [*KEEP_TRYING, "--message-send-max-retries", "1000000", "--request-timeout-ms", "60000"]
JAVA: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    VERSION: (
        ["kafka.tools.ConsoleProducer", "--bootstrap-server", "{}", "--request-required-acks", "all", *KEEP_TRYING],
        ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", "{}"],
    ),
    TOOL_OF_KIP_183: (
        ["kafka.tools.ConsoleProducer", "--broker-list", "{}", "--request-required-acks", "all", *KEEP_TRYING],
        ["kafka.tools.ConsoleConsumer", "--bootstrap-server", "{}"],
    ),
    CLIENTS_OF_2016: (
        ["kafka.tools.ConsoleProducer", "--broker-list", "{}", "--request-required-acks", "all", *KEEP_TRYING_OF_2016],
        ["kafka.tools.ConsoleConsumer", "--bootstrap-server", "{}"],
    ),
}


@pytest.mark.slow
@pytest.mark.reference
def test_java_clients_of_three_generations_lose_nothing(members: Members) -> None:
    traffics = {}
    for version, (producer, consumer) in JAVA.items():
        topic, bootstrap = f"java-{version}", members.bootstrap()
        create(members, topic, Java.partitions)
        words = [[word.format(bootstrap) for word in words] for words in (producer, consumer)]
        traffics[version] = Java(bootstrap, topic, jars(version), *words).start()

    def goes_on() -> None:
        counts = {version: traffic.sent.count for version, traffic in traffics.items()}
        for version, traffic in traffics.items():
            wait_for(lambda t=traffic, v=version: t.failure or t.sent.count > counts[v] + 50, f"{version} goes on", 60)  # type: ignore[misc]

    try:
        trouble(members, goes_on)
    finally:
        for traffic in traffics.values():
            traffic.finish()
    for version, traffic in traffics.items():
        verdict = judge([traffic.sent], traffic.read())
        print(f"{version}: {verdict.text()}")
        assert verdict.faults == {}, version
