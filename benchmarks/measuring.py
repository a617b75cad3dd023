"""One scenario measured: an act, its last effect, and what the broker, ZooKeeper and the fake brokers had to do for it.

A scenario begins with an act and ends with its last effect: the last write of a state, the last frame answered by a fake broker, or the
answer to the request, whichever is latest. It counts only when the check of its outcome finds nothing missing. ZooKeeper's transactions
(a multi is one) and requests are those of all its clients between the act and the first look at the outcome; the benchmark's own
sessions add a ping now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from klamm.benchmarks.controlled_cluster import Connection, ControlledCluster, Partition
from klamm.benchmarks.processes import Failed, machine_busy_s, note
from klamm.benchmarks.stalls import Probe
from klamm.controller.values import LeaderAndIsr
from klamm.protocol import messages

LIMIT_S = 300.0
KEYS = {api.name: key for key, api in messages.APIS.items()}
Stats = dict[int, dict[str, list[float]]]
Good = Callable[[Partition, LeaderAndIsr], bool]


class Measuring:
    """Measures scenarios on one cluster; `results` are the lines."""

    def __init__(self, cluster: ControlledCluster, number: int, probing: bool = False) -> None:
        self.cluster, self.number, self._probing = cluster, number, probing
        self.results: list[dict[str, Any]] = []
        self._quiet_s = 0.4 if len(cluster.keys) <= 20_000 else 1.5

    # measuring

    def measure(
        self,
        scenario: str,
        work: int,
        act: Callable[[], float | None],
        right: Callable[[], tuple[str, float]],
        least: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        """Run `act` (it may return when it was answered), wait until `right` finds nothing missing, record.

        `right` returns what is missing and the time of the last write; it is asked when the fakes are quiet and each broker in `least` got
        at least so many states by LeaderAndIsr and by UpdateMetadata.
        """
        if not self._probing:
            self._measure(scenario, work, act, right, least or {})
            return
        with Probe(self.cluster.port, self.cluster.broker) as probe:
            self._measure(scenario, work, act, right, least or {})
        self.results[-1] |= probe.stall()
        note(f"{scenario}: {probe.stall()}")

    def _measure(
        self,
        scenario: str,
        work: int,
        act: Callable[[], float | None],
        right: Callable[[], tuple[str, float]],
        least: dict[int, tuple[int, int]],
    ) -> None:
        fakes, broker = self.cluster.fakes, self.cluster.broker
        fakes.ask("reset")
        answered: list[float | None] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                answered.append(act())
            except (Failed, OSError) as failure:
                failures.append(failure)

        before = self.cluster.counts()
        busy, cpu_at_start, began = machine_busy_s(), broker.cpu_s(), time.time()
        samples = []
        acting = threading.Thread(target=run, daemon=True)
        acting.start()
        while True:
            time.sleep(0.02)
            now = time.time()
            samples.append((now, broker.cpu_s()))
            stats = fakes.stats()
            last_frame = max(kind[3] for kinds in stats.values() for kind in kinds.values())
            if failures:
                raise Failed(f"{scenario}: {failures[0]}")
            if not broker.alive():
                raise Failed(f"{scenario}: the broker ended: {broker.tail()}")
            if not acting.is_alive() and _heard(stats, least) and now - max(last_frame, began, answered[0] or 0) > self._quiet_s:
                after = self.cluster.counts()
                missing, last_write = right()
                if not missing:
                    break
                if now - began > LIMIT_S:
                    raise Failed(f"{scenario}: {missing}")
            elif now - began > LIMIT_S:
                raise Failed(f"{scenario}: not within {LIMIT_S:.0f} s")
        end = max(last_frame, last_write, answered[0] or 0, began)
        cpu = next((used for at, used in samples if at >= end), samples[-1][1]) - cpu_at_start
        others = (machine_busy_s() - busy - (broker.cpu_s() - cpu_at_start)) / (time.time() - began)
        frames = sum(int(kind[0]) for kinds in stats.values() for kind in kinds.values())
        zk = {"zk_txns": after.txns - before.txns, "zk_requests": after.requests - before.requests}
        self.record(scenario, work, wall_s=end - began, cpu_s=cpu, frames=frames, other_cores=round(others, 2), **zk)

    def record(self, scenario: str, work: int, **values: float) -> None:
        line = {
            "target": self.cluster.target,
            "round": self.number,
            "scenario": scenario,
            "work": work,
            **{k: round(v, 4) for k, v in values.items()},
        }
        self.results.append(line)
        note(" ".join(f"{k}={v}" for k, v in line.items()))

    def settle(self, least: dict[int, tuple[int, int]] | None = None) -> None:
        """Untimed: wait until the fakes hear nothing any more, and these heard of at least so many states (and got some frame)."""
        seen, since, began = None, time.time(), time.time()
        while time.time() - since < self._quiet_s or not _heard(seen, least or {}):
            time.sleep(0.05)
            now = self.cluster.fakes.stats()
            if now != seen:
                seen, since = now, time.time()
            if time.time() - began > LIMIT_S:
                raise Failed(f"the fakes do not come to rest: {seen}")

    def right_states(
        self, good: Good, lisr: tuple[int, ...], umr: tuple[int, ...], keys: list[Partition] | None = None
    ) -> Callable[[], tuple[str, float]]:
        """The check that all states (or those of `keys`) are good and told."""

        def look() -> tuple[str, float]:
            which = self.cluster.keys if keys is None else keys
            states, last_write = self.cluster.states(keys)
            bad = [key for key, state in zip(which, states, strict=True) if not good(key, state)]
            if bad:
                return f"{len(bad)} of {len(which)} states are wrong, {bad[0]} for one", 0
            return self.cluster.fakes.not_told(zip(which, states, strict=True), lisr, umr), last_write

        return look

    # requests

    def ask(self, message: Any, version: int, judge: Callable[[Any], str]) -> Callable[[], float]:
        """An act: send one request; `judge` says what is wrong with its answer."""
        payload = self.payload(message, version)
        name = type(message).__name__.removesuffix("Request")

        def act() -> float:
            with Connection(self.cluster.port, LIMIT_S) as connection:
                connection.send(payload)
                raw = connection.receive()
            at = time.time()
            _, offset = messages.decode_response_header(KEYS[name], version, raw)
            wrong = judge(messages.decode(f"{name}Response", version, raw, offset)[0])
            if wrong:
                raise Failed(wrong)
            return at

        return act

    @staticmethod
    def payload(message: Any, version: int) -> bytes:
        name = type(message).__name__.removesuffix("Request")
        return bytes(messages.encode_request(KEYS[name], version, 1, "bench", messages.encode(message, version))[4:])

    def alter_requests(
        self, keys: list[Partition], states: list[LeaderAndIsr], isr: Callable[[Partition, LeaderAndIsr], list[int]], size: int
    ) -> dict[int, list[bytes]]:
        """AlterPartition requests by leader, `size` partitions each."""
        request = messages.AlterPartitionRequest
        by_leader: dict[int, list[tuple[Partition, LeaderAndIsr]]] = {}
        for key, state in zip(keys, states, strict=True):
            by_leader.setdefault(state.leader, []).append((key, state))
        out: dict[int, list[bytes]] = {}
        for leader, items in by_leader.items():
            for at in range(0, len(items), size):
                topics: dict[str, list[Any]] = {}
                for (topic, p), state in items[at : at + size]:
                    members = [request.BrokerState(broker_id=b, broker_epoch=-1) for b in isr((topic, p), state)]
                    topics.setdefault(topic, []).append(
                        request.PartitionData(
                            partition_index=p,
                            leader_epoch=state.leader_epoch,
                            partition_epoch=state.partition_epoch,
                            new_isr_with_epochs=members,
                        )
                    )
                named = [request.TopicData(topic_id=self.cluster.topic_ids[t], partitions=ps) for t, ps in topics.items()]
                message = request(broker_id=leader, broker_epoch=self.cluster.epochs[leader], topics=named)
                out.setdefault(leader, []).append(self.payload(message, 3))
        return out

    def send_alters(self, requests: dict[int, list[bytes]], window: int) -> float:
        """Every leader on a connection of its own with `window` requests in flight. Returns when the last answer came."""
        answers: list[bytes] = []
        failures: list[BaseException] = []

        def one(payloads: list[bytes]) -> None:
            try:
                with Connection(self.cluster.port, LIMIT_S) as connection:
                    for at, payload in enumerate(payloads):
                        connection.send(payload)
                        if at >= window - 1:
                            answers.append(connection.receive())
                    answers.extend(connection.receive() for _ in range(min(window - 1, len(payloads))))
            except (Failed, OSError) as failure:
                failures.append(failure)

        threads = [threading.Thread(target=one, args=(payloads,)) for payloads in requests.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        at = time.time()
        if failures:
            raise Failed(f"AlterPartition: {failures[0]}")
        for raw in answers:
            body = messages.decode("AlterPartitionResponse", 3, raw, 5)[0]
            codes = {body.error_code, *(p.error_code for t in body.topics for p in t.partitions)}
            if codes != {0}:
                raise Failed(f"AlterPartition answered {codes}")
        return at


def error_codes(results: list[Any]) -> str:
    """What is wrong with these results; empty when all are NONE."""
    codes = {x.error_code for x in results}
    return "" if codes == {0} else f"error codes {codes}"


def _heard(stats: Stats | None, least: dict[int, tuple[int, int]]) -> bool:
    """Each of these brokers got a frame, and so many states by LeaderAndIsr and by UpdateMetadata."""
    if stats is None:
        return False
    return all(stats[b]["umr"][0] and stats[b]["lisr"][1] >= lisr and stats[b]["umr"][1] >= umr for b, (lisr, umr) in least.items())
