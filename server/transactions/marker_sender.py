"""Brings the markers of a transaction to the leaders of its partitions: WriteTxnMarkers to other brokers, its own logs directly.

Markers for one broker that come while a request to it is in flight are sent together in the next one. What was not written is reported with
its code; the coordinator sends it again, to the leader of that time. Source: `TransactionMarkerChannelManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.transactions.requests import SendMarkers
from klamm.machine.faults import contained
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, received_code
from klamm.protocol.nouns import TopicPartition
from klamm.server.coordinators.broker_links import BrokerLinks
from klamm.server.ground.background import BackgroundTasks
from klamm.server.transactions.marker_writer import MarkerWriter, TransactionEnd

log = logging.getLogger(__name__)

Results = Mapping[TopicPartition, ErrorCode]
Report = Callable[[SendMarkers, Results], object]


class _OfLeader(NamedTuple):
    """Markers for the partitions of one leader, and who wants to know what became of them."""

    markers: SendMarkers
    report: Report


class MarkerSender:
    """Sends the markers of one broker's coordinator. `version` is that of WriteTxnMarkers."""

    def __init__(
        self, metadata: MetadataCache, writer: MarkerWriter, links: BrokerLinks, background: BackgroundTasks, version: int
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._links = links
        self._background = background
        self._version = version
        self._queues: dict[int, list[_OfLeader]] = {}
        """By broker: markers that wait, while a request to the broker is in flight."""

    @property
    def waiting(self) -> int:
        """How many markers wait for a request to their broker to come back."""
        return sum(len(queue) for queue in self._queues.values())

    def send(self, markers: SendMarkers, report: Report) -> None:
        """Send markers. `report` is called with codes of some partitions, one time or several, until each partition has one.

        NONE also stands for a partition that does not exist, LEADER_NOT_AVAILABLE for one without a live leader, NETWORK_EXCEPTION for one
        whose leader did not respond.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        settled: dict[TopicPartition, ErrorCode] = {}
        for partition in markers.partitions:
            leader = self._metadata.leader(*partition)
            if leader is None:
                settled[partition] = ErrorCode.NONE
            elif leader != self._metadata.broker_id and not self._links.knows(leader):
                settled[partition] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            self._queue(leader, _OfLeader(markers._replace(partitions=tuple(partitions)), report))
        if settled:
            report(markers, settled)

    def _queue(self, leader: int, queued: _OfLeader) -> None:
        if leader == self._metadata.broker_id:
            self._background.start(self._write(queued))
        elif leader in self._queues:
            self._queues[leader].append(queued)
        else:
            self._queues[leader] = [queued]
            self._background.start(self._send_all(leader))

    async def _write(self, queued: _OfLeader) -> None:
        markers = queued.markers
        results: Results = _results(markers, None)
        with contained(log, "the writing of markers"):
            results = await self._writer.write(_end_of(markers), markers.partitions)
        queued.report(markers, results)

    async def _send_all(self, leader: int) -> None:
        try:
            while batch := self._queues[leader]:
                self._queues[leader] = []
                codes = None
                with contained(log, f"the sending of markers to broker {leader}"):
                    response = await self._links.send(leader, ApiKey.WRITE_TXN_MARKERS, self._version, _request(batch))
                    codes = None if response is None else _codes(response)
                for markers, report in batch:
                    with contained(log, "the outcome of markers"):
                        report(markers, _results(markers, codes))
        finally:
            del self._queues[leader]


def _end_of(markers: SendMarkers) -> TransactionEnd:
    return TransactionEnd(markers.producer_id, markers.producer_epoch, markers.coordinator_epoch, markers.is_commit)


def _request(batch: Iterable[_OfLeader]) -> messages.WriteTxnMarkersRequest:
    request = messages.WriteTxnMarkersRequest
    rows = []
    for markers, _ in batch:
        topics: dict[str, list[int]] = {}
        for topic, index in markers.partitions:
            topics.setdefault(topic, []).append(index)
        rows.append(
            request.WritableTxnMarker(
                producer_id=markers.producer_id, producer_epoch=markers.producer_epoch, transaction_result=markers.is_commit,
                topics=[request.WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(each)) for topic, each in topics.items()],
                coordinator_epoch=markers.coordinator_epoch,
            )
        )
    return request(markers=rows)


def _codes(response: Any) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """By producer id and partition. Two markers of one producer are in one row."""
    return {
        (row.producer_id, TopicPartition(topic.name, each.partition_index)): received_code(each.error_code)
        for row in response.markers
        for topic in row.topics
        for each in topic.partitions
    }


def _results(markers: SendMarkers, codes: Mapping[tuple[int, TopicPartition], ErrorCode] | None) -> dict[TopicPartition, ErrorCode]:
    if codes is None:
        return dict.fromkeys(markers.partitions, ErrorCode.NETWORK_EXCEPTION)
    return {each: codes.get((markers.producer_id, each), ErrorCode.UNKNOWN_SERVER_ERROR) for each in markers.partitions}
