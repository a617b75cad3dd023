"""The TCP segments in a capture: pcap or pcapng; Ethernet with or without VLAN tags, Linux cooked, loopback, or bare IP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import dpkt
from dpkt import ethernet, ip, ip6, loopback, pcap, pcapng, sll, sll2, tcp
from dpkt.utils import inet_to_str

Place = tuple[str, int]
"""IP address and port."""

_NG = b"\x0a\x0d\x0d\x0a"
_MAGICS = frozenset(bytes.fromhex(each) for each in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1"))
_UNREADABLE = (dpkt.UnpackError, ValueError, IndexError, KeyError)


class BadCapture(Exception):
    """A file that is no capture, or one that cannot be read. The message is one line."""


class TcpSegment(NamedTuple):
    """A TCP segment. `size` is the number of bytes that it carried; the capture may have fewer of them, in `data`."""

    at_ns: int
    source: Place
    target: Place
    seq: int
    ack: int | None
    begins: bool
    ends: bool
    resets: bool
    size: int
    data: bytes


def segments(path: Path) -> Iterator[TcpSegment]:
    """The TCP segments of a capture, in its order. Other packets are skipped. Raises BadCapture."""
    try:
        with path.open("rb") as file:
            yield from _segments(file, path)
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}") from error


def _segments(file: IO[bytes], path: Path) -> Iterator[TcpSegment]:
    magic = file.read(4)
    file.seek(0)
    if magic != _NG and magic not in _MAGICS:
        raise BadCapture(f"{path}: neither pcap nor pcapng")
    try:
        reader: Any = pcapng.Reader(file) if magic == _NG else pcap.Reader(file)
        link = reader.datalink()
    except (*_UNREADABLE, dpkt.Error) as error:
        raise BadCapture(f"{path}: its header cannot be read: {error or type(error).__name__}") from None
    network = _LINKS.get(link)
    if network is None:
        raise BadCapture(f"{path}: packets of link type {link}; Ethernet, Linux cooked, loopback and IP can be read")
    packets = iter(reader)
    while True:
        try:
            at, data = next(packets)
        except StopIteration:
            return
        except (*_UNREADABLE, dpkt.Error):
            return  # the file ends within a packet: it may still be written
        try:
            found = _segment(round(at * 1e9), network(bytes(data)))
        except _UNREADABLE:
            continue
        if found is not None:
            yield found


def _cooked(kind: Any) -> Callable[[bytes], object]:
    return lambda data: kind(data).data


def _bare(data: bytes) -> object:
    return (ip6.IP6 if data[0] >> 4 == 6 else ip.IP)(data)


def _loopback(data: bytes) -> object:
    return loopback.Loopback(data).data


_LINKS: dict[int, Callable[[bytes], object]] = {
    0: _loopback, 1: _cooked(ethernet.Ethernet), 12: _bare, 14: _bare, 101: _bare, 108: lambda data: _bare(data[4:]),
    113: _cooked(sll.SLL), 228: _bare, 229: _bare, 276: _cooked(sll2.SLL2),
}
"""Link type → what gives the IP packet."""


def _segment(at_ns: int, packet: object) -> TcpSegment | None:
    """The segment in a packet; None if it has none, or only a fragment."""
    if isinstance(packet, ip.IP):
        if packet.mf or packet.offset:
            return None
        carried = packet.len - packet.__hdr_len__ - len(packet.opts) if packet.len else 0
    elif isinstance(packet, ip6.IP6):
        carried = packet.plen - sum(len(each) for each in packet.all_extension_headers)
    else:
        return None
    part = packet.data
    if not isinstance(part, tcp.TCP):
        return None
    data = bytes(part.data)
    flags = part.flags
    return TcpSegment(
        at_ns, (inet_to_str(packet.src), part.sport), (inet_to_str(packet.dst), part.dport), part.seq,
        part.ack if flags & tcp.TH_ACK else None,
        bool(flags & tcp.TH_SYN), bool(flags & tcp.TH_FIN), bool(flags & tcp.TH_RST), max(len(data), carried - part.off * 4), data,
    )
