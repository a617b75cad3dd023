"""90 damages of log directories: what Apache Kafka 3.9.1 and Klamm made of copies of the same folders, and why where they differ.

Made by Kafka: one log for each damage, 720 records in 240 batches, segments of 12 KB, the recovery point at 360 after the kill. "720": the
log ends there and all of it is readable. "ends": the broker does not start. The rows of a whole directory were compared after a kill.
The decisions are proved in `test_damages.py`, `test_duplicates.py` and `test_loading.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class Damage(NamedTuple):
    """Outcomes of Kafka and of Klamm, after kill -9 and after a stop in order; "" where it was not compared."""

    what: str
    kafka_killed: str
    kafka_stopped: str
    klamm_killed: str
    klamm_stopped: str
    decision: str


DAMAGES = [
    Damage("none", "720", "720", "720", "720", ""),
    Damage(
        "active .log: last 10 bytes cut", "717", "717", "717", "717",
        "cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage(
        "active .log: payload bit of last batch flipped", "717", "720", "717", "720",
        "as Kafka: a CRC is looked at after an unclean end only",
    ),
    Damage(
        "active .log: payload bit of first batch flipped", "660", "720", "660", "720",
        "as Kafka: a CRC is looked at after an unclean end only",
    ),
    Damage(
        "active .log: payload bit in the middle flipped", "690", "720", "690", "720",
        "as Kafka: a CRC is looked at after an unclean end only",
    ),
    Damage(
        "active .log: 50 random bytes behind", "720", "720", "720", "720",
        "cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage(
        "active .log: 4096 zeros behind", "720", "ends", "720", "720",
        "goes on; cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage(
        "active .log: 5 zeros behind", "720", "720", "720", "720",
        "cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage("active .log: truncated to 0", "660", "660", "660", "660", "the line says that the log ends before its high watermark"),
    Damage("active .log removed, indexes stay", "660", "660", "660", "660", "the line says that the log ends before its high watermark"),
    Damage(
        "active .log: length of last batch 2^31-1", "717", "717", "717", "717",
        "cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage(
        "active .log: length of last batch 0", "717", "ends", "717", "717",
        "goes on; cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage(
        "active .log: length of last batch -1", "717", "ends", "717", "717",
        "goes on; cut: what is behind has no batch that can be read; the line says how many bytes",
    ),
    Damage(
        "active .log: magic of last batch 9", "720", "720", "717", "717",
        "cut: no client could read this batch, Kafka serves it as it is",
    ),
    Damage(
        "active .log: base offset of last batch 0", "ends", "3, 96 readable, error 1 at 96, times not found", "717", "717",
        "cut: offsets that go back end the log; Kafka ends, or loses all before the batch too",
    ),
    Damage(
        "active .log: base offset of last batch +1000", "1720, 720 readable", "1720, 720 readable", "1720, 720 readable",
        "1720, 720 readable",
        "as Kafka",
    ),
    Damage("active .log: last batch twice", "720", "720", "720", "720", "the second copy is cut"),
    Damage("middle .log: payload bit flipped", "720", "720", "720", "720", "as Kafka: found when the batch is read"),
    Damage(
        "middle .log: last 10 bytes cut", "720, 717 readable", "720, 717 readable", "720, 717 readable", "720, 717 readable",
        "as Kafka: closed segments are not read at a start; a fetch goes on behind the gap; compaction leaves such a log as "
        "it is",
    ),
    Damage(
        "middle .log: truncated to 0", "720, 624 readable", "720, 624 readable", "720, 624 readable", "720, 624 readable",
        "as Kafka: closed segments are not read at a start; a fetch goes on behind the gap",
    ),
    Damage(
        "middle .log removed, indexes stay", "720, 624 readable", "720, 624 readable", "720, 624 readable", "720, 624 readable",
        "the indexes that are left over are removed with a line",
    ),
    Damage(
        "middle segment removed", "720, 624 readable", "720, 624 readable", "720, 624 readable", "720, 624 readable",
        "as Kafka: closed segments are not read at a start; a fetch goes on behind the gap",
    ),
    Damage("first segment removed", "96–720", "96–720", "96–720", "96–720", "as Kafka: cannot be told from retention"),
    Damage(
        "second last .log: last batch cut out", "720, 717 readable", "720, 717 readable", "720, 717 readable", "720, 717 readable",
        "as Kafka; the indexes are built again with a line",
    ),
    Damage("second last .log: payload bit flipped", "612", "720", "612", "720", "as Kafka"),
    Damage("active .index: cut to 13 bytes", "720", "720", "720", "720", "built again from the batches; nothing is lost"),
    Damage(
        "active .index: last entry's position beyond the end", "720", "660", "720", "720",
        "built again from the batches; Kafka cuts records that are whole",
    ),
    Damage("active .index: last entry's offset 0", "720", "720", "720", "720", "as Kafka"),
    Damage(
        "active .index: positions wrong but rising (+7)", "720", "660", "720", "720",
        "built again from the batches; Kafka cuts records that are whole",
    ),
    Damage("middle .index removed", "720", "720", "720", "720", "built again from the batches; nothing is lost"),
    Damage("middle .index emptied", "720", "720", "720", "720", "as Kafka"),
    Damage("middle .index: positions wrong but rising (+7)", "720", "720", "720", "720", "as Kafka: found when it is used"),
    Damage("middle .index: random bytes", "720", "720", "720", "720", "built again from the batches; nothing is lost"),
    Damage("active .timeindex: random bytes", "720", "720", "720", "720", "built again from the batches; nothing is lost"),
    Damage(
        "middle .timeindex removed", "720, times not found", "720, times not found", "720", "720",
        "built again from the batches; Kafka leaves it empty",
    ),
    Damage("middle .timeindex: 5 bytes more", "720", "720", "720", "720", "built again from the batches; nothing is lost"),
    Damage("all indexes removed", "720", "720", "720", "720", "built again from the batches; nothing is lost"),
    Damage(
        "all .timeindex emptied", "720, times not found", "720, times not found", "720, times not found", "720, times not found",
        "as Kafka: an empty time index is a right one",
    ),
    Damage(
        "leader-epoch-checkpoint: text", "ends", "ends", "720", "720",
        "goes on: the epochs are taken from the batches, which all have theirs; nothing is lost",
    ),
    Damage(
        "leader-epoch-checkpoint empty", "720", "720", "720", "720",
        "goes on: the epochs are taken from the batches, which all have theirs; nothing is lost",
    ),
    Damage(
        "leader-epoch-checkpoint removed", "720", "720", "720", "720",
        "goes on: the epochs are taken from the batches, which all have theirs; nothing is lost",
    ),
    Damage(
        "leader-epoch-checkpoint: version 7", "ends", "ends", "720", "720",
        "goes on: the epochs are taken from the batches, which all have theirs; nothing is lost",
    ),
    Damage(
        "leader-epoch-checkpoint: says 5 rows, has 1", "ends", "ends", "720", "720",
        "goes on: the epochs are taken from the batches, which all have theirs; nothing is lost",
    ),
    Damage(
        "leader-epoch-checkpoint: says 1 row, has 2", "ends", "ends", "720", "720",
        "goes on: the epochs are taken from the batches, which all have theirs; nothing is lost",
    ),
    Damage("leader-epoch-checkpoint: an epoch beyond the end", "720", "720", "720", "720", "as Kafka"),
    Damage("leader-epoch-checkpoint: epochs fall", "720", "720", "720", "720", "as Kafka"),
    Damage("leader-epoch-checkpoint: epoch 90 (later than ZooKeeper's)", "720", "720", "720", "720", "as Kafka"),
    Damage(
        "last .snapshot: bit flipped", "720", "not compared", "720", "720",
        "removed with a line; the states of producers are read from the batches",
    ),
    Damage("last .snapshot removed", "720", "720", "720", "720", "the states of producers are read from the batches"),
    Damage("last .snapshot empty", "720", "not compared", "720", "720", "the states of producers are read from the batches"),
    Damage("all .snapshot removed", "720", "720", "720", "720", "the states of producers are read from the batches"),
    Damage("all .snapshot: bit flipped", "720", "720", "720", "720", "the states of producers are read from the batches"),
    Damage("stray .snapshot at offset 99999", "720", "720", "720", "720", "removed, as Kafka does: it is beyond the end of the log"),
    Damage(
        "partition.metadata removed", "720", "720", "720", "720",
        "written again when the controller has said the topic id, with a line",
    ),
    Damage(
        "partition.metadata: text", "ends", "ends", "directory offline", "directory offline",
        "offline: the log of a topic that was deleted must not become that of a new one; other directories go on, Kafka ends",
    ),
    Damage(
        "partition.metadata empty", "ends", "ends", "directory offline", "directory offline",
        "offline: the log of a topic that was deleted must not become that of a new one; other directories go on, Kafka ends",
    ),
    Damage(
        "partition.metadata: another topic id", "topic id refused", "topic id refused", "topic id refused", "topic id refused",
        "as Kafka",
    ),
    Damage("partition.metadata: version 3", "720", "720", "720", "720", "as Kafka"),
    Damage("a file foo.txt", "720", "720", "720", "720", "as Kafka: left alone"),
    Damage("a file abc.log", "ends", "ends", "720", "720", "goes on: it is no segment; left alone with a line"),
    Damage(
        "an empty segment at 99999", "99999, 720 readable", "99999, 720 readable", "99999, 720 readable", "99999, 720 readable",
        "as Kafka",
    ),
    Damage("stray 0.log.deleted, 0.log.cleaned", "720", "720", "720", "720", "removed, as Kafka does: what an unfinished compaction left"),
    Damage(
        "stray 0.log.swap (copy of the first segment)", "720, times not found", "720, times not found", "720", "720",
        "put in its place, indexes are built again",
    ),
    Damage(
        "stray 0.log.swap of garbage", "720, 624 readable", "720, 624 readable", "720", "720",
        "set aside as .unreadable, the segment stays; Kafka puts it in place and loses the segment. Where the segment is "
        "gone already the directory goes offline",
    ),
    Damage(
        "folder emptied but for partition.metadata", "0", "0", "0", "0",
        "as Kafka; the line says that the log ends before its high watermark",
    ),
    Damage("folder removed", "0", "0", "0", "0", "as Kafka; a line names the logs without a folder"),
    Damage(
        "recovery-point-offset-checkpoint: text", "directory offline", "", "directory offline", "",
        "offline, as Kafka: without it damages in old segments cut logs",
    ),
    Damage(
        "recovery-point-offset-checkpoint removed", "720", "", "720", "",
        "as Kafka; the line says what it means that the file is missing",
    ),
    Damage("recovery-point-offset-checkpoint: 999999", "720", "", "720", "", "as Kafka"),
    Damage("recovery-point-offset-checkpoint: -5", "720", "", "720", "", "as Kafka"),
    Damage(
        "replication-offset-checkpoint: text", "directory offline", "", "directory offline", "",
        "offline, as Kafka: high watermarks would begin at the start of the logs",
    ),
    Damage(
        "replication-offset-checkpoint removed", "720", "", "720", "",
        "offline, as Kafka: high watermarks would begin at the start of the logs",
    ),
    Damage(
        "replication-offset-checkpoint: 999999", "720", "", "720", "",
        "as Kafka; the line says that the log ends before its high watermark",
    ),
    Damage("replication-offset-checkpoint: says 4 rows, has 1", "directory offline", "", "directory offline", "", "offline, as Kafka"),
    Damage(
        "log-start-offset-checkpoint: text", "directory offline", "", "directory offline", "",
        "offline, as Kafka: records that were deleted would come back",
    ),
    Damage("log-start-offset-checkpoint: 100", "100–720, 621 readable", "", "100–720, 621 readable", "", "as Kafka"),
    Damage("log-start-offset-checkpoint: 999999", "999999–999999", "", "999999–999999", "", "as Kafka, with a line"),
    Damage(
        "cleaner-offset-checkpoint: text", "directory offline", "", "directory offline", "",
        "offline, as Kafka (which does so when its cleaner begins)",
    ),
    Damage("meta.properties: text", "720", "", "720", "", "as Kafka; the line says that the check of the owner is not made"),
    Damage("meta.properties removed", "720", "", "720", "", "as Kafka; the line says that the check of the owner is not made"),
    Damage("meta.properties empty", "720", "", "720", "", "as Kafka; the line says that the check of the owner is not made"),
    Damage("meta.properties: another cluster.id", "ends", "", "ends", "", "ends"),
    Damage("meta.properties: another broker.id", "ends", "", "ends", "", "ends"),
    Damage("meta.properties: version=1 (KRaft)", "ends", "", "ends", "", "ends"),
    Damage("a folder 'nonsense'", "ends", "", "720", "", "goes on: it is no log, nothing is lost; left alone with a line"),
    Damage("a folder 'nonsense-x'", "ends", "", "720", "", "goes on: it is no log, nothing is lost; left alone with a line"),
    Damage("a folder 't-0.abc-delete' with a file", "720", "", "720", "", "removed, as Kafka does"),
    Damage(
        "the same partition in two directories", "ends", "", "ends", "",
        "ends with both paths, as Kafka; nothing is touched. Only the two folders of one unfinished move, which have the "
        "file klamm.move, are put in order",
    ),
    Damage(
        "a file in place of the directory", "ends", "", "directory offline", "",
        "goes on with the other directories: this one is offline",
    ),
]
