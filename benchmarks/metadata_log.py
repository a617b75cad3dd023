"""The metadata log without a cluster: what a snapshot, its replay and an append cost (controller 25.1).

    python -m klamm.benchmarks.metadata_log [--partitions 100000] [--rounds 5]

Partitions have three replicas on twelve brokers, in topics of a hundred. `alike`: states as after a fail-over, many of them the same
object; `distinct`: every partition has a state of its own, as after a long life. Times are the best of the rounds, in milliseconds of CPU
time: `load` is what reads cost at fail-over, `begin` the start of the log, `encode` the bytes of the whole snapshot, which are made when
somebody reads them, `replay` what a broker needs to take them. `append all` is what the log adds to a write of all states in one list,
`append singly` to one write for each state; `read` makes the bytes of these changes, once for all readers.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

from klamm.broker.metadata_view import MetadataView
from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.values import Assignment, Broker, LeaderAndIsr, StateWrite, StoredTopic, WriteOutcome
from klamm.protocol.nouns import Endpoint, TopicPartition

BROKERS, PER_TOPIC = 12, 100
ENOUGH = 1 << 30


class Bench:
    """Topics, and states of their partitions."""

    def __init__(self, partitions: int, distinct: bool) -> None:
        self.names = [f"topic-{i:05d}" for i in range(max(1, partitions // PER_TOPIC))]
        replicas = [tuple((b + k) % BROKERS for k in range(3)) for b in range(BROKERS)]
        assignments = [Assignment(each) for each in replicas]
        self.topics = [
            StoredTopic(i.to_bytes(16, "big"), {p: assignments[(i + p) % BROKERS] for p in range(PER_TOPIC)})
            for i in range(1, len(self.names) + 1)
        ]
        self.keys = [TopicPartition(name, p) for name in self.names for p in range(PER_TOPIC)]
        shared = [LeaderAndIsr(r[0], 5, r, 0, 9, 1) for r in replicas]
        self.states: list[LeaderAndIsr | None] = []
        for i, (name, p) in enumerate(self.keys):
            state = shared[(int(name[-5:]) + 1 + p) % BROKERS]
            self.states.append(state._replace(leader_epoch=i % 1000, partition_epoch=i) if distinct else state)
        self.writes = self._writes()

    def _writes(self) -> list[StateWrite]:
        """Broker 0 goes: who leads is another one, states that were the same object are again."""
        known: dict[int, LeaderAndIsr] = {}
        writes = []
        for (name, p), state in zip(self.keys, self.states, strict=True):
            assert state is not None
            after = known.get(id(state))
            if after is None:
                after = known[id(state)] = state._replace(
                    leader=state.isr[1], leader_epoch=state.leader_epoch + 1, isr=state.isr[1:], partition_epoch=state.partition_epoch + 1
                )
            writes.append(StateWrite(name, p, after, state.partition_epoch))
        return writes

    def loaded(self) -> MetadataLog:
        """A log that knows everything and has not begun."""
        log = MetadataLog(1)
        log.brokers_read({b: Broker(b, b, (Endpoint("PLAINTEXT", "host", 9092, 0),)) for b in range(BROKERS)})
        log.topics_read(self.names, self.topics)
        log.states_read(self.keys, self.states)
        return log


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def one_round(bench: Bench) -> dict[str, float]:
    """Milliseconds of each step."""
    logs: list[MetadataLog] = []
    times = {"load": timed(lambda: logs.append(bench.loaded()))}
    log = logs[0]
    times["begin"] = timed(log.began)
    times["encode"] = timed(lambda: log.read(0, ENOUGH))
    data = log.read(0, ENOUGH)
    views: list[MetadataView] = []

    def replay() -> None:
        view = MetadataView()
        view.apply(data, 1)
        views.append(view)

    times["replay"] = timed(replay)
    outcomes = [WriteOutcome.OK] * len(bench.writes)
    offset = log.high_watermark
    times["append all"] = timed(lambda: log.states_written(bench.writes, outcomes))
    times["read"] = timed(lambda: log.read(offset, ENOUGH))
    more = log.read(offset, ENOUGH)
    times["replay changes"] = timed(lambda: views[0].apply(more, 1))
    again = bench.loaded()
    again.began()
    one = outcomes[:1]

    def singly() -> None:
        for write in bench.writes:
            again.states_written((write,), one)

    times["append singly"] = timed(singly)
    times["MB"] = len(data) / 1e6
    return times


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    for name, distinct in (("alike", False), ("distinct", True)):
        bench = Bench(options.partitions, distinct)
        rounds = [one_round(bench) for _ in range(options.rounds)]
        best = {step: min(each[step] for each in rounds) for step in rounds[0]}
        print(f"{len(bench.keys)} partitions, {name}: " + ", ".join(f"{step} {value:.1f}" for step, value in best.items()))


if __name__ == "__main__":
    main()
