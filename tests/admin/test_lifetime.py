"""A client opens nothing before its first call, and leaves nothing when it is closed, whatever was under way."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
import time
import warnings
from typing import Any

import kafka.errors
import pytest

from klamm.admin import AdminClient, AsyncAdminClient, Closed
from klamm.protocol.apis import ApiKey
from klamm.tests.admin.replies import elected
from klamm.tests.admin.scripted import HANG, ScriptedCluster, client_threads
from klamm.tests.harness.waits import eventually, wait_for


def test_nothing_is_opened_before_the_first_call(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    client = AdminClient(cluster.bootstrap)
    assert client_threads() == []
    client.close()
    assert broker.connections == 0


def test_close_ends_thread_and_connections_and_may_be_repeated(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    client = AdminClient(cluster.bootstrap, client_id="mine")
    client.describe_cluster()
    assert client_threads() == ["klamm-admin-mine"]
    assert len(broker._open) == 1
    for _ in range(3):
        client.close()
    assert client_threads() == []
    wait_for(lambda: not broker._open, "the broker's connections are closed")
    with pytest.raises(kafka.errors.IllegalStateError, match="closed"):
        client.describe_cluster()


def test_with_closes_when_the_block_raises(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    with pytest.raises(ZeroDivisionError), AdminClient(cluster.bootstrap) as client:
        client.describe_cluster()
        raise ZeroDivisionError
    assert client_threads() == []


def test_with_closes_a_subclass_by_its_own_method() -> None:
    class Counting(AdminClient):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            super().close()

    with Counting() as client:
        pass
    assert client.closed == 1


async def test_the_asyncio_client_leaves_no_thread_and_no_task(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    before = asyncio.all_tasks(), threading.active_count()
    async with AsyncAdminClient(cluster.bootstrap) as client:
        await client.describe_cluster()
    await client.close()
    wait_for(lambda: not broker._open, "the broker's connections are closed")
    with pytest.raises(Closed):
        await client.describe_cluster()
    wait_for(lambda: threading.active_count() <= before[1] + 1, "only the thread of the broker's connection may still end")
    assert asyncio.all_tasks() == before[0]
    assert client_threads() == []


def test_calls_under_way_fail_when_the_client_is_closed(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.ELECT_LEADERS, HANG)
    client = AdminClient(cluster.bootstrap)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            client.elect_preferred_leaders()
        except Closed as error:
            errors.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    wait_for(lambda: len(broker.bodies(ApiKey.ELECT_LEADERS)) == 4, "four elections are under way")
    begun = time.monotonic()
    closers = [threading.Thread(target=client.close) for _ in range(3)]
    for thread in closers:
        thread.start()
    for thread in (*closers, *callers):
        thread.join(20)
    assert time.monotonic() - begun < 5
    assert len(errors) == 4


@pytest.mark.parametrize("stage", ["connecting", "handshake", "waiting for a controller"])
def test_close_ends_calls_in_every_stage(cluster: ScriptedCluster, stage: str) -> None:
    security: Any = {"security_protocol": "SSL"} if stage == "handshake" else {}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        servers = f"127.0.0.1:{listener.getsockname()[1]}"
        if stage == "waiting for a controller":
            cluster.add(1)
            cluster.controller_id = -1
            servers = cluster.bootstrap
        client = AdminClient(servers, **security)
        errors: list[BaseException] = []

        def call() -> None:
            try:
                client.elect_preferred_leaders()
            except Closed as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        if stage == "waiting for a controller":
            wait_for(lambda: cluster.brokers[1].keys() >= {ApiKey.METADATA}, "the client looks for the controller")
        else:
            listener.accept()[0].recv(1)
        client.close()
        caller.join(20)
        assert len(errors) == 1


async def test_a_cancelled_task_ends_its_call_and_its_connection(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.ELECT_LEADERS, HANG, elected())
    async with AsyncAdminClient(cluster.bootstrap) as client:
        task = asyncio.create_task(client.elect_preferred_leaders())
        await eventually(lambda: broker.bodies(ApiKey.ELECT_LEADERS), "the election is under way")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        running = client._io._running
        assert running is not None
        await eventually(lambda: not running.calls and not running.session._connections._open, "call and connection have ended")
        (await client.elect_preferred_leaders([("a", 0)])).all()


def test_an_interrupt_ends_the_call(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.ELECT_LEADERS, HANG)
    with AdminClient(cluster.bootstrap) as client:

        def interrupted(_self: object, _timeout: object = None) -> None:
            wait_for(lambda: broker.bodies(ApiKey.ELECT_LEADERS), "the election is under way")
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("concurrent.futures.Future.result", interrupted)
            client.elect_preferred_leaders()
        running = client._inner._io._running
        assert running is not None
        wait_for(lambda: not running.calls, "the call has ended")


def test_a_client_may_be_used_from_many_threads_at_once(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.ELECT_LEADERS, elected())
    failures: list[BaseException] = []
    with AdminClient(cluster.bootstrap) as client:

        def work(number: int) -> None:
            try:
                for _ in range(20):
                    assert client.elect_preferred_leaders([("a", number)]).partitions() == {("a", number)}
                    assert client.describe_cluster().cluster_id == "scripted"
            except (AssertionError, kafka.errors.KafkaError) as error:
                failures.append(error)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
    assert failures == []
    assert broker.connections <= 8


def test_no_socket_is_left_to_the_garbage_collector(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(3):
            with AdminClient(cluster.bootstrap) as client:
                client.describe_cluster()
        broker.on(ApiKey.METADATA, HANG)
        with AdminClient(cluster.bootstrap) as client, pytest.raises(kafka.errors.KafkaTimeoutError):
            client.describe_cluster(timeout_ms=100)
        del client
        gc.collect()
    assert [str(warning.message) for warning in caught if "socket" in str(warning.message)] == []


def test_closing_a_client_logs_no_error(cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.add(1, 2)
    with AdminClient(cluster.bootstrap) as client:
        client.describe_cluster()
        client.supports(43)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_name_service_that_hangs_ends_neither_the_deadline_nor_other_calls(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(1)
    release = threading.Event()
    real = socket.getaddrinfo

    def slow(*arguments: Any, **named: Any) -> Any:
        assert release.wait(20)
        return real(*arguments, **named)

    with AdminClient(cluster.bootstrap) as client:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        begun = time.monotonic()
        try:
            with pytest.raises(kafka.errors.KafkaTimeoutError, match="200 ms"):
                client.describe_cluster(timeout_ms=200)
            assert time.monotonic() - begun >= 0.2
            assert client._inner._io._running is not None
            wait_for(lambda: not client._inner._io._running.calls, "the call has ended")
        finally:
            release.set()


def test_two_clients_do_not_disturb_each_other(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    with AdminClient(cluster.bootstrap, client_id="one") as one, AdminClient(cluster.bootstrap, client_id="two") as two:
        one.describe_cluster()
        two.describe_cluster()
        one.close()
        assert two.describe_cluster().cluster_id == "scripted"
