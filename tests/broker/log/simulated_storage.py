"""A storage that executes commands on bytes in memory, when a test says so; and a check that a log and its files say the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from klamm.broker.log.log import Log
from klamm.broker.log.producers import ProducerStates
from klamm.broker.log.storage import (
    Append,
    Close,
    Command,
    DeleteSegments,
    EpochEntry,
    Flush,
    LoadedLog,
    LoadedSegment,
    ProducerEntry,
    ReadCommand,
    Replace,
    Roll,
    StartAt,
    StorageListener,
    Truncate,
    WriteEpochs,
    WriteSnapshot,
)
from klamm.protocol.records.batch import each_header


def empty() -> LoadedLog:
    """What is on disk of a new log."""
    return LoadedLog([LoadedSegment(0, 0, 0)], 0, 0, 0, 0, [], [])


class SimulatedStorage:
    """Files are byte arrays, by base offset. Nothing is executed before `step` or `run`."""

    directory = "simulated"

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {0: bytearray()}
        self.queue: deque[Command] = deque()
        self.epochs: tuple[EpochEntry, ...] = ()
        self.snapshots: dict[int, tuple[ProducerEntry, ...]] = {}
        self.reads = 0
        self.error: OSError | None = None
        self._listener: StorageListener | None = None
        self._cuts = 0

    def attach(self, listener: StorageListener) -> None:
        self._listener = listener

    def execute(self, command: Command) -> None:
        self.queue.append(command)
        self._cuts += isinstance(command, (Truncate, StartAt))

    async def read(self, command: ReadCommand) -> bytes | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        data = bytes(self.files[command.segment][: command.end_position])
        start = end = None
        for position, header in each_header(data, command.position):
            if header.last_offset < command.offset:
                continue
            if start is None:
                start = end = position
                most = max(command.max_bytes, header.size if command.min_one else 0)
            if header.last_offset >= command.end_offset:
                break
            end = position + header.size
        return None if start is None or end is None else data[start : min(end, start + most)]

    async def read_producers(self, offset: int, segments: Sequence[int], after_ms: int) -> list[ProducerEntry]:
        await self.drain()
        if self.error is not None:
            raise self.error
        assert [*segments] == sorted(self.files)
        latest = max((at for at in self.snapshots if at <= offset), default=-1)
        states = ProducerStates(self.snapshots.get(latest, ()))
        for segment in segments:
            data = bytes(self.files[segment])
            for position, header in each_header(data):
                if header.producer_id >= 0 and latest <= header.base_offset < offset:
                    states.take(header, data, position)
        return list(states.entries())

    async def drain(self) -> None:
        self.run()

    def run(self) -> None:
        while self.queue:
            self.step()

    def step(self) -> None:
        """Execute the next command, and report."""
        command = self.queue.popleft()
        listener = self._listener
        assert listener is not None
        if self.error is not None:
            self.queue.clear()
            listener.failed(self.error)
            return
        match command:
            case Append(segment, position, data, next_offset):
                assert len(self.files[segment]) == position, "appends are at the end"
                assert segment == max(self.files), "only the active segment grows"
                self.files[segment] += data
                if not self._cuts:
                    listener.written(next_offset)
            case Roll(base_offset, _, producers, _):
                assert base_offset not in self.files
                self.files[base_offset] = bytearray()
                if producers is not None:
                    self.snapshots[base_offset] = producers
            case Truncate(next_offset, segment, size, deleted):
                for base in deleted:
                    del self.files[base]
                assert segment == max(self.files)
                assert size <= len(self.files[segment])
                del self.files[segment][size:]
                self.snapshots = {at: states for at, states in self.snapshots.items() if at <= next_offset}
                self._cuts -= 1
                if not self._cuts:
                    listener.written(next_offset)
            case StartAt(offset, deleted):
                for base in deleted:
                    del self.files[base]
                assert not self.files
                self.snapshots = {}
                self.files[offset] = bytearray()
                self._cuts -= 1
            case DeleteSegments(segments):
                for base in segments:
                    del self.files[base]
            case WriteEpochs(entries):
                self.epochs = entries
            case Flush(offset):
                ends = [one.next_offset for one in self.queue if isinstance(one, Truncate)]
                ends += [one.offset for one in self.queue if isinstance(one, StartAt)]
                listener.flushed(min([offset, *ends]))
            case Replace(segments, base_offset, data):
                for base in segments:
                    del self.files[base]
                self.files[base_offset] = bytearray(data)
            case WriteSnapshot() | Close():
                pass

    def check(self, log: Log) -> None:
        """Everything is executed: files and log are the same."""
        assert not self.queue
        assert {segment.base_offset: segment.size for segment in log.segments} == {base: len(data) for base, data in self.files.items()}
        assert self.epochs == log.epochs.entries
        for segment in log.segments:
            at = segment.resident_from
            assert b"".join(segment.chunks) == self.files[segment.base_offset][at:]
            ends = dict(each_header(bytes(self.files[segment.base_offset])))
            for offset, position in zip(segment.index_offsets, segment.index_positions, strict=True):
                assert ends[position].last_offset == offset, "an index entry names a batch"
