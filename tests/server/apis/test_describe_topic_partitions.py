"""DescribeTopicPartitions: cursors, topics that may not be seen, and long lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.apis import describe_topic_partitions
from klamm.server.security.authorizer import Operation
from klamm.tests.broker import update_metadata
from klamm.tests.server.turns import Turns
from klamm.tests.services import Denying, make_context, make_services

REQUEST = messages.DescribeTopicPartitionsRequest
DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def broker(*topics: str, denied: tuple[str, ...] = ()) -> Any:
    metadata = MetadataCache(1)
    rows = [update_metadata.topic(name, number + 1, update_metadata.partition(0, 1, (1,), (1,))) for number, name in enumerate(topics)]
    metadata.update(update_metadata.update(*rows))
    return make_services(metadata=metadata, authorizer=Denying(*((Operation.DESCRIBE, name) for name in denied)))


async def described(services: Any, names: tuple[str, ...] = (), limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = REQUEST([REQUEST.TopicRequest(name) for name in names], limit, None if cursor is None else REQUEST.Cursor(*cursor))
    response = await describe_topic_partitions.handle(make_context(services, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0), request)
    return [(topic.name, topic.error_code) for topic in response.topics], response.next_cursor


async def test_topics_that_may_not_be_seen_are_last_in_each_page_and_left_out_if_all_are_requested() -> None:
    services = broker("a", "b", "c", denied=("b",))
    assert await described(services, ("b", "c", "a"), 1) == ([("a", 0), ("b", DENIED)], ("c", 0))
    assert await described(services, ("b", "c", "a"), 1, ("c", 0)) == ([("c", 0)], None)
    assert await described(services) == ([("a", 0), ("c", 0)], None)


@pytest.mark.parametrize("names", [(), ("a",)])
async def test_a_negative_partition_in_the_cursor_is_invalid_with_names_and_without(names: tuple[str, ...]) -> None:
    invalid = [(name, int(ErrorCode.INVALID_REQUEST)) for name in names]
    assert await described(broker("a", "b"), names, cursor=("a", -1)) == (invalid, None)


async def test_a_topic_that_was_deleted_meanwhile_is_left_out_if_all_are_requested() -> None:
    services = broker("a", "b")

    class Deleting(Denying):
        def authorize(self, *asked: Any) -> bool:
            services.metadata.topics.pop("b", None)
            return True

    assert await described(replace(services, authorizer=Deleting())) == ([("a", 0)], None)


class EvenOnes(Denying):
    """Allows every second name."""

    def authorize(self, principal: Any, operation: Any, resource: Any, host: str) -> bool:
        return bool(int(resource.name) % 2 == 0)


async def test_many_topics_that_may_not_be_seen_leave_the_loop_to_others() -> None:
    names = tuple(map(str, range(20_000)))
    services = replace(broker("a"), authorizer=EvenOnes())
    async with Turns() as turns:
        rows, _ = await described(services, names)
    assert {name for name, code in rows if code == DENIED} == set(names[1::2])
    assert not turns.has_stalled, f"{turns.longest:.3f} of {turns.total:.3f} s"
