"""Lakes on two S3 servers, moto's and versitygw: they have the rows of a lake in a folder, whatever happens to driver and store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from klamm.pipeline.check import check
from klamm.pipeline.compact import compact, purge
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.access import lease
from klamm.pipeline.lake.access.driver import written
from klamm.pipeline.lake.access.lease import Lease
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.store import ObjectStore, Store
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES
from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.report.source import source
from klamm.pipeline.retention import retain
from klamm.pipeline.run import RunOutcome, run
from klamm.tests.pipeline.journals import Silent, no_session, write
from klamm.tests.pipeline.object_stores import BUCKET, SECRET, StoreProxy, content, moto, ship, use, versitygw

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def moto_server() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def set_variable(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets a variable of the driver, and of its workers, which may have been started before."""

    def set_both(name: str, value: str) -> None:
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)

    return set_both


@pytest.fixture(params=["moto", "versitygw"])
def server(request: pytest.FixtureRequest, tmp_path: Path, set_variable: Callable[[str, str], None]) -> Iterator[str]:
    """The URL of an S3 server, which the environment names."""
    if request.param == "moto":
        use(request.getfixturevalue("moto_server"), set_variable)
        yield request.getfixturevalue("moto_server")
    else:
        with versitygw(tmp_path / "objects") as url:
            use(url, set_variable)
            yield url


@pytest.fixture
def proxy(moto_server: str, set_variable: Callable[[str, str], None]) -> Iterator[StoreProxy]:
    """What is before moto's server; the environment names it."""
    between = StoreProxy(moto_server)
    use(between.url, set_variable)
    yield between
    between.close()


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """The address of a lake that has nothing yet."""
    return f"s3://{BUCKET}/{tmp_path.name}/a=b c"


@pytest.fixture
def folder(tmp_path: Path, spark: Any) -> Path:
    """A lake in a folder: two runs with frames that do not decode, brought up to date."""
    for name, node in (("r", 1), ("r", 2), ("a: b%20", 1)):
        with write(tmp_path / "lake", name, node, raw=1):
            pass
    run(tmp_path / "lake", lambda: spark, Silent(), gold=False, local_rows=0)
    return tmp_path / "lake"


def brought_up(spark: Any, lake: str) -> RunOutcome:
    return run(lake, lambda: spark, Silent(), gold=False, local_rows=0)


def test_a_lake_of_objects_has_the_rows_of_a_folder_and_is_compacted_and_shortened_like_one(
    spark: Any, server: str, folder: Path, lake: str
) -> None:
    ship(folder, lake, server)
    outcome = brought_up(spark, lake)
    assert outcome.rows == run(folder, no_session, Silent(), gold=False).rows and content(lake) == content(folder)
    with write(folder, "r", 3):
        pass
    ship(folder, lake, server)
    assert [run(one, lambda: spark, Silent(), gold=False, local_rows=0).segments for one in (folder, lake)] == [2, 2]
    again = run(lake, no_session, Silent(), gold=False)
    assert again.segments == 0 and content(lake) == content(folder)

    with written(lake):
        assert {one.table for one in compact(lake)} >= {MESSAGES.path, EVENT_TABLE.path}
    assert content(lake) == content(folder)
    arrow = DeltaTable(f"{lake}/{MESSAGES.path}", storage_options=ObjectStore(lake).options).to_pyarrow_table()
    assert arrow.num_rows == outcome.rows["messages"] + 6
    for one in (folder, lake):
        with written(one):
            assert retain(one, Commits(one), None, ["r"]).rows == {"frames": 20, "events": 3}
    assert content(lake) == content(folder) and run(lake, no_session, Silent(), gold=False).segments == 0
    assert {name.split("/")[1] for name in Store(lake).names("journal")} == {"run=a: b%20"}
    with written(lake):
        assert purge(lake) == 2
    assert content(lake) == content(folder)


def test_gold_and_verdicts_of_a_lake_of_objects_are_those_of_a_folder(spark: Any, server: str, folder: Path, lake: str) -> None:
    for one in (folder, lake):
        ship(folder, lake, server)
        run(one, lambda: spark, Silent(), local_rows=0)
    assert content(lake) == content(folder)
    here, there = (check(one, no_session) for one in (folder, lake))
    assert (here.judgement, here.lines, here.quarantined) == (there.judgement, there.lines, there.quarantined)
    assert check_quickly(lake).judgement == check_quickly(folder).judgement
    with source(lake, "r") as given:
        assert given.engine == "from the tables of the lake" and given.tables.rows(MESSAGES) > 0


