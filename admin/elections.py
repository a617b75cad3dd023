"""Leader elections on request: preferred ones (KIP-183) and unclean ones (KIP-460), key 43."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.calls.arguments import by_topic, check_partitions, check_timeout
from klamm.admin.calls.deadlines import deadline_ms, work_ms
from klamm.admin.calls.errors import Unsupported, error_of
from klamm.admin.calls.results import PartitionResult
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import ElectionType
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import TopicPartition


def elect_leaders(election_type: ElectionType, partitions: Iterable[tuple[str, int]] | None, timeout_ms: int) -> Call[PartitionResult]:
    """See `AdminClient.elect_leaders`."""
    if not isinstance(election_type, ElectionType):
        raise TypeError(f"election_type must be an ElectionType, not {election_type!r}")
    wanted = None if partitions is None else check_partitions(partitions)
    timeout = check_timeout(timeout_ms)

    async def run(session: Session, scope: Scope) -> PartitionResult:
        def make(pending: list[TopicPartition] | None, version: int) -> messages.ElectLeadersRequest:
            if version == 0 and election_type is not ElectionType.PREFERRED:
                raise Unsupported("the controller is older than Kafka 2.4 and does not support unclean elections")
            topics = (
                None
                if pending is None
                else [
                    messages.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers)
                    for topic, numbers in by_topic(pending).items()
                ]
            )
            return messages.ElectLeadersRequest(
                election_type=int(election_type), topic_partitions=topics, timeout_ms=work_ms(scope, timeout)
            )

        return PartitionResult(await session.each_to_controller(scope, ApiKey.ELECT_LEADERS, wanted, make, _read))

    return Call(deadline_ms(timeout), run)


def _read(response: messages.ElectLeadersResponse) -> Outcomes[TopicPartition]:
    """The outcome of each partition. If the whole request has an error (never NOT_CONTROLLER), each named partition has one too."""
    whole = error_of(response.error_code)
    outcomes = {
        TopicPartition(topic.topic, one.partition_id): error_of(one.error_code, one.error_message)
        for topic in response.replica_election_results
        for one in topic.partition_result
    }
    if whole is not None and not outcomes:
        raise whole
    return outcomes
