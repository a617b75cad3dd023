"""The list that the site has below docs/compatibility.md: what of Klamm was compared with a real Kafka, and where it differs and why.

It is made from the files that hold the comparisons: stories (their outcomes are a real Kafka's, signed by the run that recorded them, and
known differences stand beside them), stories of tools, and golden data. What the tests compare is therefore what the page says; that
Klamm does it is what the tests prove.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from klamm.tests.logs_on_disk.damages import DAMAGES
from klamm.tests.reference.tools import CLASSES
from klamm.tests.stories.both.story_file import Scene, Story, StoryFile, read_all

TESTS = Path(__file__).resolve().parent
STORIES, EXACT, TOOLS, GOLDEN = TESTS / "stories" / "both", TESTS / "stories" / "exact", TESTS / "tools", TESTS / "golden"
SECURITY_TOOLS = TESTS / "security"

SECTIONS = {
    "3": "Election, fail-over, resignation",
    "4": "Brokers: birth, death, bounce, change, failed log directories",
    "5": "Creation and growth of topics, placement",
    "6": "Partition states",
    "7": "Replica states",
    "8": "Who becomes leader",
    "9": "ISR notifications",
    "10": "Elections on request and by timer, controlled shutdown",
    "12": "Deletion",
    "13": "Requests to brokers: order, versions, retries",
    "14": "AlterPartition, blocks of producer ids",
    "15": "A broker as a member: LeaderAndIsr, StopReplica, UpdateMetadata, Metadata",
    "16": "Configs of topics, brokers, loggers",
    "17": "Throttles",
    "security": "ACLs, delegation tokens, SASL and users of SCRAM, of a broker without security",
    "features": "Updates of features",
    "records": "Records: Produce, Fetch, offsets, deletion of records, producers, log directories",
}
"""What the numbers in titles of stories mean."""


def _lines(name: str) -> int:
    """Entries of a file in tests/golden: its lines, or the members of its JSON."""
    raw = (GOLDEN / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    if ".jsonl" in name:
        return len(text.splitlines())
    found = json.loads(text)
    return sum(len(part) for part in found.values() if isinstance(part, list))


RECORDINGS = [
    ("Bytes of every message in every version, good and bad", "messages.jsonl.gz", "protocol/test_golden_messages.py"),
    ("Requests of real clients and a cluster's answers", "responses.jsonl.gz", "protocol/test_recorded_frames.py"),
    ("Whole client sessions", "live.jsonl.gz", "protocol/test_recorded_frames.py"),
    ("Odd frames, and what a broker does with them", "raw.jsonl.gz", "server/net/test_odd_frames.py"),
    ("Those of them about records, sent to a broker in their order", "raw.jsonl.gz", "golden/test_data_frames.py"),
    ("A controller's requests to one broker, and its answers", "broker_story.jsonl.gz", "broker/test_broker_story.py"),
    ("Frames between brokers in a story of 34 steps", "interbroker.jsonl.gz", "stories"),
    ("Frames and answers of brokers of older protocols", "older_protocols.jsonl.gz", "golden/test_older_protocols.py"),
    ("Awkward instances of the controller's messages", "serializers.jsonl.gz", "golden/test_serializers.py"),
    ("Throttle times of clients under quotas, by Kafka's classes", "client_quotas.jsonl.gz", "broker/test_client_quotas.py"),
    ("Answers to DescribeConfigs", "describe_configs.json.gz", "configs/test_describe_configs.py"),
]
"""Other comparisons with real brokers: what, the file in tests/golden, and the test below tests/."""


def text() -> str:
    """The list as text."""
    stories, tools = [*read_all(STORIES), *read_all(EXACT)], [*read_all(TOOLS), *read_all(SECURITY_TOOLS)]
    told = [*_stories(stories), *_tools(tools)]
    return "\n".join([*told, *_clients(), *_mixed(), *_damages(), *_differences([*stories, *tools]), *_recordings()]) + "\n"


def _scenes(files: Iterable[StoryFile]) -> Iterator[tuple[StoryFile, Story, Scene]]:
    return ((file, story, scene) for file in files for story in file.stories for scene in story.scenes)


def _differing(story: Story) -> int:
    return sum(scene.klamm is not None for scene in story.scenes)


def _outcome(stories: Iterable[Story]) -> str:
    differing = sum(_differing(story) for story in stories)
    return "same" if not differing else f"same but for {differing} known difference{'s' if differing > 1 else ''}"


def _stories(files: list[StoryFile]) -> list[str]:
    stories = [story for file in files for story in file.stories]
    same = sum(not _differing(story) for story in stories)
    outcomes = sum(len(story.scenes) for story in stories)
    values = sum(len(scene.outcome.splitlines()) for _, _, scene in _scenes(files))
    lines = [
        "## Stories\n",
        f"{len(stories)} stories with {outcomes} outcomes ({values} lines), told to one broker or two with fake neighbours, through raw",
        "frames and ZooKeeper ([tests/stories/both](../tests/stories/both/README.md), [tests/stories/exact](../tests/stories/exact)).",
        f"{same} of them are the same on both sides from end to end.\n",
        "| about | stories | same throughout |",
        "|---|---|---|",
    ]
    for number, title in SECTIONS.items():
        about = [story for story in stories if any(part.strip().split(".")[0] == number for part in story.sections.split(","))]
        lines.append(f"| {title} | {len(about)} | {sum(not _differing(story) for story in about)} |")
    for file in files:
        lines += ["", f"**{file.path.stem}**: {' '.join(line.lstrip('# ') for line in file.comment)} ({file.recorded.partition(',')[0]})\n"]
        lines += ["| story | outcomes | result |", "|---|---|---|"]
        lines += [f"| {story.title} | {len(story.scenes)} | {_outcome([story])} |" for story in file.stories]
    return [*lines, ""]


def _tools(files: list[StoryFile]) -> list[str]:
    lines = [
        "## Tools and the Java client\n",
        "Kafka's own tools, run by their main classes with all their output and exit codes compared, and a program over the Java",
        "AdminClient (`make test-all`; [tests/tools](../tests/tools), [tests/security](../tests/security)).\n",
        "| story | about | runs | result |",
        "|---|---|---|---|",
    ]
    for file in files:
        for story in file.stories:
            runs = sum(_is_run(line) for scene in story.scenes for line in scene.commands)
            lines.append(f"| {story.title} | {story.sections} | {runs} | {_outcome([story])} |")
    total = sum(_is_run(line) for _, _, scene in _scenes(files) for line in scene.commands)
    return [*lines, "", f"{total} runs in all.\n"]


def _is_run(line: str) -> bool:
    word = line.split()[0]
    return word in CLASSES or word in (
        "kafka-preferred-replica-election", "kafka-features", "kafka-acls", "kafka-delegation-tokens", "admin-client",
    )


def _tests(folder: str) -> Iterator[tuple[Path, str, list[str]]]:
    """Each file of tests in a folder: its path, the first paragraph of its text, and what its tests are called, as sentences."""
    for path in sorted((TESTS / folder).glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        about = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        yield path, about, [name.removeprefix("test_").replace("_", " ") for name in functions if name.startswith("test_")]


def _clients() -> list[str]:
    lines = [
        "## Clients\n",
        "Unchanged clients driven against Klamm brokers (`make test`).\n",
        "| client | what it does |",
        "|---|---|",
    ]
    rows = [f"| {about} | {'; '.join(names)} |" for _, about, names in _tests("clients")]
    return [*lines, *rows, ""]


def _mixed() -> list[str]:
    lines = [
        "## Mixed clusters\n",
        "Klamm and real brokers in one cluster (`make test-all`). What real brokers log as errors is compared with what they log in the",
        "same story without Klamm; what is left in ZooKeeper and on disk, and what clients wrote and read, is compared too.\n",
        "| cluster | test |",
        "|---|---|",
    ]
    return [*lines, *(f"| {about} | {'; '.join(names)} |" for _, about, names in (*_tests("mixed"), *_tests("mixed/users"))), ""]


def _damages() -> list[str]:
    lines = [
        "## Damaged log directories\n",
        "What Apache Kafka and Klamm made of copies of the same folders, damaged in one place each. Made by Kafka: logs of 720 records",
        'in 240 batches, segments of 12 KB, recovery point 360 after kill -9. "720": the log ends there and all of it is readable; "ends":',
        "the broker does not start. Each pair is after kill -9 and after a stop in order, one outcome where both are the same; whole",
        "directories were compared after kill -9. Klamm says in its log what it passes over, with the file and the consequence, and",
        "changes nothing in a directory that it takes offline ([test_damages.py](../tests/logs_on_disk/test_damages.py),",
        "[test_duplicates.py](../tests/logs_on_disk/test_duplicates.py)).\n",
        "| damage | Kafka | Klamm | decision and reason |",
        "|---|---|---|---|",
    ]
    for what, kafka_killed, kafka_stopped, klamm_killed, klamm_stopped, decision in DAMAGES:
        lines.append(f"| {what} | {_pair(kafka_killed, kafka_stopped)} | {_pair(klamm_killed, klamm_stopped)} | {decision} |")
    return [
        *lines,
        "\nTwo more differences are about a damage that only compaction meets. Apache Kafka marks such a log as uncleanable, shows that",
        "in metrics, and stops its retention where the topic has `compact,delete`. Klamm does so too, and shows the",
        "uncleanable bytes in DescribeLogDirs in a tagged field of its own (tag 10000, from version 2 on), which clients of Kafka skip.",
        "Retention goes on, as it deletes whole segments and reads no records.\n",
    ]


def _pair(killed: str, stopped: str) -> str:
    return killed if stopped in ("", killed) else f"{killed}; {stopped}"


def _differences(files: list[StoryFile]) -> list[str]:
    lines = ["## Known differences, one by one\n"]
    found = [(file, story, scene) for file, story, scene in _scenes(files) if scene.klamm is not None]
    lines.append(f"All {len(found)} of them, with what a real Kafka does (`-`) and what Klamm does (`+`).\n")
    for file, story, scene in found:
        assert scene.klamm is not None
        reason, klamm = scene.klamm
        lines += [f"### {story.title}\n", f"{reason[0].upper()}{reason[1:]}. ([{file.path.name}](../{_path(file)}))\n", "```diff"]
        theirs, ours = scene.outcome.splitlines(), klamm.splitlines()
        lines += [f"- {line}" for line in theirs if line not in ours] + [f"+ {line}" for line in ours if line not in theirs]
        lines += ["```", ""]
    return lines


def _path(file: StoryFile) -> str:
    return file.path.relative_to(TESTS.parent).as_posix()


def _recordings() -> list[str]:
    lines = [
        "## Recordings\n",
        "Data made by real brokers and by Kafka's client library, replayed, or decoded and encoded again",
        "([tests/golden](../tests/golden/README.md)).\n",
        "| what | data | entries | test |",
        "|---|---|---|---|",
    ]
    for what, data, test in RECORDINGS:
        assert (TESTS / test).exists(), test
        lines.append(f"| {what} | {data} | {_lines(data)} | tests/{test} |")
    return lines
