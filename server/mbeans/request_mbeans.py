"""MBeans of requests and of the network (`kafka.network`, and the sockets of `kafka.server`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klamm.server.mbeans.mbean import Kind, MBean, Read, Sample
from klamm.server.mbeans.readings import BrokerReading
from klamm.server.metrics.request_counts import SocketCounts

_REQUESTS = "kafka.network:type=RequestMetrics,name="
_SOCKETS = "kafka.server:type=socket-server-metrics"


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
    *(
        MBean(_SOCKETS, Kind.SELECTOR, meaning, ("listener", "networkProcessor"), _sockets(value),
              "There is one event loop, number 0.", attribute)
        for attribute, meaning, value in _OF_SOCKETS
    ),
)
