"""The lease of a lake in an object store: one process at a time is its driver, which writes tables.

The lease is an object that says who the driver is. It is put only in place of what its writer has read (a conditional put), so one of
several who want it gets it. The driver renews it every `BEAT_S`. Who wants it looks whether it changes, by the clock of its own machine
alone: clocks of others do not matter. A lease that does not change for `LOST_S` is that of a dead driver and is taken over.

A driver that was only slow notices that before it puts, deletes or commits anything, and ends. What it may have begun to put does no harm:
commits of bronze and of Delta are conditional puts too, and files that no log names are removed only when they are old (`Store.unused`).
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from klamm.pipeline.lake.folder import CHECKPOINTS, PipelineFailed
from klamm.pipeline.lake.store import DRIVER, ObjectStore

log = logging.getLogger(__name__)

BEAT_S = 4.0
LOST_S = 20.0
"""A driver may be slow for this time, or its store away."""
PARTING_S = 5.0
"""A driver that ends waits for its last renewal for this time."""


@contextmanager
def held(url: str) -> Iterator[str]:
    """This process is the driver of a lake meanwhile. Raises PipelineFailed if another one is, or if the store is not fit for a lake."""
    lease = Lease(ObjectStore(url))
    lease.acquire()
    try:
        yield url
    finally:
        lease.release()


class Lease:
    """The lease of one lake, for one process."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._own = {
            "token": secrets.token_hex(8), "host": socket.gethostname(), "pid": os.getpid(), "machine": _machine(),
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        self._beats = 0
        self._stamp: str | None = None
        self._renewed = 0.0
        self._lost: str | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_all_the_time, name="lease", daemon=True)

    def acquire(self, wait_s: float = LOST_S) -> None:
        """Become the driver. It takes `wait_s` if a driver died on another machine. Raises PipelineFailed if one works."""
        probe(self._store)
        first, began = None, time.monotonic()
        while True:
            stamp, holder = self._read()
            if holder is not None and first is None:
                first, began = stamp, time.monotonic()
            is_own = holder is not None and holder["token"] == self._own["token"]  # the response to its put was lost
            if holder is not None and not is_own and stamp != first:
                raise PipelineFailed(f"{self._store}: another process of the pipeline writes its tables: {_who(holder)}")
            if holder is None or is_own or _is_dead(holder) or time.monotonic() - began >= wait_s:
                if self._put(stamp):
                    break
            else:
                time.sleep(min(0.5, wait_s / 10))
        self._store.guards[str(self._store)] = self.assure
        self._thread.start()

    def release(self) -> None:
        """Let others be the driver. If the store is away, a command that ends does not wait for it: the lease is taken over later."""
        self._stop.set()
        self._thread.join(PARTING_S)
        self._store.guards.pop(str(self._store), None)
        with suppress(PipelineFailed):
            if self._lost is None and not self._thread.is_alive():
                self._store.swap(DRIVER, b"{}", self._stamp)

    def assure(self) -> None:
        """Raise PipelineFailed if another process is the driver now."""
        if self._lost is None and _clock() - self._renewed > LOST_S / 2:
            self.renew()
        if self._lost is not None:
            raise PipelineFailed(f"{self._store}: {self._lost}; what is missing is made by the next klamm pipeline run")

    def renew(self) -> None:
        """Show that this driver is alive."""
        with self._lock:
            if self._lost is not None or self._put(self._stamp):
                return
            stamp, holder = self._read()  # a request without a response may have been done
            if holder is None or holder["token"] != self._own["token"] or not self._put(stamp):
                self._lost = f"another process took over while this one did not answer: {_who(holder) if holder else 'it has ended'}"

    def _put(self, stamp: str | None) -> bool:
        self._beats += 1
        began = _clock()
        new = self._store.swap(DRIVER, json.dumps(self._own | {"beats": self._beats}).encode(), stamp)
        if new is not None:
            self._stamp, self._renewed = new, began
        return new is not None

    def _read(self) -> tuple[str | None, dict[str, Any] | None]:
        """The stamp of the lease and who has it; None if nobody does."""
        found = self._store.stamped(DRIVER)
        if found is None:
            return None, None
        return found[1], json.loads(found[0]) or None

    def _renew_all_the_time(self) -> None:
        while not self._stop.wait(BEAT_S):
            try:
                self.renew()
            except PipelineFailed as problem:  # a store that is away now: the driver notices it itself
                log.warning("the lease of the lake is not renewed: %s", problem)


def probe(store: ObjectStore) -> None:
    """Raise PipelineFailed if a store accepts conditional puts and ignores their condition, or cannot be written."""
    name = f"{CHECKPOINTS}/probe-{secrets.token_hex(8)}"
    stamp = store.swap(name, b"1", None)
    if stamp is None:  # a repeated request finds what it has put
        found = store.stamped(name)
        stamp = None if found is None or found[0] != b"1" else found[1]
    is_fit = stamp is not None and store.swap(name, b"2", None) is None
    is_fit = is_fit and store.swap(name, b"3", stamp) is not None and store.swap(name, b"4", stamp) is None and store.read(name) == b"3"
    store.delete(name)
    if not is_fit:
        raise PipelineFailed(f"{store}: this object store ignores If-None-Match or If-Match: commits need them, rows would be lost")


def _clock() -> float:
    """Seconds, also those in which this machine sleeps: the next driver does not wait for it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _machine() -> str:
    """What only the processes that see the same processes have in common."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    return ""


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process is known to be dead: it ran on this machine."""
    if not holder["machine"] or holder["machine"] != _machine():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _who(holder: dict[str, Any]) -> str:
    return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
