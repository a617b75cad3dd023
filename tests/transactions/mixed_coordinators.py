"""A cluster whose coordinator is of either kind. Brokers 1 and 2 are Klamm's, broker 3 is a real one.

The internal topic has one partition. A reassignment that changes the order of its replicas, and a preferred election, make any of the three
the coordinator of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed.kafka_errors import unusual
from klamm.tests.stories.both import answers

KLAMM, OTHER_KLAMM, KAFKA = 1, 2, 3


class MixedCoordinators:
    """Who coordinates, and requests to that broker."""

    def __init__(self, members: Members, topic: str, configs: Mapping[str, str], not_now: Collection[int]) -> None:
        """Starts the brokers and creates the internal topic. `not_now` are the error codes with which a request is sent again."""
        members.klamm(KLAMM, OTHER_KLAMM)
        members.kafka(KAFKA)
        members.create(topic, [[KLAMM, KAFKA, OTHER_KLAMM]], configs)
        self.members = members
        self._topic, self._not_now = topic, not_now

    @property
    def present(self) -> int:
        """The coordinator."""
        return self.members.state(self._topic).leader

    def move(self, to: int) -> None:
        """Make a broker the coordinator."""
        kind = messages.AlterPartitionReassignmentsRequest
        replicas = [to, *(each for each in (KLAMM, OTHER_KLAMM, KAFKA) if each != to)]
        topic = kind.ReassignableTopic(self._topic, [kind.ReassignablePartition(partition_index=0, replicas=replicas)])
        answer = self.members.ask(kind(timeout_ms=30_000, topics=[topic]), 0)
        assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0, answer
        wait_for(lambda: self.members.tree.assignment(self._topic)[0] == replicas, "the order of replicas is another")
        self.members.in_sync([self._topic])
        self.members.elect(self._topic)
        self.members.shown(self._topic, 0, lambda leader: leader == to)

    def ask(self, name: str, version: int, value: Mapping[str, Any], code: Callable[[Any], int] = lambda answer: answer.error_code) -> Any:
        """A request to the coordinator, again while it says that it is not, not yet, or that something is under way."""

        def look() -> Any:
            answer = request(self.members.brokers[self.present].port, answers.request(name, version, dict(value)), version)
            assert code(answer) not in self._not_now, answer
            return answer

        return wait_for(look, f"{name} v{version}")


def is_clean(mixed: Members) -> None:
    """No broker has logged an error that it should not."""
    assert unusual(mixed.real()) == []
    assert grave(mixed, KLAMM, OTHER_KLAMM) == []
