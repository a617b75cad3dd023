"""Bugs of librdkafka. Its releases are those of confluent-kafka."""

from __future__ import annotations

from klamm.conform.clients.client_lab import END, ClientLab
from klamm.replay.bug import Bug

ENOUGH = 3
"""Requests after which a consumer that goes on in vain is stopped."""


async def consume(lab: ClientLab) -> None:
    """Read three records, or stop a client that cannot."""
    await lab.create()
    await lab.write("0", "1", END)
    program = await lab.begin_client("consume")
    await lab.until(lambda: not program.is_running or len(lab.requests("Fetch")) >= ENOUGH)


async def _two_partitions(lab: ClientLab) -> None:
    await lab.create(2)
    lab.fault(api="Produce", topic=lab.topic, partition=0, error="NOT_LEADER_OR_FOLLOWER", after=1, first=1, delay_ms=100)
    lab.fault(api="Produce", topic=lab.topic, partition=1, direction="response", close="before", after=1, first=1, delay_ms=200)
    await lab.client("produce", {"batch.num.messages": "1", "retry.backoff.ms": "100"}, PARTITIONS=2)


async def _throttled(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, throttle_time_ms=400, first=4)
    await lab.client("produce", {"enable.idempotence": "false"}, PAUSE_MS=30)


BUGS = (
    Bug(
        "librdkafka-topic-id-zero", ("confluentinc/librdkafka#4806",), "librdkafka", "2.5.0", "2.6.0", "K-05",
        "sends Fetch 13 and later with topic ids that are zero, and never reads anything",
        "The inter-broker protocol is 2.7, so that topics have no ids; a consumer reads.",
        consume, {"brokers": 1, "config": {"inter.broker.protocol.version": "2.7"}},
    ),
    Bug(
        "librdkafka-fetch-12", ("confluentinc/librdkafka#4870",), "librdkafka", "2.6.0", "2.6.1", "K-02",
        "sends Fetch 12 to brokers that do not have it", "Brokers have the APIs of Kafka 2.1; a consumer reads.",
        consume, {"brokers": 1, "as_version": "2.1"},
    ),
    Bug(
        "librdkafka-epoch-bump", ("confluentinc/librdkafka#4953",), "librdkafka", "2.16.1", None, "P-04",
        "raises its epoch after errors that it may repeat, and sends records again of which the response was lost: they are there twice",
        "The leader of one partition refuses a batch once, the leader of another one closes the connection before its responses.",
        _two_partitions, {"brokers": 2},
    ),
    Bug(
        "librdkafka-throttle", ("confluentinc/librdkafka#5592",), "librdkafka", "2.16.1", None, "X-02",
        "does not wait as long as a response asks (KIP-219)", "Four responses to Produce have a throttle time of 400 ms.",
        _throttled, {"brokers": 1},
    ),
)
