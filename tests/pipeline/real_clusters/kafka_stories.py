"""Stories told to real brokers behind recording proxies, and what the rules of conformance say of the journals.

    .venv/bin/python -m klamm.tests.pipeline.real_clusters.kafka_stories              # all stories, half an hour: `make test-judge`
    .venv/bin/python -m klamm.tests.pipeline.real_clusters.kafka_stories --klamm      # told to Klamm, which keeps its own journals

Real Kafka is the judge of the rules: what it does cannot break one. A story is told as it stands. Each real broker listens at another
port than the story gives it, and advertises the story's, where its proxy is; in front of each fake broker stands a proxy too, which has
what real controllers send. The cluster of a story, or of the stories that share one, is a run of the lake.

The code that tells stories (`tests/stories/both`) knows nothing of this: its digest says what was recorded with it.

Some stories do what only a controller may: they write states of partitions into ZooKeeper, or send requests of a controller to a broker.
What rules about the controller say of that is about the story, and is left out (`of_the_story`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import socket
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from klamm.pipeline.check import check
from klamm.pipeline.rules.check import Checked
from klamm.pipeline.rules.runner import Verdict
from klamm.pipeline.run import run
from klamm.protocol import messages
from klamm.tests.harness.fake_broker import FakeBroker
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, request
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.tree import Tree
from klamm.tests.pipeline.real_clusters.recording import Door, Recorder
from klamm.tests.reference.jars import jars
from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.retelling import drawn
from klamm.tests.stories.both.stage import PROPERTIES, Target
from klamm.tests.stories.both.story_file import read_all
from klamm.tests.stories.both.telling import Otherwise
from klamm.zk.embedded.server import EmbeddedZooKeeper

STORIES = Path(__file__).resolve().parents[2] / "stories" / "both"
LONGEST_NAME = 80

FROM_CONTROLLERS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")
OF_RECEIVERS = ("C-03", "C-16", "C-21")
"""Rules about what a broker answers, whoever asked."""

OF_STATES = ("C-02", "C-07", "C-18", "C-19")
"""Rules about states of partitions that only a controller, or a leader by AlterPartition, should have written."""

KAFKA_ONLY = {
    ("C-02", "odd-0"): "a broker without a replica joins the ISR",
    ("C-02", "empty-0"): "an ISR without members",
    ("C-18", "usurped-0"): "a broker that does not lead asks for an ISR, and leads",
}
"""What a controller of Apache Kafka obeys by AlterPartition against its own rules, and Klamm's refuses: (rule, partition) → reason."""

_ASKS = re.compile(r"(?:ask|asked) (\w+) ")
_WRITES = re.compile(r"put(?:-state|-topic)? (?:/brokers/topics/)?([\w.-]+?)(?:-\d+ leader=| \[|/partitions/\d+/state )")


class Runs:
    """The runs of a lake: each tree of ZooKeeper is one, named after the story that is told when it is first seen."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.story = ""
        self._names: dict[str, str] = {}

    def name(self, tree: Tree) -> str:
        """The run of a tree."""
        if tree.hosts not in self._names:
            self._names[tree.hosts] = f"{_short(self.story)}-{zlib.crc32(tree.hosts.encode()):08x}"
        return self._names[tree.hosts]


def _short(story: str) -> str:
    """How the names of a story's runs begin."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", story)[:LONGEST_NAME]


class RecordedBroker(KafkaBroker):
    """A real broker behind a proxy for each of its listeners. `port` and `settings` have the proxies' ports."""

    def __init__(self, runs: Runs, jars: Path, tree: Tree, folder: Path, broker_id: int, **properties: Any) -> None:
        super().__init__(jars, tree, folder, broker_id, **properties)
        self._runs = runs
        self._doors = [
            Door(int(address.rpartition(":")[2]), free_port(), name)
            for name, _, address in (one.partition("://") for one in str(self.settings["listeners"]).split(","))
        ]

    def launch(self) -> RecordedBroker:
        self._runs.recorder.begin(self._runs.name(self.tree), self.id, self._doors)
        shown = self.settings
        hidden = ",".join(f"{door.listener}://127.0.0.1:{door.target_port}" for door in self._doors)
        self.settings = {**shown, "listeners": hidden, "advertised.listeners": shown["listeners"]}
        super().launch()
        self.settings = shown
        return self

    def start(self) -> RecordedBroker:
        super().start()
        request(self.port, messages.ApiVersionsRequest(), 0)  # so that the journal says which versions it takes
        return self

    def listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._doors[0].target_port), timeout=1):
                return True
        except OSError:
            return False

    def stop(self, within_s: float = 60) -> int:
        code = super().stop(within_s)
        self._ended()
        return code

    def kill(self) -> None:
        super().kill()
        self._ended()

    def _ended(self) -> None:
        self._runs.recorder.end(self._runs.name(self.tree), self.id)


