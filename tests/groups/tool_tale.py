"""What Kafka's own tool for groups, kafka-consumer-groups, prints of a group with members, without, and of none.

`tool_answers.txt` is what it prints of Apache Kafka 3.9.1; `python -m klamm.tests.groups.tool_tale --record` writes it again. Each command
is followed by its exit code and its lines, sorted, with names for what differs from run to run. Members are processes of librdkafka.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from klamm.tests.groups.consumers import ConsumerGroup
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars
from klamm.tests.reference.tools import Tools
from klamm.zk.embedded.server import EmbeddedZooKeeper

FILE = Path(__file__).with_name("tool_answers.txt")
BROKERS = (1, 2)
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 3,
    "offsets_topic_replication_factor": 2,
    "group_initial_rebalance_delay_ms": 500,
    "auto_leader_rebalance_enable": "false",
}
GROUP, TOPIC = "shop", "orders"
Masks = Sequence[tuple[re.Pattern[str], str]]
"""What differs from run to run, and names for it."""
_MASKS: Masks = (
    (re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "-<id>"),
    (re.compile(r"127\.0\.0\.1:\d+ +\(\d+\)"), "<coordinator>"),
    (re.compile(r"^\[[^\]]+\] "), "[<time>] "),
    (re.compile(r"\s+"), " "),
)
WITH_MEMBERS = (
    "--list", "--list --state", "--list --state stable,empty", "--list --state Dead", "--list --type", "--list --type consumer",
    "--describe --group shop", "--describe --group shop --offsets", "--describe --group shop --members",
    "--describe --group shop --members --verbose", "--describe --group shop --state", "--describe --all-groups --state",
    "--describe --group nobody", "--describe --group nobody --state", "--delete --group shop",
    "--delete-offsets --group shop --topic orders", "--delete-offsets --group shop --topic other",
    "--reset-offsets --group shop --topic orders --to-earliest --execute",
)
WITHOUT_MEMBERS = (
    "--describe --group shop", "--describe --group shop --state", "--describe --group shop --members",
    "--reset-offsets --group shop --topic orders --to-earliest --dry-run",
    "--reset-offsets --group shop --topic orders --to-offset 4 --execute",
    "--reset-offsets --group shop --topic orders:0,2 --shift-by 3 --execute",
    "--reset-offsets --group shop --topic orders:1 --to-latest --execute",
    "--reset-offsets --group shop --all-topics --to-current --dry-run",
    "--reset-offsets --group shop --topic orders:0 --to-datetime 2020-01-01T00:00:00.000 --execute",
    "--describe --group shop", "--delete-offsets --group shop --topic orders:0", "--delete-offsets --group shop --topic none",
    "--describe --group shop --offsets", "--reset-offsets --group fresh --topic other --to-offset 1 --execute", "--list --state",
    "--delete --group shop --group nobody", "--delete --group fresh", "--list", "--describe --group shop",
)


def tell(members: Members) -> list[str]:
    """The lines."""
    tools = Tools(members.jars, members.folder, members.bootstrap())
    lines: list[str] = []
    members.create("other", [[1, 2]])
    with ConsumerGroup(members, TOPIC, 3, GROUP) as group:
        group.write(30)
        one, two = group.start(session_ms=30_000), group.start(session_ms=30_000)
        group.shared(one, two)
        group.reads(group.written)
        group.all_is_committed()
        lines.append("# with two members")
        lines += [line for command in WITH_MEMBERS for line in told(tools, command)]
        one.leave()
        two.leave()
        group.becomes("Empty", 0)
        lines.append("# without members")
        lines += [line for command in WITHOUT_MEMBERS for line in told(tools, command)]
    return lines


def told(tools: Tools, command: str, tool: str = "kafka-consumer-groups", masks: Masks = _MASKS, stdin: str = "") -> list[str]:
    """A command and what it prints."""
    done = tools.run(tool, *command.split(), stdin=stdin)
    printed = sorted(masked(line, masks) for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip())
    return [f"{tool} {command}", f"    exit {done.returncode}", *(f"    {line}" for line in printed)]


def masked(line: str, masks: Masks = _MASKS) -> str:
    """A line with names for what differs, such as member ids and coordinators, and single spaces."""
    for pattern, name in masks:
        line = pattern.sub(name, line)
    return line.strip()


def record(file: Path, brokers: Sequence[int], settings: Mapping[str, Any], tell: Callable[[Members], list[str]]) -> None:
    """Write what is told of brokers of Apache Kafka."""
    parser = argparse.ArgumentParser(description="Write what Kafka's tools print of Apache Kafka")
    parser.add_argument("--record", action="store_true", required=True)
    parser.parse_args()
    zookeeper = EmbeddedZooKeeper()
    with tempfile.TemporaryDirectory() as folder:
        members = Members(jars(), Tree(zookeeper.start(), "/tool-tale"), Path(folder), lambda _: dict(settings))
        try:
            members.kafka(*brokers)
            lines = tell(members)
        finally:
            members.close()
            members.tree.close()
            zookeeper.stop()
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    record(FILE, BROKERS, SETTINGS, tell)
