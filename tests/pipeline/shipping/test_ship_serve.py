"""Journals are shipped while `klamm serve` runs, whatever the store, the shipper or the brokers do: each row is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from klamm.cli.serving.lifetime import ServedCluster
from klamm.cli.serving.shipping import shipping
from klamm.configs.definitions.types import ConfigError
from klamm.journal.reading import count_rows, node_folders, segments
from klamm.journal.segments import SEAL, SHIPPED
from klamm.pipeline.shipped import waiting
from klamm.tests.cli.running import Running, run
from klamm.tests.harness.waits import eventually, wait_for
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.object_stores import moto, versitygw
from klamm.tests.pipeline.shipping.s3_server import S3Server, s3_server

LAKE = "s3://bucket/lake"
SMALL_DISK = 'mount -t tmpfs -o size=600k tmpfs "$0" && exec "$@"'
SHIP_FROM_A_FULL_DISK = """
import sys
from pathlib import Path
from klamm.tests.cli.running import call
from klamm.tests.journal.writing import TinyJournal, simple_exchange
here, there = map(Path, sys.argv[1:])
with TinyJournal(here) as journal:
    for _ in range(3):
        simple_exchange(journal)
        journal.roll()
with (here / "other").open("wb", 0) as other:
    try:
        while True:
            other.write(bytes(1024))
    except OSError:
        pass
for _ in range(2):
    said = call("journal", "ship", here, there)
    print(said.returncode, said.stdout, said.stderr, sep="|", end="#")
