"""Captures for tests: what passes on the loopback interface, and packets that are made."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dpkt
from dpkt import ethernet, ip, pcap, tcp

Packet = tuple[float, bytes]
CLIENT, BROKER = ("127.0.0.1", 50000), ("127.0.0.1", 9092)


@contextmanager
def captured(ports: Sequence[int]) -> Iterator[list[Packet]]:
    """The Ethernet packets with these TCP ports that pass on the loopback interface meanwhile. Needs root."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as taken:
        taken.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        taken.bind(("lo", 0))
        found: list[Packet] = []
        last = os.urandom(16)
        """The bytes of a datagram that comes after all packets."""

        def take() -> None:
            import time

            while True:
                data, (_, _, kind, *_) = taken.recvfrom(1 << 17)
                if last in data:
                    return
                if kind != socket.PACKET_OUTGOING and len(data) > 54 - 1 and {_port(data, 34), _port(data, 36)} & set(ports):
                    found.append((time.time(), data))

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield found
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                while thread.is_alive():
                    end.sendto(last, ("127.0.0.1", 9))
                    thread.join(0.2)


def _port(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def write_pcap(path: Path, packets: Sequence[Packet], link: int = 1) -> Path:
    """A file of the format pcap."""
    with path.open("wb") as file:
        writer = pcap.Writer(file, snaplen=1 << 18, linktype=link)
        for at, data in packets:
            writer.writepkt(data, at)
    return path


class Connection:
    """Packets of one connection: `says` adds what an end sends, in segments of `size` bytes."""

    def __init__(self, at: float = 1_700_000_000.0, size: int = 100, handshake: bool = True) -> None:
        self.packets: list[Packet] = []
        self._size = size
        self._at = at
        self._next = {True: 1000, False: 5000}
        if handshake:
            self._add(True, b"", tcp.TH_SYN)
            self._next[True] += 1
            self._add(False, b"", tcp.TH_SYN | tcp.TH_ACK)
            self._next[False] += 1

    def says(self, is_client: bool, data: bytes) -> None:
        """One end sends this."""
        for start in range(0, len(data), self._size):
            part = data[start : start + self._size]
            self._add(is_client, part, tcp.TH_ACK)
            self._next[is_client] += len(part)

    def ends(self) -> None:
        """Both ends close."""
        for is_client in (True, False):
            self._add(is_client, b"", tcp.TH_FIN | tcp.TH_ACK)

    def _add(self, is_client: bool, data: bytes, flags: int) -> None:
        source, target = (CLIENT, BROKER) if is_client else (BROKER, CLIENT)
        part = tcp.TCP(sport=source[1], dport=target[1], seq=self._next[is_client], ack=self._next[not is_client], flags=flags, data=data)
        packet = ip.IP(src=socket.inet_aton(source[0]), dst=socket.inet_aton(target[0]), p=6, data=part)
        self._at += 0.001
        self.packets.append((self._at, bytes(packet)))


LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "ethernet": (1, lambda data: bytes(ethernet.Ethernet(type=0x0800, data=data))),
    "vlan": (1, lambda data: bytes(12) + b"\x81\x00\x00\x05" + b"\x08\x00" + data),
    "two vlans": (1, lambda data: bytes(12) + b"\x88\xa8\x00\x07\x81\x00\x00\x05" + b"\x08\x00" + data),
    "cooked": (113, lambda data: b"\0\0\3\4\0\6" + bytes(8) + b"\x08\x00" + data),
    "cooked 2": (276, lambda data: b"\x08\x00\0\0\0\0\0\1\3\4\0\6" + bytes(8) + data),
    "loopback": (0, lambda data: b"\2\0\0\0" + data),
    "ip": (101, lambda data: data),
}
"""How a packet of IP stands in a capture: link type, and what is before it."""


def tcp_of(data: bytes) -> Any:
    """The TCP segment in an Ethernet packet."""
    return dpkt.ethernet.Ethernet(data).data.data
