"""Bugs of servers that cannot run here: a fault gives a response of Klamm the bug, and the rules see it in the frames."""

from __future__ import annotations

from typing import Any

from klamm.conform.clients.client_lab import ClientLab
from klamm.replay.bug import Bug
from klamm.replay.librdkafka import ENOUGH

CLIENT = "librdkafka", "2.16.1", "2.16.1"
"""It sends the requests; which client does is of no importance."""


async def _consume(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("0", "1", "end")
    program = await lab.begin_client("consume", {"auto.offset.reset": "error"})
    await lab.until(lambda: not program.is_running or len(lab.requests("Fetch")) >= 4 * ENOUGH)


async def _group(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("0", "1", "end")
    await lab.client("group")


def _short(name: str, link: str, symptom: str, steer: Any, **fault: Any) -> Bug:
    """A response that ends too early for its version."""
    done = f"A response to {fault['api']} is cut to {fault['truncate']} bytes."
    return Bug(name, (link,), *CLIENT, "W-09", symptom, done, steer, {"brokers": 1}, {"first": 1, **fault})


BUGS = (
    _short(
        "kafka-fetch-error-layout", "apache/kafka#1101", "Kafka 0.9 answers a Fetch with an error in the layout of version 0",
        _consume, api="Fetch", truncate=20,
    ),
    _short(
        "iggy-list-offsets-layout", "apache/iggy#3519", "Iggy's gateway answers ListOffsets with an error in the layout of version 0",
        _group, api="ListOffsets", truncate=16,
    ),
    _short(
        "kroxylicious-api-versions-layout", "kroxylicious/kroxylicious#2450",
        "Kroxylicious forwards an ApiVersions response of version 0 as one of a later version",
        _consume, api="ApiVersions", truncate=60,
    ),
)
