"""Trouble with what brokers keep: full disks, directories that go away, logs that move between directories, DeleteRecords, configs.

A broker whose directory failed serves from the other one until it is started again, as Kafka's do.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from klamm.chaos.clients.reading import Reading
from klamm.chaos.kinds import TOPIC_CONFIGS
from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.histories.chaos import AWAY_S, HALF, Chaos, Fault
from klamm.tests.histories.small_disks import SmallDiskMembers


class StorageFaults:
    """For brokers with two directories each; `topics` with their numbers of partitions, `along` a reader of the first one."""

    def __init__(self, members: SmallDiskMembers, topics: Mapping[str, int], along: Reading, deleted: dict[int, int]) -> None:
        """`deleted` gets the highest offset by partition up to which the deletion of records is asked for."""
        self.members, self.topics, self.along, self.deleted = members, topics, along, deleted

    def faults(self) -> dict[str, Fault]:
        """What may happen, by name."""
        return {
            "disk full": self.fill_disk,
            "directory away": self.take_directory,
            "moved between directories": self.move_logs,
            "moved between directories and killed": self.move_logs_and_kill,
            "records deleted": self.delete_records,
            "configs changed": self.change_configs,
        }

    def fill_disk(self, chaos: Chaos, broker_id: int) -> None:
        disk = self.members.disks()[broker_id]
        disk.fill()
        chaos.wait(*AWAY_S)
        disk.free()
        self._restart(chaos, broker_id)

    def take_directory(self, chaos: Chaos, broker_id: int) -> None:
        """The directory is renamed under the running broker, and is back before the next start."""
        home = self.members.brokers[broker_id].folder / "data"
        away = home.with_name("away")
        home.rename(away)
        chaos.wait(*AWAY_S)
        self.members.brokers[broker_id].kill()
        if home.exists():
            shutil.rmtree(home)
        away.rename(home)
        chaos.start(broker_id)

    def move_logs(self, chaos: Chaos, broker_id: int) -> None:
        """AlterReplicaLogDirs of some partitions; those that the broker does not have are refused."""
        home = self.members.brokers[broker_id].folder
        kind = messages.AlterReplicaLogDirsRequest
        rows = []
        for topic, count in self.topics.items():
            chosen = chaos.chance.sample(range(count), chaos.chance.randint(1, count))
            rows.append(kind.AlterReplicaLogDirTopic(name=topic, partitions=chosen))
        path = str(home / chaos.chance.choice(("data", "small/data")))
        try:
            answer = self.members.ask(kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=rows)]), 2, broker_id)
        except OSError:
            return
        chaos.done["logs told to move"] += sum(p.error_code == 0 for r in answer.results for p in r.partitions)

    def move_logs_and_kill(self, chaos: Chaos, broker_id: int) -> None:
        self.move_logs(chaos, broker_id)
        chaos.wait(0.0, 0.3)
        self.members.brokers[broker_id].kill()
        chaos.wait(*AWAY_S)
        chaos.start(broker_id)

    def delete_records(self, chaos: Chaos, broker_id: int) -> None:
        """Up to half of what has been read of some partitions."""
        topic = next(iter(self.topics))
        kind = messages.DeleteRecordsRequest
        for partition in chaos.chance.sample(range(self.topics[topic]), 2):
            row = kind.DeleteRecordsPartition(partition_index=partition, offset=len(self.along.logs[partition]) // 2)
            state = self.members.tree.state(topic, partition)
            if state is None or state.leader == -1:
                continue
            self.deleted[partition] = max(self.deleted.get(partition, 0), row.offset)  # also if no response comes: it may have happened
            try:
                ask = kind(topics=[kind.DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=1000)
                answer = self.members.ask(ask, 2, state.leader)
            except (OSError, KeyError):
                continue
            chaos.done["log starts moved"] += sum(p.error_code == 0 for t in answer.topics for p in t.partitions)

    def change_configs(self, chaos: Chaos, broker_id: int) -> None:
        names = chaos.chance.sample(sorted(TOPIC_CONFIGS), 2)
        changed = {name: chaos.chance.choice(TOPIC_CONFIGS[name]) for name in names}
        try:
            (answer,) = self.members.ask(requests.set_configs(requests.TOPIC, next(iter(self.topics)), changed), 1).responses
        except (OSError, AssertionError):
            return
        chaos.done["configs set"] += answer.error_code == 0

    def _restart(self, chaos: Chaos, broker_id: int) -> None:
        broker = self.members.brokers[broker_id]
        if chaos.chance.random() < HALF:
            broker.kill()
        else:
            broker.stop()
        chaos.start(broker_id)
