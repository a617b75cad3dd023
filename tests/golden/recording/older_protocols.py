"""Makes `older_protocols.jsonl.gz`: `python -m klamm.tests.golden.recording.older_protocols [VERSION...]`.

Two real brokers that speak an older inter-broker protocol live through a short story, and what they say to each other is noted (see
`journal`); then the next protocol. Without versions all of PROTOCOLS are recorded and the file is written; with some, only theirs, in
place of what the file had of them.

Each line has `protocol` and `step`. One with `life` says that broker `to` was started, with the epoch of its registration and the
partitions whose logs it found; one with `failed` that its log directory with these partitions went away, or was not there when it was
started; all others are a request to it and its answer. Those of client `test` are QUESTIONS, asked by the story.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klamm.protocol import messages
from klamm.tests.golden.recording.journal import Journal, Proxies, as_text, write_lines
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.record_clients import produce
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars
from klamm.zk.embedded.server import EmbeddedZooKeeper

TARGET = Path(__file__).resolve().parents[1] / "older_protocols.jsonl.gz"
PROTOCOLS = (
    "0.8.2", "0.9.0", "0.10.0", "0.10.2", "0.11.0", "1.0", "2.0", "2.2", "2.4-IV0", "2.4", "2.6", "2.7", "2.8", "3.0", "3.3", "3.9",
)
FIRST_WITH_NEW_RECORDS = PROTOCOLS.index("0.11.0")
FIRST_TO_OUTLIVE_A_LOG_DIR = PROTOCOLS.index("1.0")
"""Before that protocol a broker halts when a log directory fails."""

FIRST_TO_ASK_FOR_PRODUCER_IDS = PROTOCOLS.index("3.0")

QUESTIONS = [
    *((messages.MetadataRequest(topics=None if version else []), version) for version in (0, 1, 2, 4, 7, 9, 12)),
    *((messages.DescribeClusterRequest(), version) for version in (0, 1)),
    (messages.ApiVersionsRequest(), 0),
    (messages.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3),
]
"""Asked of every broker whenever nobody says anything, so it is seen what the controller's requests made of it."""


class OlderProtocolStory:
    """Brokers 1 and 2, each with two log directories; 1 is controller at first."""

    def __init__(self, protocol: str, members: Members, journal: Journal) -> None:
        self.members, self.journal = members, journal
        self.age = PROTOCOLS.index(protocol)

    def start(self, broker_id: int, **more: Any) -> None:
        """Start a broker; `more` is noted of its life."""
        members = self.members
        if broker_id not in members.brokers:
            members.add_kafka(broker_id)
        broker = members.brokers[broker_id]
        logs = sorted(log for folder in str(broker.settings["log.dirs"]).split(",") for log in logs_in(Path(folder)))
        line = self.journal.note(to=broker_id, life=broker.starts + 1, logs=logs, **more)
        members.start(broker_id)
        line |= {"broker_epoch": members.tree.broker_epoch(broker_id), "cluster_id": members.tree.json("/cluster/id")["id"]}

    def quiet(self) -> None:
        """Wait until the controller has done all it had to and every partition's ISR is whole, then until nobody says anything."""
        members = self.members
        members.governs()
        members.in_sync(members.tree.children("/brokers/topics"))
        self.silent()

    def silent(self) -> None:
        """Wait until nothing has been said for a second, and ask all brokers; once more when something was said meanwhile."""
        lines = self.journal.lines
        while True:
            count = -1
            while count != len(lines):
                count = len(lines)
                time.sleep(1)
            asked = [
                self.journal.ask(broker.id, broker.port, question, version)
                for broker in self.members.running()
                for question, version in QUESTIONS
            ]
            if lines[count:] == asked:
                return
            for answered in asked:  # one by one: what the proxies add meanwhile stays
                del lines[next(index for index, line in enumerate(lines) if line is answered)]

    def tell(self) -> None:
        members, journal = self.members, self.journal
        journal.step = "start"
        self.start(1)
        self.start(2)
        journal.step = "create"
        members.create("t", [[1, 2], [2, 1], [1, 2]])
        members.create("u", [[2, 1], [1, 2]])
        members.create("single", [[1], [2]])
        if self.age >= FIRST_WITH_NEW_RECORDS:
            produce(members.bootstrap(), "t", (f"first-{n}" for n in range(20)), idempotent=self.age >= FIRST_TO_ASK_FOR_PRODUCER_IDS)
        journal.step = "grow"
        members.grow("t", 4, [[2, 1]])
        self.quiet()
        journal.step = "reassign"
        self.reassign("single", [[2], [1]])
        journal.step = "stop the other"
        members.brokers[2].stop()
        members.led_by("t", 1, 1)
        self.silent()
        journal.step = "start the other"
        self.start(2)
        self.quiet()
        journal.step = "elect"
        self.elect_preferred()
        journal.step = "stop the controller"
        members.brokers[1].stop()
        members.led_by("t", 0, 2)
        self.silent()
        journal.step = "start the old controller"
        self.start(1)
        self.quiet()
        self.elect_preferred()
        journal.step = "kill"
        members.brokers[1].kill()
        members.led_by("t", 0, 2)
        self.silent()
        journal.step = "start the killed"
        self.start(1)
        self.quiet()
        self.elect_preferred()
        self.leave_nobody_in_sync()
        if self.age >= FIRST_TO_OUTLIVE_A_LOG_DIR:
            self.fail_a_log_dir()
        journal.step = "delete"
        members.delete("t")
        members.delete("u")
        members.delete("single")
        for topic in ("t", "u", "single"):
            members.deleted(topic)
        self.silent()
        journal.step = "create anew"
        members.create("t", [[2, 1]])
        self.quiet()
        journal.step = "end"
        members.brokers[1].stop()

    def reassign(self, topic: str, assignment: list[list[int]]) -> None:
        """Move every partition of a topic, by the node that asks for it."""
        tree, rows = self.members.tree, [{"topic": topic, "partition": p, "replicas": replicas} for p, replicas in enumerate(assignment)]
        tree.put("/admin/reassign_partitions", {"version": 1, "partitions": rows})
        wait_for(lambda: tree.exists("/admin/reassign_partitions") is None, f"{topic} reassigned")
        assert tree.assignment(topic) == dict(enumerate(assignment))
        self.quiet()

    def elect_preferred(self) -> None:
        """Elect the preferred leader of every partition that another one leads."""
        tree = self.members.tree
        for topic in tree.children("/brokers/topics"):
            for partition, replicas in tree.assignment(topic).items():
                if self.members.state(topic, partition).leader != replicas[0]:
                    assert self.members.elect(topic, partition) == 0
        self.silent()

    def leave_nobody_in_sync(self) -> None:
        """Broker 1 comes back to partitions that only 2, which is dead, may lead; and it is elected controller a second time."""
        members, journal = self.members, self.journal
        journal.step = "leave nobody in sync"
        members.brokers[1].stop()
        members.led_by("t", 0, 2)
        members.brokers[2].kill()
        wait_for(lambda: members.tree.broker_epoch(2) == -1, "the session of 2 has ended")
        self.start(1)
        members.led_by("t", 0, -1)
        self.silent()
        journal.step = "the same by a new controller"
        members.office(1)
        self.silent()
        journal.step = "somebody in sync is back"
        self.start(2)
        self.quiet()
        self.elect_preferred()
        members.office(2)
        self.silent()

    def fail_a_log_dir(self) -> None:
        """Take a log directory away under broker 1, which is not controller, and delete a topic while it is away."""
        members, journal = self.members, self.journal
        journal.step = "a log directory fails"
        folder = Path(str(members.brokers[1].settings["log.dirs"]).split(",")[0])
        lost = logs_in(folder)
        led = [(topic, partition) for topic, partition in lost if members.state(topic, partition).leader == 1]
        assert led, lost
        journal.note(to=1, failed=lost)
        shutil.rmtree(folder)
        for topic, partition in led:
            members.becomes(topic, partition, lambda state: state.leader != 1, "led by another, or by nobody")
        self.silent()
        journal.step = "a topic is made while it is away"
        members.create("v", [[1, 2], [2, 1]])
        self.silent()
        journal.step = "delete while it is away"
        members.delete("v")
        members.deleted("v")
        members.delete("t")
        self.silent()
        journal.step = "stop with a directory less"
        members.brokers[1].stop()
        self.silent()
        journal.step = "start without the directory"
        folder.touch()
        self.start(1, failed=[])
        self.silent()
        members.brokers[1].stop()
        folder.unlink()
        journal.step = "start with an empty directory"
        self.start(1)
        members.deleted("t")
        members.create("t", [[1, 2], [2, 1]])
        self.quiet()


