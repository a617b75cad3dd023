"""A batch of controller requests: filled while a group of partitions or replicas changes state, then sent (controller 13.2).

    with term.sender.batch() as batch:
        batch.lead(...)

The batch is sent when the block ends, and dropped when it raises. There is one open batch at a time.

Every broker gets at most one LeaderAndIsr, one UpdateMetadata and one StopReplica of a batch, in this order over all brokers: all
LeaderAndIsr, then all UpdateMetadata, then all StopReplica. Only registered brokers are sent anything; those that are fenced get
UpdateMetadata alone. States are taken from the cluster when the batch is sent, which is right after they were committed; the leader epoch
of a StopReplica is the exception: it is the one at the moment of `stop`. A partition that cannot be encoded is logged and left out; the
others are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.events.observation import Observer, Requests
from klamm.controller.options import ControllerOptions
from klamm.controller.propagation.frames import UNENCODABLE, Encoder
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import EPOCH_DURING_DELETE, NO_EPOCH, Ints
from klamm.protocol.shortcuts.clean_responses import is_clean_leader_and_isr

if TYPE_CHECKING:
    from klamm.protocol import messages

    BrokerResponse = messages.LeaderAndIsrResponse | messages.UpdateMetadataResponse | messages.StopReplicaResponse
    """A response to a request of the controller."""

T = TypeVar("T")


class Channels(Protocol):
    """Connections to the registered brokers: one queue and one request in flight each (controller 13.1)."""

    def add_broker(self, broker_id: int, host: str, port: int) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        body: bytes,
        on_response: Callable[[BrokerResponse], None] | None,
        ignorable: Callable[[bytes, int], bool] | None = None,
        event: int | None = None,
        batch: int | None = None,
    ) -> None:
        """Queue a request; to a broker without a channel (it died in this very event) nothing is sent.

        `event` is the sequence number of the event that it is sent for, `batch` what an observer calls its batch.
        `ignorable` may say of a response's bytes that nobody needs it decoded.
        """

    def close(self) -> None: ...


OnResponse = Callable[[int, int, "BrokerResponse", frozenset[Partition]], None]
"""(broker id, sequence number of the event that sent the request, response, the partitions that a StopReplica deletes)"""


class Recipients(dict[Ints, list[Callable[[Partition], None]]]):
    """Partitions by the brokers that receive them, each once: `for add in recipients[broker_ids]: add(partition)`."""

    def __init__(self) -> None:
        super().__init__()
        self.by_broker: dict[int, list[Partition]] = {}

    def __missing__(self, broker_ids: Ints) -> list[Callable[[Partition], None]]:
        found = self[broker_ids] = [self.by_broker.setdefault(b, []).append for b in dict.fromkeys(broker_ids)]
        return found


class RequestBatch:
    """The requests to the brokers that are collected."""

    __slots__ = ("_lisr", "_settled", "_stop", "_umr", "_umr_brokers", "_umr_to_all")

    def __init__(self) -> None:
        self._lisr: dict[int, dict[Partition, bool]] = {}
        self._settled: dict[int, Sequence[Partition]] = {}
        self._umr: dict[Partition, None] = {}
        self._umr_brokers: set[int] = set()
        self._umr_to_all = False
        self._stop: dict[int, dict[Partition, tuple[int, bool]]] = {}

    def lead(self, broker_ids: Iterable[int], partition: Partition, is_new: bool) -> None:
        """LeaderAndIsr for a partition to these brokers, and UpdateMetadata for it to all registered ones."""
        for b in broker_ids:
            if b < 0:
                continue
            entries = self._lisr.get(b)
            if entries is None:
                entries = self._lisr[b] = dict.fromkeys(self._settled.pop(b, ()), False)
            if is_new or partition not in entries:
                entries[partition] = is_new
        self._umr[partition] = None
        self._umr_to_all = True

    def lead_many(self, by_broker: Mapping[int, Sequence[Partition]], partitions: Sequence[Partition]) -> None:
        """LeaderAndIsr, not new, to each broker for its partitions; UpdateMetadata for `partitions`, which are all of them, to every one.

        No partition may be there twice for a broker. Without partitions nothing happens.
        """
        if not partitions:
            return
        for b, held in by_broker.items():
            if b < 0 or not held:
                continue
            entries = self._lisr.get(b)
            if entries is None and b not in self._settled:
                self._settled[b] = held
                continue
            if entries is None:
                entries = self._lisr[b] = dict.fromkeys(self._settled.pop(b), False)
            for p in held:
                entries.setdefault(p, False)
        self.update_metadata_everywhere(partitions)

    def update_metadata(self, broker_ids: Iterable[int], partitions: Iterable[Partition]) -> None:
        """UpdateMetadata for these partitions; all receivers of a batch get the same ones."""
        self._umr_brokers.update(b for b in broker_ids if b >= 0)
        self._umr.update(dict.fromkeys(partitions))

    def update_metadata_everywhere(self, partitions: Iterable[Partition]) -> None:
        """UpdateMetadata for these partitions to every registered broker."""
        self._umr_to_all = True
        if self._umr:
            self._umr.update(dict.fromkeys(partitions))
        else:
            self._umr = dict.fromkeys(partitions)

    def stop(self, broker_id: int, partition: Partition, delete: bool) -> None:
        """StopReplica for a partition; "delete" stays once it is set."""
        if broker_id < 0:
            return
        info = partition.info
        epoch = EPOCH_DURING_DELETE if partition.topic.deletion is not None else NO_EPOCH if info is None else info.leader_epoch
        entries = self._stop.setdefault(broker_id, {})
        before = entries.get(partition)
        entries[partition] = (epoch, delete or (before is not None and before[1]))

    def leader_and_isr(self) -> Mapping[int, Mapping[Partition, bool] | Sequence[Partition]]:
        """Partitions by broker, each with whether it is new; in a mere sequence none is."""
        return {**self._lisr, **self._settled}

    def metadata_updates(self, registered: Iterable[int]) -> tuple[Mapping[Partition, None], set[int]]:
        """(partitions, the brokers that receive them); `registered` replaces "all brokers"."""
        return self._umr, set(registered) if self._umr_to_all else self._umr_brokers

    def stop_replica(self) -> Mapping[int, Mapping[Partition, tuple[int, bool]]]:
        """Partitions by broker, each with its leader epoch and whether to delete."""
        return self._stop


class RequestSender:
    """Sends the requests of one term to the brokers, a batch at a time."""

    def __init__(self, cluster: Cluster, channels: Channels, encoder: Encoder, options: ControllerOptions, on_response: OnResponse) -> None:
        self._cluster = cluster
        self._channels = channels
        self._encoder = encoder
        self._options = options
        self._on_response = on_response
        self._is_open = False
        self.posted: list[tuple[int, int]] = []
        """(API key, broker id) of the requests sent since somebody cleared it."""
        self.event = 0
        """Sequence number of the event that the requests are sent for."""
        self.observer: Observer | None = None
        self._batch: int | None = None

    def options_changed(self, options: ControllerOptions) -> None:
        """Send what these options say from now on."""
        self._options = options

    @contextmanager
    def batch(self) -> Iterator[RequestBatch]:
        """An empty batch, sent at the end of the block; a block that raises drops it.

        Raises RuntimeError inside of another block: the requests of the inner one would overtake those of the outer one.
        """
        if self._is_open:
            raise RuntimeError("a batch of requests is open: batches do not nest")
        self._is_open = True
        try:
            batch = RequestBatch()
            yield batch
            self._send(batch)
        finally:
            self._is_open = False

    def _send(self, batch: RequestBatch) -> None:
        """Encode everything and hand it to the channels."""
        cluster, encoder, options = self._cluster, self._encoder, self._options
        lisr, stop = batch.leader_and_isr(), batch.stop_replica()
        receivers = {**cluster.brokers, **cluster.fenced} if cluster.fenced else cluster.brokers
        umr, umr_brokers = batch.metadata_updates(receivers)
        listener = options.inter_broker_listener
        if self.observer is not None:
            requests = self._requests(lisr, umr_brokers.intersection(receivers), stop)
            self._batch = self.observer.sending(requests) if requests else None
        encoder.begin()
        for b in sorted(lisr):
            broker = cluster.brokers.get(b)
            if broker is not None:
                body = self._all_or_rest(partial(encoder.leader_and_isr, cluster, broker, listener=listener), lisr[b])
                self._post(b, ApiKey.LEADER_AND_ISR, encoder.lisr_version, body, ignorable=partial(self._carries_nothing, b))
        if umr_brokers:
            topics = self._all_or_rest(partial(encoder.metadata_topics, cluster), umr)
            live = encoder.live_brokers(cluster, listener)
            for b in sorted(umr_brokers):
                broker = receivers.get(b)
                if broker is not None:
                    self._post(b, ApiKey.UPDATE_METADATA, encoder.umr_version, encoder.update_metadata(cluster, broker, topics, live))
        for b in sorted(stop):
            broker = cluster.brokers.get(b)
            if broker is not None:
                for body, deleted in self._all_or_rest(partial(encoder.stop_replica, cluster, broker), stop[b]):
                    self._post(b, ApiKey.STOP_REPLICA, encoder.sr_version, body, deleted=deleted)

    def _requests(self, lisr: Iterable[int], umr: Iterable[int], stop: Iterable[int]) -> Requests:
        """What is sent to whom, of those that are registered."""
        encoder, brokers = self._encoder, self._cluster.brokers
        receivers = (
            (ApiKey.LEADER_AND_ISR, encoder.lisr_version, tuple(b for b in sorted(lisr) if b in brokers)),
            (ApiKey.UPDATE_METADATA, encoder.umr_version, tuple(sorted(umr))),
            (ApiKey.STOP_REPLICA, encoder.sr_version, tuple(b for b in sorted(stop) if b in brokers)),
        )
        return tuple((int(key), version, broker_ids) for key, version, broker_ids in receivers if broker_ids)

    def _all_or_rest(self, encode: Callable[[Any], T], partitions: Mapping[Partition, Any] | Sequence[Partition]) -> T:
        """What `encode` makes of partitions, or of those among them that can be encoded."""
        try:
            return encode(partitions)
        except UNENCODABLE:
            rest = list(filter(self._encoder.is_encodable, partitions))
            return encode({p: partitions[p] for p in rest} if isinstance(partitions, Mapping) else rest)

    def _carries_nothing(self, broker_id: int, payload: bytes, offset: int) -> bool:
        """A response without errors is news only where log directories were offline."""
        return not self._cluster.offline_dirs.get(broker_id) and is_clean_leader_and_isr(self._encoder.lisr_version, payload, offset)

    def _post(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        body: bytes,
        deleted: frozenset[Partition] | None = None,
        ignorable: Callable[[bytes, int], bool] | None = None,
    ) -> None:
        """`deleted` are the partitions that a StopReplica deletes; without any, nobody needs the response."""
        sent_by = self.event

        def on_response(response: BrokerResponse) -> None:
            self._on_response(broker_id, sent_by, response, deleted or frozenset())

        self.posted.append((api_key, broker_id))
        listener = None if deleted == frozenset() else on_response
        self._channels.send(broker_id, api_key, version, body, listener, ignorable, sent_by, self._batch)
