"""Real brokers follow Klamm's leaders, and Klamm follows real ones: whoever leads, stops, dies or falls behind, the logs end up equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.tests.harness.members import Members, grave
from klamm.tests.harness.record_clients import produce, read_all
from klamm.tests.mixed.data_story import SOON
from klamm.tests.mixed.kafka_errors import unusual

pytestmark = [pytest.mark.slow, pytest.mark.reference]

TOPICS = {"ours": [[1, 2, 3]], "theirs": [[3, 1, 2]]}
"""The first replica leads: a Klamm broker, and the real one, which is broker 3."""


class Writing:
    """What was written to each topic, with acks=all."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.written: dict[str, dict[str, int]] = {topic: {} for topic in TOPICS}
        self._batches = 0

    def write(self, count: int = 50) -> None:
        running = self.members.bootstrap(*(broker.id for broker in self.members.running()))
        for topic, written in self.written.items():
            texts = [f"{topic}-{self._batches}-{n}" for n in range(count)]
            produce(running, topic, texts)
            written.update(dict.fromkeys(texts, 1))
        self._batches += 1

    def check(self) -> None:
        """Everything is there once, whoever leads."""
        self.members.in_sync(list(TOPICS))
        for topic, written in self.written.items():
            assert read_all(self.members.bootstrap(), topic) == written


def logs(members: Members, topic: str) -> dict[int, bytes]:
    """The records of a topic's only partition on each broker's disk."""

    def of(folder: Path) -> bytes:
        return b"".join(file.read_bytes() for file in sorted((folder / "data" / f"{topic}-0").glob("*.log")))

    return {broker.id: of(broker.folder) for broker in members.brokers.values()}


def test_logs_of_real_brokers_and_of_klamm_are_equal_whoever_led_and_was_away(new_members) -> None:
    members = new_members(lambda _: SOON)
    members.klamm(1, 2)
    members.kafka(3)
    for topic, assignment in TOPICS.items():
        members.create(topic, assignment)
    writing = Writing(members)
    writing.write()
    for broker_id in (3, 1):
        members.brokers[broker_id].stop()
        writing.write()
        members.start(broker_id)
        writing.check()
    for broker_id in (1, 3):
        members.brokers[broker_id].kill()
        writing.write()
        members.start(broker_id)
        writing.check()
    for broker_id in (3, 1):  # a follower falls behind, leaves the ISR and comes back
        members.brokers[broker_id].freeze()
        try:
            writing.write()
        finally:
            members.brokers[broker_id].thaw()
        writing.check()
    for topic in TOPICS:
        members.elect(topic)
    writing.write()
    writing.check()
    for broker in members.running():
        broker.stop()
    for topic in TOPICS:
        held = logs(members, topic)
        assert len(held[3]) > 5_000 and set(held.values()) == {held[3]}, {broker_id: len(log) for broker_id, log in held.items()}
    assert unusual(members.real()) == []
    assert grave(members, 1) == grave(members, 2) == []