def logs_in(folder: Path) -> list[tuple[str, int]]:
    """The partitions with a log in a log directory, which may be missing."""
    if not folder.is_dir():
        return []
    names = (re.fullmatch(r"(.+)-(\d+)", found.name) for found in folder.iterdir() if found.is_dir())
    return sorted((name[1], int(name[2])) for name in names if name is not None)


@contextmanager
def cluster(protocol: str, zookeeper: str, folder: Path, journal: Journal) -> Iterator[Members]:
    """Members of which none is started; every broker advertises its proxy."""
    proxies = Proxies(journal)

    def settings_of(broker_id: int) -> dict[str, Any]:
        port = free_port()
        old = {} if PROTOCOLS.index(protocol) >= FIRST_WITH_NEW_RECORDS else {"log_message_format_version": protocol}
        return old | {
            "inter_broker_protocol_version": protocol,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised_listeners": f"PLAINTEXT://127.0.0.1:{proxies.add(broker_id, port)}",
            "log_dirs": ",".join(str(folder / f"data-{broker_id}-{which}") for which in "ab"),
            "broker_rack": "a" if broker_id == 1 else "b",
            "replica_high_watermark_checkpoint_interval_ms": 500,
        }

    members = Members(jars(), Tree(zookeeper, f"/protocol-{protocol}"), folder, settings_of)
    try:
        yield members
    finally:
        members.close()
        members.tree.close()
        proxies.close()


def record(protocol: str, zookeeper: str) -> list[dict[str, Any]]:
    journal = Journal()
    with tempfile.TemporaryDirectory() as folder, cluster(protocol, zookeeper, Path(folder), journal) as members:
        OlderProtocolStory(protocol, members, journal).tell()
    return [{"protocol": protocol, **line} for line in journal.distinct()]


def main(chosen: list[str]) -> None:
    lines: list[dict[str, Any]] = []
    if chosen:
        lines = list(map(json.loads, gzip.decompress(TARGET.read_bytes()).splitlines()))
    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    try:
        for protocol in chosen or PROTOCOLS:
            lines = [line for line in lines if line["protocol"] != protocol] + record(protocol, zookeeper)
            lines.sort(key=lambda line: PROTOCOLS.index(line["protocol"]))
            print(f"recorded {protocol};", write_lines(TARGET, map(as_text, lines)), flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
