"""The controller's own work at N partitions: klamm alone, or in turn with a real Kafka in the same run.

    python -m klamm.benchmarks.controller [--partitions 10000] [--rounds 3] [--kafka-jars DIR] [--fsync] [--stalls] [--json FILE]
        [--reassigned N] [--only-reassigning] [--metadata-log] [--journal]

One broker is the controller of N partitions with three replicas each on fake brokers that agree to everything at once, on a real ZooKeeper.
A scenario begins with an act (a node deleted, a broker gone, a request sent) and ends with its last effect: the last write of a state, the
last frame answered by a fake broker, or the answer to the request, whichever is latest. It counts only when every state in ZooKeeper is as
it must be and the fakes were told exactly these leaders and leader epochs. Wall and CPU (of the broker's process) are in seconds.
With `--metadata-log` klamm does the same in the same run with a metadata log (`registerbroker.enable`) too, which nobody fetches.
With `--journal` it does the same once more with a journal (`klamm.journal.dir`).
With `--stalls` another client asks all the time, and its longest wait is told too (see `stalls.py`); this costs some CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import tempfile
import time
from functools import partial
from typing import Any

from klamm.benchmarks.controlled_cluster import FAKES, JOURNALED, LOGGED, ControlledCluster, Partition
from klamm.benchmarks.measuring import LIMIT_S, Measuring, error_codes
from klamm.benchmarks.processes import note
from klamm.benchmarks.reassigning import reassign_move, reassign_order
from klamm.controller.values import LeaderAndIsr
from klamm.protocol import messages
from klamm.zk.embedded.server import EmbeddedZooKeeper


class Round(Measuring):
    """One pass over all scenarios on one cluster; each builds on the one before. `reassigned` partitions are reassigned at a time."""

    def __init__(self, cluster: ControlledCluster, number: int, reassigned: int, probing: bool = False) -> None:
        super().__init__(cluster, number, probing)
        self.reassigned = reassigned

    # scenarios

    def run(self, only_reassigning: bool = False) -> None:
        """All of them, or fail-over and reassignment."""
        self.failover()
        if only_reassigning:
            self.reassign()
            return
        self.record("memory_failover", 0, rss_mb=self.cluster.broker.rss_mb())
        self.broker_down(101)
        self.broker_up(101)
        self.isr_back()
        self.settle()
        self.preferred("preferred_all", None)
        self.controlled_shutdown(102)
        self.cluster.fakes.ask("reset")
        self.cluster.leave(102)
        self.settle({101: (0, 0), 103: (0, 0)})
        self.cluster.fakes.ask("reset")
        self.cluster.register(102)
        self.settle({102: (len(self.cluster.keys), len(self.cluster.keys))})
        self.isr_back()
        self.settle()
        self.preferred("preferred_1000", self.away()[:1000])
        self.alter_single()
        self.settle()
        self.create_and_delete()
        self.settle()
        self.reassign()
        self.record("memory_end", 0, rss_mb=self.cluster.broker.rss_mb())

    def reassign(self) -> None:
        """The first ones get another order of their replicas, the last ones another replica."""
        reassign_order(self, self.cluster.keys[: self.reassigned])
        self.settle()
        reassign_move(self, self.cluster.keys[-self.reassigned :])

    def failover(self) -> None:
        """`/controller` of another broker goes: until all fakes got everything."""
        c, n = self.cluster, len(self.cluster.keys)
        c.fakes.ask("forget")

        def right() -> tuple[str, float]:
            node = c.admin.client.get("/controller")[0]
            if json.loads(node)["brokerid"] != 0:
                return "not controller", 0
            return self.right_states(lambda k, s: s.leader == c.replicas[k][0], FAKES, FAKES)()[0], 0

        self.measure("failover", n, lambda: c.admin.client.delete("/controller") and None, right, dict.fromkeys(FAKES, (n, n)))

    def broker_down(self, broker: int) -> None:
        """A broker that leads a third and is in all ISRs loses its session."""
        c, n = self.cluster, len(self.cluster.keys)
        rest = tuple(b for b in FAKES if b != broker)
        right = self.right_states(lambda k, s: s.leader not in (broker, -1) and broker not in s.isr, rest, rest)
        self.measure("broker_down", n, lambda: c.leave(broker), right, dict.fromkeys(rest, (0, n)))

    def broker_up(self, broker: int) -> None:
        """It comes back: until it knows everything. Nothing is written."""
        c, n = self.cluster, len(self.cluster.keys)

        def right() -> tuple[str, float]:
            return self.right_states(lambda k, s: True, (broker,), (broker,))()[0], 0

        self.measure("broker_up", n, lambda: c.register(broker), right, {broker: (n, n)})

    def isr_back(self) -> None:
        """Leaders bring it back into all ISRs, up to 5,000 partitions a request, one request in flight for each leader."""
        c = self.cluster
        requests = self.alter_requests(c.keys, c.states()[0], lambda k, s: [*s.isr, *(b for b in c.replicas[k] if b not in s.isr)], 5000)
        right = self.right_states(lambda k, s: len(s.isr) == 3, (), FAKES)
        self.measure(
            "alter_partition_bulk", len(c.keys), lambda: self.send_alters(requests, 1), right, dict.fromkeys(FAKES, (0, len(c.keys)))
        )

    def away(self) -> list[Partition]:
        """Partitions that are not led by their preferred replica."""
        c = self.cluster
        return [k for k, s in zip(c.keys, c.states()[0], strict=True) if s.leader != c.replicas[k][0]]

    def preferred(self, scenario: str, keys: list[Partition] | None) -> None:
        """ElectLeaders of all, or of `keys`."""
        c, request = self.cluster, messages.ElectLeadersRequest
        count = len(self.away() if keys is None else keys)
        named = None
        if keys is not None:
            topics: dict[str, list[int]] = {}
            for t, p in keys:
                topics.setdefault(t, []).append(p)
            named = [request.TopicPartitions(topic=t, partitions=ps) for t, ps in topics.items()]

        def judge(answer: Any) -> str:
            codes = [p.error_code for t in answer.replica_election_results for p in t.partition_result]
            return "" if codes == [0] * count and not answer.error_code else f"ElectLeaders: {len(codes)} results, codes {set(codes)}"

        act = self.ask(request(election_type=0, topic_partitions=named, timeout_ms=int(LIMIT_S * 1000)), 2, judge)
        right = self.right_states(lambda k, s: s.leader == c.replicas[k][0], FAKES, FAKES, keys)
        self.measure(scenario, count, act, right, dict.fromkeys(FAKES, (0, count)))

    def controlled_shutdown(self, broker: int) -> None:
        """A broker that leads a third and is in all ISRs asks to leave."""
        c, n = self.cluster, len(self.cluster.keys)
        rest = tuple(b for b in FAKES if b != broker)
        message = messages.ControlledShutdownRequest(broker_id=broker, broker_epoch=c.epochs[broker])
        act = self.ask(message, 3, lambda a: f"ControlledShutdown: {a}"[:200] if a.error_code or a.remaining_partitions else "")
        right = self.right_states(lambda k, s: s.leader != broker and broker not in s.isr, rest, rest)
        self.measure("controlled_shutdown", n, act, right, dict.fromkeys(rest, (0, n)))

    def alter_single(self) -> None:
        """One partition a request, 16 in flight on one connection for each leader: shrink, then expand."""
        c = self.cluster
        keys = c.keys[: min(len(c.keys) // 2, 3000)]

        def shrunk(_: Partition, state: LeaderAndIsr) -> list[int]:
            return [b for b in state.isr if b == state.leader or b != max(x for x in state.isr if x != state.leader)]

        def full(key: Partition, state: LeaderAndIsr) -> list[int]:
            return [*state.isr, *(b for b in c.replicas[key] if b not in state.isr)]

        for scenario, isr, size in (("alter_partition_shrink_1", shrunk, 2), ("alter_partition_expand_1", full, 3)):
            requests = self.alter_requests(keys, c.states(keys)[0], isr, 1)
            right = self.right_states(partial(_has_members, size), (), FAKES, keys)
            self.measure(scenario, len(keys), partial(self.send_alters, requests, 16), right, dict.fromkeys(FAKES, (0, len(keys))))

    def create_and_delete(self) -> None:
        """N/10 partitions in topics of ten, in one request each."""
        c = self.cluster
        names = [f"made-{self.number}-{i:05d}" for i in range(max(1, len(c.keys) // 100))]
        keys = [(t, p) for t in names for p in range(10)]
        request = messages.CreateTopicsRequest
        lists = [
            request.CreatableReplicaAssignment(partition_index=p, broker_ids=[FAKES[(p + k) % 3] for k in range(3)]) for p in range(10)
        ]
        topics = [request.CreatableTopic(name=t, num_partitions=-1, replication_factor=-1, assignments=lists) for t in names]
        act = self.ask(request(topics=topics, timeout_ms=int(LIMIT_S * 1000)), 7, lambda a: error_codes(a.topics))
        self.measure(
            "create_topics",
            len(keys),
            act,
            self.right_states(lambda k, s: len(s.isr) == 3, FAKES, FAKES, keys),
            dict.fromkeys(FAKES, (0, len(keys))),
        )
        self.settle()
        deletion = messages.DeleteTopicsRequest
        named = [deletion.DeleteTopicState(name=t, topic_id=bytes(16)) for t in names]
        gone: list[float] = []
        ask = self.ask(deletion(topics=named, timeout_ms=int(LIMIT_S * 1000)), 6, lambda a: error_codes(a.responses))

        def act_and_watch() -> float:
            at = ask()
            while c.admin.client.get_children("/admin/delete_topics"):
                time.sleep(0.01)
            gone.append(time.time())
            return at

        def right() -> tuple[str, float]:
            left = set(names) & set(c.admin.client.get_children("/brokers/topics"))
            return (f"{len(left)} topics are left", 0) if left else ("", gone[0])

        self.measure("delete_topics", len(keys), act_and_watch, right)


def _has_members(size: int, _: Partition, state: LeaderAndIsr) -> bool:
    return len(state.isr) == size


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """A line each: medians of the warm rounds (of the only one, if there is no other), and those of the second target by the first."""
    stalls = f" {'stall ms':>8s} {'cpu ms':>8s}" if any("stall_ms" in r for r in results) else ""
    lines = [
        f"{'scenario':26s} {'work':>7s}"
        + "".join(f" {t + ' wall':>12s} {'cpu':>7s} {'frames':>7s}{stalls}" for t in targets)
        + (f" {'x wall':>7s} {'x cpu':>7s}" if len(targets) > 1 else "")
    ]
    for scenario in dict.fromkeys(r["scenario"] for r in results):
        line, values = f"{scenario:26s} ", []
        for i, target in enumerate(targets):
            runs = [r for r in results if (r["scenario"], r["target"]) == (scenario, target)]
            runs = [r for r in runs if r["round"] > 1] or runs
            if i == 0:
                line += f"{runs[0]['work']:7d}" if runs else " " * 7
            if not runs:
                line += f" {'-':>12s} {'':7s} {'':7s}"
            elif "rss_mb" in runs[0]:
                line += f" {statistics.median(r['rss_mb'] for r in runs):9.1f} MB {'':7s} {'':7s}"
            else:
                wall, cpu, frames = (statistics.median(r[k] for r in runs) for k in ("wall_s", "cpu_s", "frames"))
                line += f" {wall:12.3f} {cpu:7.2f} {frames:7.0f}"
                if "stall_ms" in runs[0]:
                    line += "".join(f" {max(r[k] for r in runs):8.0f}" for k in ("stall_ms", "stall_cpu_ms"))
                values.append((wall, cpu))
        if len(values) == 2:
            line += f" {values[1][0] / values[0][0]:7.1f} " + (f"{values[1][1] / values[0][1]:7.1f}" if values[0][1] else f"{'':7s}")
        lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="the first one is cold")
    parser.add_argument("--kafka-jars", help="a folder with all jars of Kafka 3.9: run it too, in turn with klamm")
    parser.add_argument("--fsync", action="store_true", help="ZooKeeper syncs to disk, as installed ones do")
    parser.add_argument("--stalls", action="store_true", help="tell how long another client has to wait meanwhile")
    parser.add_argument("--reassigned", type=int, help="how many partitions are reassigned; a tenth when it is not said")
    parser.add_argument("--only-reassigning", action="store_true", help="no scenarios but fail-over and those of reassignment")
    parser.add_argument("--without-klamm", action="store_true", help="run Kafka alone")
    parser.add_argument("--journal", action="store_true", help="run klamm with a journal too, in turn with klamm without one")
    parser.add_argument("--metadata-log", action="store_true", help="run klamm with a metadata log too, in turn with klamm without one")
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    targets = [
        *([] if options.without_klamm else ["klamm"]),
        *([LOGGED] if options.metadata_log else []),
        *([JOURNALED] if options.journal else []),
    ]
    targets += ["kafka"] if options.kafka_jars else []
    reassigned = max(1, options.partitions // 10) if options.reassigned is None else options.reassigned
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper", force_sync=options.fsync, heap_mb=1500)
        address = zookeeper.start()
        stack.callback(zookeeper.stop)
        clusters = []
        for target in targets:
            cluster = ControlledCluster(address, target, options.kafka_jars, options.partitions, folder / target)
            stack.callback(cluster.close)
            cluster.load()
            for broker in FAKES:
                cluster.register(broker)
            cluster.start()
            clusters.append(cluster)
            note(f"{target}: {len(cluster.keys)} partitions loaded, broker started, {cluster.broker.rss_mb()} MB")
        for number in range(1, options.rounds + 1):
            for cluster in clusters:
                one = Round(cluster, number, reassigned, options.stalls)
                if number > 1:
                    cluster.hold()
                    one.settle()
                    cluster.reset()
                try:
                    one.run(options.only_reassigning)
                finally:
                    results.extend(one.results)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, targets)))


if __name__ == "__main__":
    main()
