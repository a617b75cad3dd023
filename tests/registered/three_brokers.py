"""Three registered brokers in a network with cuts, and a producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from klamm.tests.harness.record_clients import RunningProducer, is_retriable, read_all
from klamm.tests.registered.registered import RegisteredMembers

TOPIC = "ledger"


@contextmanager
def producing(members: RegisteredMembers, topic: str = TOPIC) -> Iterator[RunningProducer]:
    """Producers with acks=all, idempotent; at the end every acknowledged record is in the logs once, and none was refused for good."""
    config = {"enable.idempotence": True, "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 1000}
    producer = RunningProducer(members.bootstrap(), topic, "record", 0.002, **config)
    try:
        producer.goes_on()
        yield producer
        producer.goes_on()
        producer.stop()
    finally:
        producer.end()
    assert producer.failed == []
    assert [error for error in producer.errors if not is_retriable(error)] == []
    held = read_all(members.bootstrap(), topic)
    assert set(producer.acknowledged) - set(held) == set(), "acknowledged records are lost"
    assert {text: count for text, count in held.items() if count > 1} == {}, "records are there twice"


def three(members: RegisteredMembers) -> tuple[int, int, int]:
    """Start three brokers by request and a topic on them: (the controller, another one, the third)."""
    members.add_by_request(1, 2, 3)
    members.start(1, 2, 3)
    controller = members.tree.controller()
    victim, other = (broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    order = (victim, other, controller)
    members.create(TOPIC, [[*order[p % 3 :], *order[: p % 3]] for p in range(4)])
    members.in_sync([TOPIC])
    return controller, victim, other
