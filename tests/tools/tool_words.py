"""Words of stories that run Kafka's own tools, by their main classes, against the story's cluster.

    kafka-topics --create --topic orders --replica-assignment 11:12
    ----
    exit 0
    Created topic orders.

A tool is given the bootstrap server by itself, and `@name` for a file that `file name text` wrote. Its outcome is the exit code, what it
printed, and behind `stderr:` what it complained of, with the texts that brokers send with their errors: scripts look for them. Ports, ids,
times, stack traces, and the folder of the story's brokers are masked.
A broker that died meanwhile fails the story: what a tool says of that is nothing to be recorded.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from klamm.tests.harness.kafka import JVM, java_command
from klamm.tests.reference.jars import TOOL_OF_KIP_183, VERSION, jars
from klamm.tests.reference.tools import CLASSES
from klamm.tests.stories.both.commands import Action, action
from klamm.tests.stories.both.stage import Stage

TOOLS = {
    name: CLASSES[name]
    for name in (
        "kafka-topics",
        "kafka-configs",
        "kafka-leader-election",
        "kafka-reassign-partitions",
        "kafka-broker-api-versions",
        "kafka-get-offsets",
        "kafka-log-dirs",
    )
} | {
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
}
"""Main classes of those tools of 3.9.1 that take `--bootstrap-server` before anything else."""

ELECTION_OF_2_2 = "kafka.admin.PreferredReplicaLeaderElectionCommand"
WITHIN_S = 120
_SOURCES = Path(__file__).parent

_MASKS = (
    (re.compile(r"127\.0\.0\.1:\d{4,5}(/[\w-]+)?"), "<address>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}"), "<time>"),
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: <id>"),
    (re.compile(r"Cluster ID: [\w-]{22}"), "Cluster ID: <id>"),
)
_NOISE = re.compile(r"^(\tat |\t\.\.\. \d+ (more|common frames)|Caused by: |SLF4J: |log4j:)")
_IN_ANY_ORDER = re.compile(r"^(Error completing |\tSuppressed: )")
"""Lines of these kinds come in the order of an answer's partitions, which a broker leaves open."""


def masked(text: str, folder: Path) -> list[str]:
    """Lines of a tool's output without what differs from run to run; `folder` is where the brokers keep their data."""
    lines = []
    for line in text.replace(str(folder), "<folder>").splitlines():
        if _NOISE.match(line) or not line.strip():
            continue
        for pattern, mark in _MASKS:
            line = pattern.sub(mark, line)
        lines.append(line.rstrip())
    alike = (list(group) for _, group in itertools.groupby(lines, _kind))
    return [line for group in alike for line in (sorted(group) if _kind(group[0]) else group)]


def _kind(line: str) -> str:
    found = _IN_ANY_ORDER.match(line)
    return found[1] if found else ""


def outcome(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    complaints = masked(done.stderr, folder)
    return "\n".join([f"exit {done.returncode}", *masked(done.stdout, folder), *(["stderr:", *complaints] if complaints else [])])


async def run(stage: Stage, version: str, *arguments: str, flags: Sequence[str] = ()) -> str:
    """Run a class of that version's jars with its arguments. A tool that hangs is killed and fails the story."""
    command = java_command(jars(version), *arguments, flags=(*JVM, *flags))
    done = await asyncio.to_thread(
        subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    broker = stage.brokers[stage.one()]
    assert broker.alive(), f"broker {broker.id} died while a tool ran: {broker.tail()}"
    return outcome(done, stage.folder)


def quiet(folder: Path) -> str:
    """JVM flag: no log lines among what the tool prints."""
    config = folder / "tools-log4j.properties"
    config.write_text("log4j.rootLogger=OFF\n")
    return f"-Dlog4j.configuration=file:{config}"


def filled(stage: Stage, words: list[str]) -> list[str]:
    """`@name` stands for the path of a file, `~` for a blank inside a word."""
    return [str(stage.folder / word[1:]) if word.startswith("@") else word.replace("~", " ") for word in words]


def bootstrap(stage: Stage) -> str:
    return f"127.0.0.1:{stage.brokers[stage.one()].port}"


def _tool(name: str, main_class: str) -> Action:
    async def tool(stage: Stage, words: list[str]) -> str:
        arguments = ["--bootstrap-server", bootstrap(stage), *filled(stage, words)]
        return await run(stage, VERSION, main_class, *arguments, flags=[quiet(stage.folder)])

    tool.__doc__ = f"{name} ARGUMENTS: {main_class}"
    return tool


for _name, _main_class in TOOLS.items():
    action(_name)(_tool(_name, _main_class))


@action("kafka-cluster")
async def kafka_cluster(stage: Stage, words: list[str]) -> str:
    """kafka-cluster COMMAND ARGUMENTS: its options come behind its command."""
    arguments = [words[0], "--bootstrap-server", bootstrap(stage), *words[1:]]
    return await run(stage, VERSION, CLASSES["kafka-cluster"], *arguments, flags=[quiet(stage.folder)])


def resolving(folder: Path) -> str:
    """JVM flag: names are those of a file. ZooKeeper's client 3.4 takes an address out of its text, which since Java 14 says more."""
    hosts = folder / "tools-hosts"
    hosts.write_text("127.0.0.1 localhost 127.0.0.1/<unresolved>\n")
    return f"-Djdk.net.hosts.file={hosts}"


@action("kafka-preferred-replica-election")
async def preferred_replica_election(stage: Stage, words: list[str]) -> str:
    """kafka-preferred-replica-election zookeeper|bootstrap|both|neither ARGUMENTS: the tool of Kafka 2.2.2, in either of its modes."""
    ways = {"zookeeper": ["--zookeeper", stage.tree.hosts], "bootstrap": ["--bootstrap-server", bootstrap(stage)], "neither": []}
    ways["both"] = [*ways["zookeeper"], *ways["bootstrap"]]
    arguments = [*ways[words[0]], *filled(stage, words[1:])]
    return await run(stage, TOOL_OF_KIP_183, ELECTION_OF_2_2, *arguments, flags=[resolving(stage.folder)])


@action("admin-client")
async def admin_client(stage: Stage, words: list[str]) -> str:
    """admin-client VERSION COMMAND ...: Kafka's Java AdminClient of that version, driven by `Admin.java` beside this file."""
    arguments = [str(_SOURCES / "Admin.java"), bootstrap(stage), *filled(stage, words[1:])]
    return await run(stage, words[0], *arguments, flags=[quiet(stage.folder)])


@action("file")
async def file(stage: Stage, words: list[str]) -> str:
    """file NAME text: a file that tools are given as `@NAME`."""
    (stage.folder / words[0]).write_text(" ".join(words[1:]))
    return ""