def test_a_driver_that_is_killed_at_any_commit_leaves_a_lake_that_the_next_one_completes(
    spark: Any, moto_server: str, folder: Path, lake: str, set_variable: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(moto_server, set_variable)
    monkeypatch.setattr(lease, "LOST_S", 0.1)
    monkeypatch.setattr(lease.Lease.acquire, "__defaults__", (0.1,))
    whole, commits = content(folder), 0
    while True:
        one = f"{lake}/{commits}"
        ship(folder, one, moto_server)
        is_dead = killed(spark, one, commits + 1, behind=commits % 2 == 1, monkeypatch=monkeypatch)
        if not is_dead:
            break
        brought_up(spark, one)
        assert content(one) == whole, f"killed at commit {commits + 1}"
        commits += 1
    assert commits == 9, "six commits of Delta, one of bronze, what is folded, and the layout"


def killed(spark: Any, lake: str, number: int, *, behind: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Bring a lake up by a driver that dies before the commit of this number, or behind it, and leaves its lease; False if it has fewer."""
    done = 0

    class Died(BaseException):
        pass

    def counted(commit: Callable[..., Any]) -> Callable[..., Any]:
        def or_dying(*arguments: Any) -> Any:
            nonlocal done
            done += 1
            if done == number and not behind:
                raise Died
            result = commit(*arguments)
            if done == number:
                raise Died
            return result

        return or_dying

    def stays(self: Lease) -> None:
        self._stop.set()
        self._thread.join()
        ObjectStore.guards.clear()

    with monkeypatch.context() as patched:
        for owner, name in ((delta_log, "_write"), (ObjectStore, "put"), (ObjectStore, "put_new")):
            patched.setattr(owner, name, counted(getattr(owner, name)))
        patched.setattr(Lease, "release", stays)
        try:
            brought_up(spark, lake)
        except Died:
            return True
    return False


@pytest.mark.parametrize("how", ["away", "busy"])
def test_a_store_that_is_away_for_a_while_is_waited_for_and_one_that_stays_away_is_one_line(
    spark: Any, moto_server: str, proxy: StoreProxy, folder: Path, lake: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    ship(folder, lake, moto_server)
    write_log, done = delta_log._write, 0

    def leave() -> None:
        if how == "away":
            proxy.away()
        else:
            proxy.is_busy = True

    def during(*arguments: Any, stays: bool = False) -> None:
        nonlocal done
        done += 1
        if done == 4:
            leave()
            threading.Thread(target=None if stays else back_after_some_requests, daemon=True).start()
        write_log(*arguments)

    def back_after_some_requests() -> None:
        while proxy.refused < 5:
            threading.Event().wait(0.05)
        proxy.back()

    with monkeypatch.context() as patched:
        patched.setattr(delta_log, "_write", lambda *arguments: during(*arguments, stays=True))
        patched.setattr(ObjectStore, "patience", timedelta(seconds=2))
        with pytest.raises(PipelineFailed) as caught:
            brought_up(spark, lake)
    assert "\n" not in str(caught.value) and SECRET not in str(caught.value) and "s3://" in str(caught.value)
    proxy.back()
    done, proxy.refused = 0, 0
    monkeypatch.setattr(delta_log, "_write", during)
    monkeypatch.setattr(lease.Lease.acquire, "__defaults__", (0.1,))
    brought_up(spark, lake)
    assert content(lake) == content(folder)


def test_what_another_program_writes_into_a_table_is_named(folder: Path) -> None:
    rows = DeltaTable(folder / MESSAGES.path).to_pyarrow_table()
    write_deltalake(folder / MESSAGES.path, rows, mode="append")
    with pytest.raises(PipelineFailed, match=r"silver/messages/part-\S+ was not written by Klamm, and others may only read"):
        delta_log.entries(folder, MESSAGES.path)


@pytest.mark.parametrize(("variables", "text"), [
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key is wrong: look at AWS_SECRET_ACCESS_KEY"),
    ({"AWS_ACCESS_KEY_ID": "wrong"}, "the store refuses"),
])
def test_wrong_credentials_are_one_line_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str
) -> None:
    with versitygw(tmp_path / "objects") as url:
        use(url, monkeypatch.setenv)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        told = refusal(lambda: lease.probe(ObjectStore("s3://bucket/lake")))
    assert told.startswith(f"s3://bucket/lake: {text}") and "\n" not in told and "wrong/" not in told


def test_a_bucket_that_is_not_there_is_one_line(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(moto_server, monkeypatch.setenv)
    told = "s3://none/lake: there is no such bucket (NoSuchBucket for {})"
    assert refusal(lambda: lease.probe(ObjectStore("s3://none/lake"))) == told.format("PUT")
    assert refusal(lambda: run("s3://none/lake", no_session, Silent())) == told.format("GET")


def refusal(ask: Callable[[], Any]) -> str:
    with pytest.raises(PipelineFailed) as caught:
        ask()
    return str(caught.value)
