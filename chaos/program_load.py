"""The load of `klamm chaos --client`: the user's program writes to two partitions, reads them, and reads as a member of a group.

A task that the program does not support (exit code 127) is left out. What it was told is judged by the same histories as Klamm's own load;
its frames are judged by the rules about clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from confluent_kafka import Producer

from klamm.chaos.clients.producers import SILENT, LoadHangs
from klamm.chaos.clients.programs import ProgramThread
from klamm.chaos.clients.reading import Logs, read_all
from klamm.chaos.committed import READERS
from klamm.chaos.histories.history import Sent, Verdict, judge
from klamm.chaos.kinds import PARTITIONS, RECORDS
from klamm.conform.clients.client_lab import CONSUMER_CONFIG, END, PRODUCER_CONFIG
from klamm.conform.clients.program import NOT_SUPPORTED, Told
from klamm.control.json_object import JsonObject
from klamm.pipeline.quick.check import check_quickly
from klamm.protocol.records.batch import each_header

WRITTEN = (0, 1)
"""The partitions that the program writes to."""
PAUSE_MS = 20
LOOK_S = 0.2
STUCK_S = 60.0
"""A program that tells of nothing for so long, after all faults are over, hangs."""
LONGEST = 10
"""It is also ended when that takes so many times as long as the faults: one that repeats itself tells of something for ever."""
MOST_DIGITS = 20
"""Values with more digits are not numbers of records; Python refuses to convert very long ones."""
NAME = "chaos-client"
"""The client id that the program is to have."""
NOT_FOR_PROGRAMS = ("member", "rebalance", "expire-members", "expire-offset", "unclean-cut")
"""Kinds of steps about groups and records that this load does not have."""


class NumberedSent(Sent):
    """The records of a program in one partition. Values begin with the partition here: each program counts from 0."""

    def value(self, number: int) -> str:
        return f"{self.name}/{number}"

    def partition(self, number: int) -> int:
        return int(self.name)


class ProgramLoad:
    """All processes of the program. `begin`, then `finish`, then `judged`."""

    def __init__(
        self, bootstrap: str, command: str, length_ms: int, ended: Callable[[], str | None], stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """`ended` says how the process of the cluster ended, None while it runs; `stopped`, whether somebody wants the run to end early."""
        self.bootstrap, self._ended, self._stopped = bootstrap, ended, stopped
        self._longest_s = STUCK_S + LONGEST * length_ms / 1000
        self.records = max(1, length_ms // PAUSE_MS)
        common = {
            "BOOTSTRAP": bootstrap, "TOPIC": RECORDS, "GROUP": READERS, "RECORDS": str(self.records), "PAUSE_MS": str(PAUSE_MS),
            "OFFSET": "0", "SIZE": "0", "TRANSACTIONS": "1", "END": "commit", "CASE": "chaos",
        }

        def program(name: str, task: str, partition: int = 0) -> ProgramThread:
            configs = {"client.id": NAME, "request.timeout.ms": "10000"} | (PRODUCER_CONFIG if task == "produce" else CONSUMER_CONFIG)
            config = "\n".join(f"{key}={value}" for key, value in configs.items())
            return ProgramThread(name, command, common | {"TESTCASE": task, "PARTITION": str(partition), "CONFIG": config})

        self.producers = [program(f"the producer of partition {p}", "produce", p) for p in WRITTEN]
        self.readers = [program(f"the reader of partition {p}", "consume", p) for p in WRITTEN]
        self.member = program("the member of the group", "group")
        self._logs: Logs = {}
        self._cut: list[ProgramThread] = []
        """Producers that were ended because the run is to end early."""

    @property
    def _all(self) -> list[ProgramThread]:
        return [*self.producers, *self.readers, self.member]

    def begin(self) -> None:
        """Start all processes."""
        for each in self._all:
            each.start()

    def join(self, _group: str) -> NoReturn:
        """The program has one member."""
        raise LoadHangs("no other member of the program joins")

    def leave(self, _member: object) -> NoReturn:
        """No member leaves."""
        raise LoadHangs("no member of the program leaves")

    def finish(self) -> list[str]:
        """Wait for the producers, or end them if the run is to end early; then until all others have read everything. Raises LoadHangs."""
        self.end_producers()
        self._logs = read_all(self.bootstrap, RECORDS, PARTITIONS)
        wanted = sum(map(len, self._logs.values()))
        self._wait_for([self.member], lambda: len(places_of(self.member)) >= wanted)
        marks = Producer({**SILENT, "bootstrap.servers": self.bootstrap, "client.id": "chaos"})
        for partition in WRITTEN:
            marks.produce(RECORDS, END, partition=partition)
        marks.flush(STUCK_S)
        self._wait_for([*self.readers, self.member], lambda: False)
        self.end()
        return []

    def end_producers(self) -> None:
        """Wait for the producers, or end them if the run is to end early. Raises LoadHangs."""
        self._wait_for(self.producers, self._stopped)
        self._cut = [each for each in self.producers if each.works and self._stopped()]
        for each in self._cut:
            each.ends(STUCK_S)

    def end(self) -> None:
        """End all processes that run."""
        for each in self._all:
            if each.works:
                each.ends(STUCK_S)

    def _wait_for(self, programs: list[ProgramThread], enough: Callable[[], bool]) -> None:
        """Until they have ended, or it is enough, or they hang. Raises LoadHangs if the cluster has ended."""
        begun = time.monotonic()
        while any(each.works and not self._hangs(each, begun) for each in programs) and not enough():
            if (said := self._ended()) is not None:
                raise LoadHangs(said)
            time.sleep(LOOK_S)

    def _hangs(self, program: ProgramThread, begun: float) -> bool:
        now = time.monotonic()
        return now >= min(max(begun, program.progress_s) + STUCK_S, begun + self._longest_s)

    def counts(self) -> JsonObject:
        """Numbers for the summary."""
        read = sum(len(told_of(each)) for each in (*self.readers, self.member))
        left_out = sorted(each.name for each in self._all if each.code == NOT_SUPPORTED)
        return {"delivered": read, "not_supported": left_out, "longest_working_unavailability_s": 0.0}

    def judged(self, data: Path, allow_loss: bool) -> tuple[Verdict, dict[str, list[str]]]:
        """The counts of what the producers were told, and all that must not be; see `judgement.judged`. `data` has the brokers' logs."""
        logs = {partition: [(offset, named(partition, value)) for offset, value in log] for partition, log in self._logs.items()}
        sent = [_sent(each, p, self.records, _epochs(data, p)) for p, each in zip(WRITTEN, self.producers, strict=True)]
        along = {
            p: [(each.offset, named(p, each.value)) for each in told_of(reader) if each.value != END]
            for p, reader in zip(WRITTEN, self.readers, strict=True) if reader.code == 0
        }
        verdict = judge(sent, logs, along)
        faults = {} if allow_loss else dict(verdict.faults)
        if client := [fault for each in self._all if each.code != NOT_SUPPORTED for fault in each.faults(each in self._cut)]:
            faults["client"] = client
        if all(each.code == NOT_SUPPORTED for each in self._all):
            faults["client"] = ["the program supports none of the tasks produce, consume and group (exit code 127)"]
        told = [(each.name, record) for each in self.producers for record in told_of(each)]
        if strange := [f"{name} was told of {record.value!r}" for name, record in told if not 0 <= number(record) < self.records]:
            faults["strange"] = [*faults.get("strange", []), *strange[:10]]
        if self.member.code == 0 and not allow_loss:
            read = places_of(self.member)
            unread = [f"{value} at {p}/{o}" for p, log in logs.items() for o, value in log if (p, o) not in read]
            faults |= {"group misread": [f"{len(unread)} records were given to no member, the first is {unread[0]}"]} if unread else {}
        return verdict, faults


