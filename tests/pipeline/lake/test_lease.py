"""The lease of a lake in an object store, and the store itself: on obstore's store in memory, which has conditional puts."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.pipeline.lake.access import lease
from klamm.pipeline.lake.access.lease import Lease, probe
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.store import DRIVER, ObjectStore, Store


@pytest.fixture
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore(f"memory:///{request.node.name}")


@pytest.fixture
def first(store: ObjectStore) -> Iterator[Lease]:
    """The lease of a driver."""
    held = Lease(store)
    held.acquire(0)
    yield held
    held.release()


@pytest.fixture(params=["folder", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path if request.param == "folder" else f"memory:///{request.node.name}")


def test_the_place_of_a_lake_has_what_was_put(place: Store) -> None:
    assert place.read("a/b") is None and not place.has("a") and place.size("a/b") is None
    for data in (b"old", b""):
        place.put("a/b", data)
        assert place.read("a/b") == data and place.size("a/b") == len(data)
    for name in ("a/c.json", "a/d/e", "ab"):
        place.put(name, b"{}")
    assert place.has("a") and place.has("ab") and place.names("a") == ["a/b", "a/c.json", "a/d/e"]
    assert place.names("a", ".json") == ["a/c.json"] and place.folders("a") == ["a/d"]
    assert place.sizes("a", ["a/b", "a/none"]) == {"a/b": 0, "a/none": None}
    file = place.create("a/new")
    file.sink.write(b"12345")
    assert file.complete() == 5 and place.read("a/new") == place.local("a/new").read_bytes() == b"12345"
    place.delete_files(["a/b", "a/none"])
    for _ in range(2):
        place.delete("a")
    assert place.read("ab") == b"{}" and not place.has("a")


def test_a_store_that_refuses_to_delete_what_is_gone_deletes_the_others(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    for name in ("a/b", "a/c"):
        store.put(name, b"")
    store.delete_files(["a/none", "a/b"])
    assert store.names("") == ["a/c"]


def test_what_an_object_store_lists_is_not_the_clock_of_this_machine(store: ObjectStore) -> None:
    store.put("table/new", b"")
    assert store.names("table") == ["table/new"] and store.unused("table") == []
    assert pickle.loads(pickle.dumps(store)).names("table") == ["table/new"]


def test_what_is_new_is_put_once_and_the_same_content_again_is_the_repeat_of_a_request(store: ObjectStore) -> None:
    assert store.put_new("commit", b"1") and store.put_new("commit", b"1") and not store.put_new("commit", b"2")
    assert store.read("commit") == b"1"


def test_of_two_drivers_the_second_is_told_who_the_first_is(store: ObjectStore, first: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: first.renew())
    with pytest.raises(PipelineFailed, match=rf"writes its tables: process [0-9]+ on {socket.gethostname()}, since 20"):
        Lease(store).acquire()
    first.assure()


def test_a_driver_that_is_dead_on_this_machine_is_followed_at_once(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    died = Lease(store)
    died._own["pid"] = 2**22 + 1  # there is no such process
    assert died._put(None)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waited"))
    second = Lease(store)
    second.acquire()
    second.release()
    assert store.read(DRIVER) == b"{}"


def test_a_driver_of_another_machine_that_does_not_answer_is_overtaken_and_can_write_nothing(store: ObjectStore) -> None:
    slow = Lease(store)
    slow._own["machine"] = "another"
    assert slow._put(None)
    second = Lease(store)
    second.acquire(0.01)
    store.guards[str(store)] = slow.assure
    slow._renewed -= lease.LOST_S
    for write in (lambda: store.put("a", b""), lambda: store.put_new("b", b""), lambda: store.delete("c")):
        with pytest.raises(PipelineFailed, match=r"another process took over while this one did not answer: process [0-9]+ on"):
            write()
    assert store.names("") == [DRIVER]
    store.guards[str(store)] = second.assure
    second.assure()
    second.release()


def test_a_driver_whose_machine_slept_asks_who_the_driver_is_before_it_writes(
    store: ObjectStore, first: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Lease(store)._put(first._stamp)
    slept, clock = lease.LOST_S, time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: clock(which) + (slept if which == time.CLOCK_BOOTTIME else 0))
    with pytest.raises(PipelineFailed, match="another process took over while this one did not answer"):
        store.put("a", b"")


def test_a_renewal_whose_response_was_lost_is_known_again(first: Lease) -> None:
    first._stamp = "of before"
    first.renew()
    first.assure()


def test_a_driver_that_has_taken_over_and_did_not_get_the_response_is_the_driver(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = Lease(store)
    died._own["machine"] = "another"
    assert died._put(None)
    swap, lost = ObjectStore.swap, list[str | None]()

    def without_response(place: ObjectStore, name: str, data: bytes, stamp: str | None) -> str | None:
        new = swap(place, name, data, stamp)
        if name == DRIVER and not lost:
            lost.append(new)
            return None
        return new

    monkeypatch.setattr(ObjectStore, "swap", without_response)
    second = Lease(store)
    second.acquire(0.01)
    second.assure()
    second.release()
    assert lost and store.read(DRIVER) == b"{}"


def test_a_driver_that_ends_does_not_wait_long_for_a_store_that_is_away(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held, asked, answered = Lease(store), threading.Event(), threading.Event()
    monkeypatch.setattr(lease, "BEAT_S", 0.01)
    monkeypatch.setattr(lease, "PARTING_S", 0.01)
    held.acquire(0)

    def away(*_: object) -> None:
        asked.set()
        answered.wait()
        raise PipelineFailed("away")

    monkeypatch.setattr(ObjectStore, "swap", away)
    asked.wait()
    held.release()
    assert not answered.is_set() and str(store) not in store.guards
    answered.set()
    held._thread.join()


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_a_store_that_ignores_conditions_is_refused_by_name_and_an_honest_one_is_not(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    probe(store)
    assert store.names("") == []
    swap = ObjectStore.swap

    def ignorant(self: ObjectStore, name: str, data: bytes, stamp: str | None) -> str | None:
        there = self.stamped(name)
        return swap(self, name, data, there and there[1] if (stamp is None) == (ignored == "If-None-Match") else stamp)

    monkeypatch.setattr(ObjectStore, "swap", ignorant)
    with pytest.raises(PipelineFailed, match="this object store ignores If-None-Match or If-Match"):
        Lease(store).acquire()
    assert store.names("") == []
