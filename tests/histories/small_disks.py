"""A small disk for a broker's logs, that a test can fill (`klamm.chaos.small_disks`), held by a process of its own.

So the disk outlives the broker's process; brokers are started inside by `nsenter`. The disk goes with its holder, also when the test
process dies.
"""

from __future__ import annotations

from pathlib import Path

from klamm.chaos import small_disks
from klamm.tests.harness.kafka import OwnedBroker, wait_for
from klamm.tests.harness.members import Members
from klamm.zk.embedded.owned_process import OwnedProcess


class SmallDisk:
    """`folder` is the mount point; only commands that are run `inside` see the disk."""

    def __init__(self, folder: Path, size: int) -> None:
        """`size` in bytes. Fails where nobody may mount a disk."""
        self.folder, self._size = folder, size
        folder.mkdir(parents=True)
        output = folder.with_name(f"{folder.name}.holder")
        output.touch()
        self._holder = OwnedProcess(small_disks.in_namespace([folder], size, ["sh", "-c", "echo mounted && exec sleep infinity"]), output)
        wait_for(lambda: self._holder.poll() is not None or "mounted" in output.read_text(), f"a disk is mounted on {folder}")
        assert self._holder.poll() is None, f"no small disk may be mounted here: {output.read_text()}"

    def inside(self, command: list[str]) -> list[str]:
        """The command that runs `command` where the disk is seen, as the same process."""
        return small_disks.inside(self._holder.pid, command)

    def fill(self) -> None:
        """No byte is free afterwards."""
        small_disks.fill(self._holder.pid, self.folder, self._size)

    def free(self) -> None:
        """What `fill` took is free again."""
        small_disks.free(self._holder.pid, self.folder)

    def close(self) -> None:
        self._holder.stop()


class SmallDiskBroker(OwnedBroker):
    """A broker with two log directories: `data` on the machine's disk, `small/data` on a small disk of its own."""

    disk: SmallDisk

    def command(self, file: Path) -> list[str]:
        return self.disk.inside(super().command(file))


class SmallDiskMembers(Members):
    """Members whose Klamm brokers have a small disk each, of `disk_bytes`."""

    disk_bytes = 64 << 20

    def klamm(self, *ids: int) -> None:
        for broker_id in ids:
            home = self.folder / f"broker-{broker_id}"
            settings = {**self.settings_of(broker_id), "log_dirs": f"{home / 'data'},{home / 'small' / 'data'}"}
            broker = SmallDiskBroker(self.tree, self.folder, broker_id, **settings)
            broker.disk = SmallDisk(home / "small", self.disk_bytes)
            self.brokers[broker_id] = broker
        self.start(*ids)

    def close(self) -> None:
        super().close()
        for disk in self.disks().values():
            disk.close()

    def disks(self) -> dict[int, SmallDisk]:
        """Small disks by broker id."""
        return {broker_id: broker.disk for broker_id, broker in self.brokers.items() if isinstance(broker, SmallDiskBroker)}