class RecordedKafka(Target):
    """Makes real brokers with proxies."""

    def __init__(self, runs: Runs) -> None:
        super().__init__("kafka", jars())
        self._runs = runs

    def broker(self, tree: Tree, folder: Path, broker_id: int, properties: dict[str, object]) -> OwnedBroker:
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in {**PROPERTIES, **properties}.items()}
        assert self.jars is not None
        return RecordedBroker(self._runs, self.jars, tree, folder, broker_id, **settings)


class JournaledKlamm(Target):
    """Makes brokers of Klamm that keep journals, all frames whole."""

    def __init__(self, runs: Runs) -> None:
        super().__init__("klamm")
        self._runs = runs

    def broker(self, tree: Tree, folder: Path, broker_id: int, properties: dict[str, object]) -> OwnedBroker:
        lake = self._runs.recorder.lake.resolve()
        journal = {"klamm.journal.dir": lake, "klamm.journal.run": self._runs.name(tree), "klamm.journal.frames": "full"}
        return super().broker(tree, folder, broker_id, {**journal, **properties})


@contextmanager
def recorded_fakes(runs: Runs) -> Iterator[None]:
    """Fake brokers meanwhile listen behind proxies, at the ports that they register."""
    refuse = FakeBroker.refuse

    async def accept_behind_proxy(fake: FakeBroker) -> None:
        if fake._server is None:
            fake.port = fake.port or free_port()
            fake._server = await asyncio.start_server(fake._serve, "127.0.0.1", 0, limit=1 << 26)
            target_port = fake._server.sockets[0].getsockname()[1]
            runs.recorder.open_channel(runs.name(fake.tree), fake.id, fake.port, target_port)

    async def refuse_with_proxy(fake: FakeBroker) -> None:
        await refuse(fake)
        await asyncio.to_thread(runs.recorder.close_channel, fake.port)

    with mock.patch.object(FakeBroker, "accept", accept_behind_proxy), mock.patch.object(FakeBroker, "refuse", refuse_with_proxy):
        yield


class ToldStory(NamedTuple):
    """What became of the telling."""

    stories: list[str]
    otherwise: list[str]
    """Stories that went otherwise than recorded, twice."""
    seconds: float


def draw(seed: int, share: int) -> list[str]:
    """Ids of one of so many stories, in the order of their files; the same seed draws the same ones."""
    library = Library(STORIES, "", Target("kafka"))
    chosen = drawn(list(library.by_id), seed, share)
    return [story for story in library.by_id if story in chosen]


def tell(
    zookeeper: str, lake: Path, stories: Sequence[str], say: Callable[[str], None] = lambda text: None, *, to_klamm: bool = False
) -> ToldStory:
    """Tell stories to real brokers, or to Klamm's, that journal into `lake`. What goes otherwise is named: the journals are as good."""
    began = time.monotonic()
    runs = Runs(Recorder(lake))
    library = Library(STORIES, zookeeper, JournaledKlamm(runs) if to_klamm else RecordedKafka(runs))
    otherwise = []
    with nullcontext() if to_klamm else recorded_fakes(runs), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is told again may succeed
        for number, story in enumerate(stories, 1):
            runs.story = story
            try:
                asyncio.run(library.tell(story))
            except (Otherwise, AssertionError, OSError) as difference:
                otherwise.append(story)
                say(f"{story}: {difference}")
                library.close()
            say(f"{number} of {len(stories)} stories, {time.monotonic() - began:.0f} s: {story}")
        library.close()
    runs.recorder.close()
    return ToldStory(list(stories), otherwise, time.monotonic() - began)


class _Quiet:
    def begin(self, what: str, total: int | None) -> None: ...
    def step(self, steps: int) -> None: ...


def judge(lake: Path, session: Callable[[], Any]) -> tuple[int, Checked]:
    """What `klamm pipeline run` and `check` make of a lake: the number of frames, and what the rules say."""
    outcome = run(lake, session, _Quiet(), gold=False)
    return outcome.rows["frames"], check(lake, session)


