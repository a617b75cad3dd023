"""Creation, growth and deletion of topics (keys 19, 37 and 20)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from klamm.admin.calls.arguments import INT32_MAX, check_bool, check_int, check_iterable, check_mapping, check_timeout, check_topic
from klamm.admin.calls.deadlines import deadline_ms, work_ms
from klamm.admin.calls.errors import Unsupported, error_of
from klamm.admin.calls.results import Result
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey

_INT16_MAX = 2**15 - 1
_VALIDATES_SINCE = 1
_DEFAULTS_SINCE = 4
_STATES_SINCE = 6


class NewTopic(NamedTuple):
    """A topic to create. A number of -1 means the default of the brokers, `num.partitions` and `default.replication.factor` (since 2.4).

    With `assignments` it has these replicas, by partition from 0 on; the two numbers are -1 then.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignments: Sequence[Sequence[int]] | None = None


def create_topics(topics: Iterable[NewTopic], validate_only: bool, timeout_ms: int) -> Call[Result[str]]:
    """See `AdminClient.create_topics`."""
    wanted = {topic.name: topic for topic in map(_checked, check_iterable(topics, "topics"))}
    timeout, only = check_timeout(timeout_ms), check_bool(validate_only, "validate_only")

    async def run(session: Session, scope: Scope) -> Result[str]:
        def make(pending: list[str] | None, version: int) -> messages.CreateTopicsRequest:
            if only and version < _VALIDATES_SINCE:
                raise Unsupported("the controller is older than Kafka 0.10.2 and does not validate topics")
            rows = [_row(wanted[name], version) for name in pending or ()]
            return messages.CreateTopicsRequest(topics=rows, timeout_ms=work_ms(scope, timeout), validate_only=only)

        return Result(await session.each_to_controller(scope, ApiKey.CREATE_TOPICS, wanted, make, partial(_outcomes, "topics")))

    return Call(deadline_ms(timeout), run)


def create_partitions(counts: Mapping[str, int], validate_only: bool, timeout_ms: int) -> Call[Result[str]]:
    """See `AdminClient.create_partitions`."""
    wanted = {
        check_topic(name): check_int(count, f"the partitions of {name}", 1, INT32_MAX)
        for name, count in check_mapping(counts, "the counts").items()
    }
    timeout, only = check_timeout(timeout_ms), check_bool(validate_only, "validate_only")

    async def run(session: Session, scope: Scope) -> Result[str]:
        def make(pending: list[str] | None, version: int) -> messages.CreatePartitionsRequest:
            request = messages.CreatePartitionsRequest
            rows = [request.CreatePartitionsTopic(name=name, count=wanted[name], assignments=None) for name in pending or ()]
            return request(topics=rows, timeout_ms=work_ms(scope, timeout), validate_only=only)

        return Result(await session.each_to_controller(scope, ApiKey.CREATE_PARTITIONS, wanted, make, partial(_outcomes, "results")))

    return Call(deadline_ms(timeout), run)


def delete_topics(topics: Iterable[str], timeout_ms: int) -> Call[Result[str]]:
    """See `AdminClient.delete_topics`."""
    wanted = list(dict.fromkeys(check_topic(name) for name in check_iterable(topics, "topics")))
    timeout = check_timeout(timeout_ms)

    async def run(session: Session, scope: Scope) -> Result[str]:
        def make(pending: list[str] | None, version: int) -> messages.DeleteTopicsRequest:
            request, names = messages.DeleteTopicsRequest, pending or []
            if version < _STATES_SINCE:
                return request(topic_names=names, timeout_ms=work_ms(scope, timeout))
            return request(topics=[request.DeleteTopicState(name=name) for name in names], timeout_ms=work_ms(scope, timeout))

        return Result(await session.each_to_controller(scope, ApiKey.DELETE_TOPICS, wanted, make, partial(_outcomes, "responses")))

    return Call(deadline_ms(timeout), run)


def _checked(topic: object) -> NewTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"a topic to create must be a NewTopic, not {topic!r}")
    check_topic(topic.name)
    check_int(topic.partitions, "partitions", -1, INT32_MAX)
    check_int(topic.replication_factor, "replication_factor", -1, _INT16_MAX)
    if topic.assignments is not None and (topic.partitions, topic.replication_factor) != (-1, -1):
        raise ValueError(f"{topic.name}: with assignments, partitions and replication_factor must be -1")
    return topic


def _row(topic: NewTopic, version: int) -> messages.CreateTopicsRequest.CreatableTopic:
    request = messages.CreateTopicsRequest
    if version < _DEFAULTS_SINCE and topic.assignments is None and -1 in (topic.partitions, topic.replication_factor):
        raise Unsupported("the controller is older than Kafka 2.4: the number of partitions and the replication factor must be given")
    return request.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            request.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
            for number, brokers in enumerate(topic.assignments or ())
        ],
        configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _outcomes(field: str, response: Any) -> Outcomes[str]:
    """The outcome of each topic. Versions without an error text have the name of the code."""
    return {row.name: error_of(row.error_code, getattr(row, "error_message", None)) for row in getattr(response, field)}
