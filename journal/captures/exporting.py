"""Frames of journals become a capture, which Wireshark opens: each connection of a journal is a TCP connection in it.

Broker N has the address 10.x.y.z or fd00::x, with its id in the last bytes, and port 9092; clients have theirs. A packet may have a
comment, such as the violation that its frame proves. Bytes that the journal does not have are cut off as a capture with a small snapshot
length cuts them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import dpkt
from dpkt import ip, ip6, pcapng, tcp

from klamm.journal.columns import Direction
from klamm.journal.rows import Row

PORT = 9092
LARGEST = 60_000
"""Bytes of a frame in one packet."""
MOST_CUT = 64 << 20
"""A length above this is not believed if the bytes are not there."""
RAW = 101
"""The link type of bare IP."""
_OUR_REQUESTS = (Direction.REQUEST_OUT, Direction.RESPONSE_IN)
_FROM_CLIENT = (Direction.REQUEST_IN, Direction.REQUEST_OUT)
_ALL = 1 << 32
_SIZE_AT = 24
"""Where the block of a packet has the size that the packet had."""
Write = Callable[[bytes], object]
Key = tuple[str, int, int]
"""Run, broker, and the number of the row."""


def export_capture(rows: Iterable[Row], path: Path, comments: Mapping[Key, str] | None = None) -> int:
    """Write frames to a file of the format pcapng. Returns their number. Raises OSError."""
    comments = comments or {}
    flows: dict[tuple[str, int, int, int], _Flow] = {}
    count = 0
    with path.open("wb") as file:
        file.write(bytes(pcapng.SectionHeaderBlockLE()) + bytes(pcapng.InterfaceDescriptionBlockLE(snaplen=0, linktype=RAW)))
        for row in rows:
            if row.table != "frames":
                continue
            columns = row.columns
            which = columns["run_id"], columns["node_id"], columns["process"], columns["conn_id"]
            flow = flows.get(which)
            if flow is None:
                flow = flows[which] = _Flow(columns, len(flows))
                flow.begin(file.write, columns["ts_ns"])
            note = comments.get((columns["run_id"], columns["node_id"], columns["seq"]), "")
            flow.frame(file.write, columns, note)
            count += 1
    return count


class _Flow:
    """A connection as TCP."""

    def __init__(self, columns: Mapping[str, Any], number: int) -> None:
        host, _, port = columns["peer"].rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            peer = ipaddress.ip_address(host)
        except ValueError:
            peer = ipaddress.ip_address("192.0.2.1")
        node = columns["node_id"]
        broker = ipaddress.ip_address((10 << 24) + node % (1 << 24) if peer.version == 4 else (0xFD << 120) + node)
        is_ours = columns["dir"] in _OUR_REQUESTS
        ends = (peer.packed, int(port) if port.isdecimal() else 0), (broker.packed, PORT if not is_ours else 40_000 + number % 20_000)
        self._client, self._server = reversed(ends) if is_ours else ends
        self._next = {True: 1, False: 1}
        """The sequence number of the next byte of the client, and of the server."""

    def begin(self, write: Write, at_ns: int) -> None:
        """The handshake of TCP."""
        self._next = {True: 0, False: 0}
        for from_client, flags in ((True, tcp.TH_SYN), (False, tcp.TH_SYN | tcp.TH_ACK)):
            self._packet(write, at_ns, from_client, flags, b"", 0, "")
            self._next[from_client] = 1
        self._packet(write, at_ns, True, tcp.TH_ACK, b"", 0, "")

    def frame(self, write: Write, columns: Mapping[str, Any], comment: str) -> None:
        """A frame, in one packet or several."""
        data: bytes = columns["frame"]
        size = 4 + int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else 0
        size = len(data) if size > MOST_CUT else max(size, len(data))
        for start in range(0, size, LARGEST):
            length = min(LARGEST, size - start)
            self._packet(
                write, columns["ts_ns"], columns["dir"] in _FROM_CLIENT, tcp.TH_ACK | tcp.TH_PUSH, data[start : start + length], length,
                "" if start else comment,
            )

    def _packet(self, write: Write, at_ns: int, from_client: bool, flags: int, data: bytes, size: int, comment: str) -> None:
        (host, port), (other, other_port) = (self._client, self._server) if from_client else (self._server, self._client)
        part = tcp.TCP(
            sport=port, dport=other_port, seq=self._next[from_client], ack=self._next[not from_client] if flags & tcp.TH_ACK else 0,
            flags=flags, win=65535, data=data,
        )
        if len(host) == 4:
            packet = bytes(ip.IP(src=host, dst=other, p=ip.IP_PROTO_TCP, data=part, len=40 + len(data)))
        else:
            packet = bytes(ip6.IP6(src=host, dst=other, nxt=ip.IP_PROTO_TCP, plen=20 + len(data), data=part, hlim=64))
        missing = size - len(data)
        if missing:
            packet = _with_size(packet, missing)
        self._next[from_client] = (self._next[from_client] + size) % _ALL
        block = pcapng.EnhancedPacketBlockLE(ts_high=at_ns // 1000 >> 32, ts_low=at_ns // 1000 & 0xFFFFFFFF, pkt_data=packet)
        block.opts = []
        if comment:
            note = pcapng.PcapngOptionLE(code=pcapng.PCAPNG_OPT_COMMENT, text=comment)
            block.opts = [note, pcapng.PcapngOptionLE(code=pcapng.PCAPNG_OPT_ENDOFOPT)]
        made = bytes(block)
        write(made[:_SIZE_AT] + (len(packet) + missing).to_bytes(4, "little") + made[_SIZE_AT + 4 :])


def _with_size(packet: bytes, missing: int) -> bytes:
    """An IP packet whose header says that it had this number of further bytes."""
    at = 2 if packet[0] >> 4 == 4 else 4
    packet = packet[:at] + (int.from_bytes(packet[at : at + 2], "big") + missing).to_bytes(2, "big") + packet[at + 2 :]
    if at == 2:
        head = packet[:10] + b"\0\0" + packet[12:20]
        packet = packet[:10] + dpkt.in_cksum(head).to_bytes(2, "big") + packet[12:]
    return packet
