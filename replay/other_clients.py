"""Bugs of kafka-python and no-kafka."""

from __future__ import annotations

from klamm.conform.clients.client_lab import ClientLab
from klamm.replay.bug import Bug


async def _throttled(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, throttle_time_ms=400, first=3)
    program = await lab.begin_client("produce", RECORDS=5, PAUSE_MS=20)
    await lab.until(lambda: not program.is_running or len(lab.requests("Produce")) >= 2)  # later releases can hang after the first


async def _refused_member(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="JoinGroup", group=lab.group, error="GROUP_AUTHORIZATION_FAILED")
    program = await lab.begin_client("join")
    await lab.pause(6000, program)


BUGS = (
    Bug(
        "kafka-python-throttle", ("dpkp/kafka-python#2506",), "kafka-python", "2.0.6", "3.0.12", "X-02",
        "does not wait as long as a response asks (KIP-219)", "Three responses to Produce have a throttle time of 400 ms.",
        _throttled, {"brokers": 1},
    ),
    Bug(
        "no-kafka-null-member", ("oleksiyk/kafka#177",), "no-kafka", "3.4.4", None, "K-01",
        "leaves a group with a member id that is null", "A member may not join its group, and leaves.",
        _refused_member, {"brokers": 1},
    ),
)