def commands(run_id: str) -> list[str]:
    """The lines of the stories that were told in a run, without what came of them."""
    files = read_all(STORIES)
    named = [(file, story) for file in files for story in file.stories if _short(story.id) == run_id.rpartition("-")[0]]
    stories = [other for file, story in named for other in (file.stories if file.shared else [story])]
    return [line for story in stories for scene in story.scenes for line in scene.commands]


def of_the_story(verdict: Verdict, lines: Sequence[str], *, of_klamm: bool = False) -> bool:
    """Whether the story itself did what the rule complains of, with these lines; or it asked for what only Apache Kafka obeys."""
    if any(match[1] in FROM_CONTROLLERS for match in map(_ASKS.match, lines) if match) and verdict.rule not in OF_RECEIVERS:
        return verdict.rule.startswith("C-")
    if not of_klamm and any(verdict.rule == rule and verdict.detail.startswith(f"{partition}:") for rule, partition in KAFKA_ONLY):
        return True
    topics = {match[1] for match in map(_WRITES.match, lines) if match}
    return verdict.rule in OF_STATES and any(verdict.detail.startswith(f"{topic}-") for topic in topics)


def faults(checked: Checked, *, of_klamm: bool = False) -> list[Verdict]:
    """Violations of rules of severity error that no story explains."""
    errors = [one for one in checked.judgement.verdicts if one.severity == "error"]
    lines = {name: commands(name) for name in {one.run_id for one in errors}}
    return [one for one in errors if not of_the_story(one, lines[one.run_id], of_klamm=of_klamm)]


def summary(checked: Checked) -> Iterator[str]:
    """A line for each rule: in how many runs it was exercised, what was checked and violated; then the violations."""
    for rule in checked.rules.values():
        stats = [stat for stat in checked.judgement.stats if stat.rule == rule.id]
        runs = sum(stat.checked > 0 for stat in stats)
        checks, violations = sum(stat.checked for stat in stats), sum(stat.violated for stat in stats)
        yield f"{rule.id} {rule.severity:5} {checks:8} checked in {runs:4} runs, {violations:5} violated"
    for (name, rule_id), verdicts in checked.by_rule().items():
        yield f"{rule_id} in {name}: {len(verdicts)}, the first: {verdicts[0].detail}"
        yield from (f"    {line}" for line in checked.evidence(verdicts[0]))


def main() -> int:
    from klamm.pipeline.spark.session import open_session

    parser = argparse.ArgumentParser(prog="kafka_stories", description="Stories told to a real Kafka; the rules judge the journals.")
    parser.add_argument("--share", type=int, default=1, help="tell one of so many stories (default: 1, all)")
    parser.add_argument("--seed", type=int, default=None, help="which ones (default: by chance)")
    parser.add_argument("-k", dest="named", default="", help="of these only those whose name has this text")
    parser.add_argument("--lake", type=Path, default=Path("build/kafka-stories"), help="where (default: build/kafka-stories)")
    parser.add_argument("--judge-only", action="store_true", help="tell nothing: judge what the lake has")
    parser.add_argument("--klamm", action="store_true", help="tell them to Klamm")
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    if not options.judge_only:
        shutil.rmtree(options.lake, ignore_errors=True)
        options.lake.mkdir(parents=True)
        stories = [story for story in draw(seed, options.share) if options.named in story]
        zookeeper = EmbeddedZooKeeper()
        try:
            told = tell(zookeeper.start(), options.lake, stories, lambda text: print(text, flush=True), to_klamm=options.klamm)
        finally:
            zookeeper.stop()
        print(f"{len(told.stories)} stories (seed {seed}) in {told.seconds:.0f} s; otherwise than recorded: {told.otherwise}", flush=True)
    spark = open_session("local[2]", name="kafka-stories", variables=os.environ)
    frames, checked = judge(options.lake, lambda: spark)
    print(f"{frames} frames in {len(checked.runs)} runs")
    print("\n".join(summary(checked)))
    left = faults(checked, of_klamm=options.klamm)
    print(f"{checked.violations('error')} violations of severity error, {len(left)} are not the doing of a story")
    print(f"not exercised: {', '.join(checked.not_exercised())}")
    print("\n".join(f"{one.rule} in {one.run_id}: {one.detail}" for one in left))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
