"""CreateTopics requests and their error codes."""

from typing import Any

from klamm.protocol import messages
from klamm.tests.topics.conftest import TopicBroker

REQUEST = messages.CreateTopicsRequest


async def create(node: TopicBroker, *topics: Any, version: int = 7, timeout_ms: int = 5000, **more: Any) -> list[Any]:
    response = await node.request(REQUEST(topics=list(topics), timeout_ms=timeout_ms, **more), version)
    rows: list[Any] = response.topics
    return rows


async def codes(node: TopicBroker, *topics: Any, **more: Any) -> list[int]:
    return [row.error_code for row in await create(node, *topics, **more)]
