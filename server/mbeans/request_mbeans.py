"""MBeans of requests and of the network (`kafka.network`, and the sockets of `kafka.server`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klamm.server.mbeans.mbean import Kind, MBean, Read, Sample
from klamm.server.mbeans.readings import BrokerReading
from klamm.server.metrics.request_counts import SocketCounts

_REQUESTS = "kafka.network:type=RequestMetrics,name="
_SOCKETS = "kafka.server:type=socket-server-metrics"
_NO_QUEUES = "A request is handled in the event loop: it has no queues between threads, so that only the total time is known."
_NO_THREADS = "There are no network threads: everything happens in one event loop."
_NO_POOL = "There is no memory pool for requests; a connection has a bounded buffer."


def _requests(reading: BrokerReading) -> Iterator[Sample]:
    for (request, version), count in list(reading.counts.requests.requests.items()):
        yield (request, str(version)), count


def _errors(reading: BrokerReading) -> Iterator[Sample]:
    yield from list(reading.counts.requests.errors.items())


def _total_times(reading: BrokerReading) -> Iterator[Sample]:
    for request, times in list(reading.counts.requests.total_time.items()):
        yield (request,), times


def _sizes(reading: BrokerReading) -> Iterator[Sample]:
    for request, sizes in list(reading.counts.requests.request_size.items()):
        yield (request,), sizes


def _sockets(value: Callable[[SocketCounts], int]) -> Read:
    def read(reading: BrokerReading) -> Iterator[Sample]:
        for listener, counts in list(reading.counts.requests.sockets.items()):
            yield (listener, "0"), value(counts)

    return read


_PARTS_OF_TIME = ("LocalTimeMs", "RemoteTimeMs", "RequestQueueTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs")
_OF_SOCKETS: tuple[tuple[str, str, Callable[[SocketCounts], int]], ...] = (
    ("connection-count", "open connections", lambda counts: counts.open),
    ("connection-creation-total", "connections that were opened", lambda counts: counts.created),
    ("connection-close-total", "connections that were closed", lambda counts: counts.closed),
    ("incoming-byte-total", "bytes that came", lambda counts: counts.bytes_in),
    ("outgoing-byte-total", "bytes that were sent", lambda counts: counts.bytes_out),
    ("request-total", "responses that were sent", lambda counts: counts.responses),
    ("response-total", "requests that came", lambda counts: counts.requests),
)

REQUEST_MBEANS: tuple[MBean, ...] = (
    MBean(_REQUESTS + "RequestsPerSec", Kind.METER, "requests that are done", ("request", "version"), _requests),
    MBean(_REQUESTS + "ErrorsPerSec", Kind.METER, "error codes in responses, NONE included", ("request", "error"), _errors),
    MBean(_REQUESTS + "TotalTimeMs", Kind.HISTOGRAM, "time from a request to its response", ("request",), _total_times,
          "A request that had none until now is not listed."),
    MBean(_REQUESTS + "RequestBytes", Kind.HISTOGRAM, "sizes of requests", ("request",), _sizes,
          "A request that had none until now is not listed."),
    *(MBean(_REQUESTS + name, Kind.HISTOGRAM, "a part of that time", ("request",), note=_NO_QUEUES) for name in _PARTS_OF_TIME),
    MBean(_REQUESTS + "ThrottleTimeMs", Kind.HISTOGRAM, "time for which clients were throttled", ("request",),
          note="Throttle times are in the responses."),
    MBean(_REQUESTS + "MessageConversionsTimeMs", Kind.HISTOGRAM, "time for the conversion of records", ("request",),
          note="Conversions are not counted."),
    MBean(_REQUESTS + "TemporaryMemoryBytes", Kind.HISTOGRAM, "memory for conversions and decompression", ("request",),
          note="Conversions are not counted."),
    MBean("kafka.network:type=RequestChannel,name=RequestQueueSize", Kind.GAUGE, "requests that wait for a thread", note=_NO_QUEUES),
    MBean("kafka.network:type=RequestChannel,name=ResponseQueueSize", Kind.GAUGE, "responses that wait for a thread", note=_NO_QUEUES),
    MBean("kafka.network:type=RequestChannel,name=ResponseQueueSize", Kind.GAUGE, "the same for one thread", ("processor",),
          note=_NO_QUEUES),
    MBean("kafka.network:type=Processor,name=IdlePercent", Kind.GAUGE, "idle time of a network thread", ("networkProcessor",),
          note=_NO_THREADS),
    MBean("kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent", Kind.GAUGE, "idle time of the network threads",
          note=_NO_THREADS),
    MBean("kafka.network:type=SocketServer,name=ControlPlaneNetworkProcessorAvgIdlePercent", Kind.GAUGE,
          "idle time of the network thread for the controller", note=_NO_THREADS),
    MBean("kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount", Kind.GAUGE,
          "connections that were closed because their SASL session was over", note="There is no SASL yet."),
    MBean("kafka.network:type=SocketServer,name=ControlPlaneExpiredConnectionsKilledCount", Kind.GAUGE,
          "the same on the listener for the controller", note="There is no SASL yet."),
    MBean("kafka.network:type=SocketServer,name=MemoryPoolAvailable", Kind.GAUGE, "memory that is left for requests", note=_NO_POOL),
    MBean("kafka.network:type=SocketServer,name=MemoryPoolUsed", Kind.GAUGE, "memory that requests take", note=_NO_POOL),
    MBean("kafka.network:type=Acceptor,name=AcceptorBlockedPercent", Kind.METER, "time for which an acceptor waited", ("listener",),
          note=_NO_THREADS),
    MBean("kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent", Kind.METER, "idle time of the request threads",
          note=_NO_THREADS),
    *(
        MBean(_SOCKETS, Kind.SELECTOR, meaning, ("listener", "networkProcessor"), _sockets(value),
              "There is one event loop, number 0.", attribute)
        for attribute, meaning, value in _OF_SOCKETS
    ),
    MBean(_SOCKETS, Kind.SELECTOR, "rates, times, authentications", ("listener", "networkProcessor"),
          note="Prometheus computes rates from counters; the others are those of Kafka's selector.", attribute="all others"),
    MBean(_SOCKETS, Kind.SELECTOR, "the memory pool, and connections a second of the broker", note=_NO_POOL, attribute="all"),
    MBean(_SOCKETS, Kind.SELECTOR, "connections a second, and throttles", ("listener",), note="Prometheus computes rates from counters.",
          attribute="all"),
    MBean(_SOCKETS, Kind.SELECTOR, "connections by the client's software",
          ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
          note="The software that a client names is not kept.", attribute="connections"),
)
