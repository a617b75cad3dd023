"""A log as a list, beside which the real one is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm.protocol.records.batch import each_header

FAR = 2**63 - 1


@dataclass
class NaiveLog:
    """What a log is, without any care for speed: (base, last, bytes) of each batch, and segments as lists of them."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def append(self, data: bytes, epoch: int) -> None:
        for position, header in each_header(data):
            if not self.epochs or self.epochs[-1][0] < epoch:
                self.epochs = [entry for entry in self.epochs if entry[1] < header.base_offset]
                self.epochs.append((epoch, header.base_offset))
            self.batches.append((header.base_offset, header.last_offset, data[position : position + header.size]))
            self.end = header.next_offset

    def truncate(self, offset: int) -> None:
        if offset < self.end:
            self.batches = [one for one in self.batches if one[1] < offset]
            self.end = offset
            self.start = min(self.start, offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]

    def starts_at(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            passed = [entry for entry in self.epochs if entry[1] <= offset]
            if passed:
                self.epochs = [(passed[-1][0], offset), *(entry for entry in self.epochs if entry[1] > offset)]

    def read(self, offset: int, max_bytes: int, end: int, min_one: bool = True) -> bytes:
        """What may be read at most, whatever segments there are."""
        given: list[bytes] = []
        for _, last, data in self.batches:
            if last < offset:
                continue
            if last >= min(end, self.end):
                break
            given.append(data)
        return b"".join(given)[: max(max_bytes, len(given[0]) if given and min_one else 0)]