"""


@pytest.fixture(params=["moto"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    """An S3 server, which the environment names."""
    with moto() if request.param == "moto" else versitygw(tmp_path / "versitygw") as url, s3_server(url) as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def serve(tmp_path: Path, zookeeper: str, chroot: str) -> Iterator[Any]:
    """Starts a cluster that journals to the folder `here` and ships; ends it and its shipper."""
    running: list[Running] = []

    def start(*arguments: object) -> Running:
        places = ("--zookeeper", zookeeper + chroot, "--journal", tmp_path / "here")
        running.append(Running(tmp_path, "serve", "--brokers", 1, "--port", 0, "--json", *places, *arguments))
        running[-1].ready()
        return running[-1]

    yield start
    for each in running:
        processes = psutil.Process(each.process.pid).children() if each.process.poll() is None else []
        each.kill()
        for process in processes:
            process.kill()


def shipper(cluster: Running) -> psutil.Process:
    """The process that ships for a cluster."""
    def look() -> psutil.Process | None:
        children = psutil.Process(cluster.process.pid).children()
        return next((one for one in children if "ship" in one.cmdline() and one.status() != psutil.STATUS_ZOMBIE), None)

    return wait_for(look, "the shipper runs")


def seal(folder: Path) -> None:
    """Let the brokers finish their segments."""
    for node in node_folders(folder):
        (node / SEAL).touch()


def _puts_more_than(server: S3Server, number: int) -> bool:
    return len(server.puts) > number


def rows(folder: Path) -> int:
    return sum(count_rows(one.path) for one in segments(folder))


def shipped(lake: Path | str) -> int:
    found = waiting(lake, ())
    assert len(found) == len({(one.run, one.batch) for one in found})
    return sum(one.rows for one in found)


def test_all_that_brokers_journaled_is_in_the_other_place_when_serve_has_ended(serve: Any, tmp_path: Path) -> None:
    cluster = serve("--ship-to", tmp_path / "there")
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert shipped(tmp_path / "there") == rows(tmp_path / "here") > 20
    assert "ship" not in cluster.stderr


def test_options_without_their_reason_are_refused(tmp_path: Path) -> None:
    for words in (["--ship-to", "s3://b/l"], ["--journal", tmp_path, "--keep-local", "1h"]):
        assert run("serve", *words).returncode == 2
    refused = run("serve", "--journal", tmp_path, "--ship-to", "s3://user:word@bucket")
    assert "without user, password" in refused.stderr


def test_a_target_without_a_journal_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"klamm\.journal\.ship\.to.*needs klamm\.journal\.dir"):
        shipping(ServedCluster(None, None), {"klamm.journal.ship.to": LAKE}.get, "INFO")  # type: ignore[arg-type]


class NothingServed:
    """A server that does nothing."""

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


async def test_a_shipper_that_cannot_be_started_is_tried_again_and_the_server_stops_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    serving = shipping(NothingServed(), {"klamm.journal.dir": tmp_path, "klamm.journal.ship.to": LAKE}.get, "INFO")
    await serving.start()
    await eventually(lambda: "cannot be started" in caplog.text, "the warning")
    assert "it is started again in 1 s" in caplog.text
    await serving.stop()
    assert "what remains is not sent" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("server", ["moto", "versitygw"], indirect=True)
def test_shippers_that_are_killed_and_requests_without_an_answer_lose_nothing_and_repeat_nothing(
    serve: Any, server: S3Server, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    cluster = serve("--ship-to", LAKE, "--keep-local", "0m")
    for fails_with in (None, 0, -1):  # answered; done without an answer; not done
        is_put = partial(_puts_more_than, server, len(server.puts))
        server.fails_with = fails_with
        seal(here)
        process = shipper(cluster)
        wait_for(is_put, "something is put", 300)
        process.kill()
        process.wait(10)
    server.fails_with = None
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert "to be sent" not in cluster.stderr
    rows_here = [row for one in segments(here) for row in range(count_rows(one.path))]
    found = waiting(LAKE, ())
    by_table = {table: max(span.last for one in found if one.table == table for span in one.spans or ()) for table in ("frames", "events")}
    assert shipped(LAKE) == max(by_table.values()) > len(rows_here), "numbers of frames and events together, from 1"


@pytest.mark.slow
def test_a_store_that_fails_is_one_line_and_what_remains_is_named_and_sent_after_the_next_start(
    serve: Any, server: S3Server, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    server.fails_with = 503
    first = serve("--ship-to", LAKE)
    seal(here)
    first.logged("segments wait in")
    first.signal(signal.SIGTERM)
    assert first.ended() == 0
    assert f"segments in {here} to be sent, the first is" in first.stderr.splitlines()[-1]
    assert sum("segments wait in" in line for line in first.stderr.splitlines()) == 1
    server.fails_with = None
    second = serve("--ship-to", LAKE)
    wait_for(lambda: waiting(LAKE, ()), "the segments of the first start are sent")
    second.signal(signal.SIGTERM)
    assert second.ended() == 0
    assert shipped(LAKE) == rows(here)
    assert len({one.run for one in waiting(LAKE, ())}) == 2


@pytest.mark.slow
def test_the_shipper_of_a_killed_serve_sends_the_rest_and_ends(serve: Any, server: S3Server, tmp_path: Path) -> None:
    cluster = serve("--ship-to", LAKE)
    process = shipper(cluster)
    wait_for(lambda: any(tmp_path.rglob("*.open")), "there is a segment")
    cluster.kill()
    process.wait(60)
    assert shipped(LAKE) == rows(tmp_path / "here") > 0


@pytest.mark.slow
def test_the_command_says_in_one_line_why_it_failed_and_what_remains(server: S3Server, tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
    server.fails_with = 403
    refused = run("journal", "ship", tmp_path, LAKE)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert "1 segment in " in line and "InvalidAccessKeyId" in line, line
    server.fails_with = None
    assert run("journal", "ship", tmp_path, LAKE).stdout == f"1 segment sent to {LAKE}\n"
    assert run("journal", "ship", tmp_path, LAKE).stdout == f"0 segments sent to {LAKE}\n"
    (node,) = node_folders(tmp_path)
    assert (node / SHIPPED).read_text() == f"frames-{1:020d}.arrows {LAKE}\n"
    os.remove(node / SHIPPED)
    assert run("journal", "ship", tmp_path, LAKE).stdout == f"1 segment sent to {LAKE}\n"
    assert shipped(LAKE) == 2




def test_a_full_disk_does_not_stop_the_shipper_and_is_one_line(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    within = ["unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, str(here)]
    if subprocess.run([*within, "true"], capture_output=True, check=False).returncode != 0:
        assert "CI" not in os.environ, "CI needs a machine on which `unshare` may mount a small disk"
        pytest.skip("nobody may mount a small disk here")
    command = [*within, sys.executable, "-c", SHIP_FROM_A_FULL_DISK, str(here), str(there)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    for said in out.split("#")[:2]:
        code, stdout, stderr = said.split("|")
        assert (code, stdout) == ("0", f"3 segments sent to {there}\n"), said
        (line,) = stderr.splitlines()
        assert line.endswith(f"{SHIPPED}: No space left on device; segments are sent, and once more after the next start"), line
    assert shipped(there) == 6