def told_of(program: ProgramThread) -> list[Told]:
    """The records that it told of."""
    return [] if program.program is None else program.program.told


def places_of(program: ProgramThread) -> set[tuple[int, int]]:
    """Partitions and offsets of those."""
    return {(each.partition, each.offset) for each in told_of(program)}


def named(partition: int, value: str) -> str:
    """A value as it is compared: with its partition, without padding."""
    return f"{partition}/{value.rstrip('.')}"


def number(told: Told) -> int:
    """The number of a record; -1 if the value is none."""
    text = told.value.rstrip(".")
    return int(text) if len(text) < MOST_DIGITS and text.isascii() and text.isdecimal() else -1


def _sent(program: ProgramThread, partition: int, count: int, epochs: int) -> Sent:
    offsets = {number(told): told.offset for told in told_of(program) if 0 <= number(told) < count}
    return NumberedSent(str(partition), PARTITIONS, idempotent=True, count=count, offsets=offsets, epochs=epochs)


def _epochs(data: Path, partition: int) -> int:
    """How many producer ids and epochs the batches of a partition have."""
    files = data.rglob(f"{RECORDS}-{partition}/*.log")
    return len({(header.producer_id, header.producer_epoch) for file in files for _, header in each_header(file.read_bytes())})


def frame_faults(lake: Path) -> dict[str, list[str]]:
    """What the rules about clients say of the frames of the program: rule → sentences."""
    checked = check_quickly(lake)
    found: dict[str, list[str]] = {}
    for verdict in checked.judgement.verdicts:
        if verdict.severity == "warn" and f"client {NAME}" in verdict.detail:
            lines = found.setdefault(f"{verdict.rule} {checked.rules[verdict.rule].statement}", [])
            lines += [verdict.detail, *checked.evidence(verdict)] if not lines else [verdict.detail]
    return found
