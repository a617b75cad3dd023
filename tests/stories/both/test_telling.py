"""The telling itself: what differs is found, also what comes late; files keep what is in them; masks hide what they should and no more."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klamm.protocol import messages
from klamm.tests.harness.fake_broker import Frame
from klamm.tests.stories.both import answers, command_views, commands, frames, telling
from klamm.tests.stories.both.commands import Look
from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.stage import Stage, Target
from klamm.tests.stories.both.story_file import BadStory, Scene, Story, read
from klamm.tests.stories.both.telling import Otherwise, record, replay


class Shown:
    """A stage whose only view shows these texts, one at each look, and the last for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
        self.texts, self.looks, self.target = list(texts), 0, SimpleNamespace(name="klamm")
        monkeypatch.setitem(commands.VIEWS, "shown", lambda stage, words: Look(self._see))
        monkeypatch.setitem(commands.ACTIONS, "say", self._say)
        monkeypatch.setattr(telling, "WITHIN_S", 0.3)
        monkeypatch.setattr(telling, "UNCHANGED_S", 0.2)

    async def _see(self) -> str:
        self.looks += 1
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]

    async def _say(self, stage: Stage, words: list[str]) -> str:
        return " ".join(words)

    async def barrier(self) -> None:
        """Nothing is under way here."""

    async def idle(self, *, frames: bool) -> None:
        """Nor does anything come later, but what the test makes come."""

    @property
    def stage(self) -> Stage:
        return cast("Stage", self)


def story(*scenes: Scene) -> Story:
    return Story("file", "A title", "1", list(scenes))


async def test_an_action_with_another_outcome_fails_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "x")
    await replay(story(Scene(1, ["say yes", "say again"], "yes\nagain")), shown.stage)
    with pytest.raises(Otherwise, match=r"-no\n\+yes"):
        await replay(story(Scene(1, ["say yes"], "no")), shown.stage)


async def test_a_view_is_looked_at_until_it_shows_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "not yet", "not yet", "there")
    await replay(story(Scene(1, ["say so", "shown"], "so\nthere")), shown.stage)
    assert shown.looks == 5, "twice, and once more at the end"


async def test_a_view_that_never_shows_the_outcome_fails_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "not yet")
    with pytest.raises(Otherwise):
        await replay(story(Scene(1, ["shown"], "there")), shown.stage)


async def test_what_passes_by_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "there", "gone")
    with pytest.raises(Otherwise):
        await replay(story(Scene(1, ["shown"], "there"), Scene(2, ["say x"], "x")), shown.stage)


async def test_what_changes_after_the_last_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "there", "there", "gone")
    with pytest.raises(Otherwise, match="later on"):
        await replay(story(Scene(1, ["shown"], "there")), shown.stage)


async def test_views_before_an_action_may_have_changed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "first", "first", "second")
    await replay(story(Scene(1, ["shown"], "first"), Scene(2, ["say x", "shown"], "x\nsecond")), shown.stage)


async def test_a_known_difference_is_expected_of_klamm_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "x")
    scene = Scene(1, ["say klamm"], "kafka", ("a reason", "klamm"))
    await replay(story(scene), shown.stage)
    shown.target.name = "kafka"
    with pytest.raises(Otherwise):
        await replay(story(scene), shown.stage)


async def test_recording_waits_until_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, "1", "2", "3")
    assert await record(story(Scene(1, ["say a", "shown"]), Scene(2, ["say b"])), shown.stage) == ["a\n3", "b"]


@pytest.mark.parametrize("lines", [["nonsense"], ["shown", "say x"]])
async def test_unknown_words_and_views_before_the_end_are_bad_stories(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    shown = Shown(monkeypatch, "x")
    with pytest.raises(BadStory, match="line 7"):
        await replay(story(Scene(7, lines, "")), shown.stage)


SAMPLE = """# A comment.
# And another.
cluster: own
properties: a.b=c d=e

== First (1.2, Fetch)

start 0
state t
----
t-0 leader 1
---- klamm: because
t-0 leader 2

stop 0
----

== Second (3)

stop 0
----
"""


def test_a_file_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "sample.txt"
    path.write_text(SAMPLE)
    file = read(path)
    assert (file.shared, file.properties, [s.title for s in file.stories]) == (False, {"a.b": "c", "d": "e"}, ["First", "Second"])
    first, second = file.stories[0].scenes
    assert (first.commands, first.outcome, first.klamm) == (["start 0", "state t"], "t-0 leader 1", ("because", "t-0 leader 2"))
    assert (second.line, second.commands, second.outcome, second.klamm) == (15, ["stop 0"], "", None)
    assert file.stories[0].id == "sample-first"
    assert file.text() == SAMPLE


def test_a_signature_is_of_commands_and_outcomes(tmp_path: Path) -> None:
    path = tmp_path / "sample.txt"
    path.write_text(SAMPLE)
    file = read(path)
    assert not file.is_recorded()
    file.recorded = file.signature("Kafka 1")
    path.write_text(file.text())
    assert read(path).is_recorded()
    path.write_text(file.text().replace("because", "therefore"))
    assert read(path).is_recorded(), "reasons are ours"
    path.write_text(file.text().replace("t-0 leader 1", "t-0 leader 3"))
    assert not read(path).is_recorded()


@pytest.mark.parametrize("text", ["# x\ncluster: own\n\nstart 0\n----\n", "== No sections\n\nstart 0\n----\n", "== A (1)\n\n----\nx\n"])
def test_text_that_is_no_story_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sample.txt"
    path.write_text(text)
    with pytest.raises(BadStory, match=r"sample\.txt:"):
        read(path)


def test_ports_times_and_ids_of_nodes_are_masked() -> None:
    raw = '{"port":40123,"timestamp":"1700000000000","topic_id":"AbCdEfGhIjKlMnOpQrStUg","endpoints":["PLAINTEXT://127.0.0.1:40123"],"leader":4}'
    masked = '{"port":<port>,"timestamp":"<time>","topic_id":"<id>","endpoints":["PLAINTEXT://127.0.0.1:<port>"],"leader":4}'
    assert command_views.masked(raw) == masked


def test_answers_are_masked_and_named() -> None:
    kind = messages.DeleteTopicsResponse
    results = (("b", b"\1", 0), ("a", b"\0", 3))
    rows = [kind.DeletableTopicResult(name=name, topic_id=bytes(15) + last, error_code=code) for name, last, code in results]
    assert answers.answer(kind(responses=rows), 6).split("\n") == [
        'responses: {"name":"a","topicId":"zero","errorCode":"UNKNOWN_TOPIC_OR_PARTITION","errorMessage":null}',
        'responses: {"name":"b","topicId":"<id>","errorCode":"NONE","errorMessage":null}',
    ]
    assert answers.grouped([(0, "x"), (1, "x"), (2, "y\nz")]) == "v0-1: x\nv2: y\nv2: z"
    assert answers.versions("v*", "ElectLeaders") == [0, 1, 2]


def test_requests_take_what_their_version_has() -> None:
    value: dict[str, Any] = {"electionType": 1, "topicPartitions": [{"topic": "t", "partitions": [0]}], "timeoutMs": 5}
    assert answers.request("ElectLeaders", 0, value).election_type == 0
    assert answers.request("ElectLeaders", 1, value).election_type == 1
    with pytest.raises(AssertionError, match="no field"):
        answers.request("ElectLeaders", 1, {"elections": 1})


def test_frames_are_taken_apart_by_partition() -> None:
    kind = messages.UpdateMetadataRequest
    epochs: dict[str, Any] = {"leader_epoch": 2, "zk_version": 3, "controller_epoch": 4}
    state = kind.UpdateMetadataPartitionState(partition_index=0, leader=1, isr=(1,), replicas=(1, 2), **epochs)

    def told(*topics: str, leader: int = 1) -> Frame:
        states = [kind.UpdateMetadataTopicState(topic_name=name, partition_states=[state._replace(leader=leader)]) for name in topics]
        live = [kind.UpdateMetadataBroker(id=i, endpoints=[kind.UpdateMetadataEndpoint(port=10 + i)]) for i in (2, 1)]
        return Frame(1, 1, "UpdateMetadata", 8, 0, "0", kind(controller_id=7, controller_epoch=8, topic_states=states, live_brokers=live))

    seen = [told("a", "b"), told("a"), told("a", leader=2), told("a")]
    line = "a-0 UpdateMetadata v8 by 7/8: leader {} le 2 isr 1 ce 4 pe 3 replicas 1,2"
    assert frames.told(seen, ["a"]) == "\n".join(line.format(leader) for leader in (1, 2, 1))
    assert frames.told(seen, ["c"]) == "nothing"
    assert frames.live(seen, 0, {1: 11, 2: 99}) == "by 7/8: 1,2:12"
    assert frames.live(seen, 2, {1: 11, 2: 99}) == "nothing", "new"


@pytest.mark.parametrize(
    ("target", "differs", "told", "ends"), [("kafka", 0, 1, True), ("kafka", 1, 2, True), ("kafka", 2, 2, False), ("klamm", 1, 1, False)]
)
async def test_only_a_real_kafka_is_asked_twice(monkeypatch: pytest.MonkeyPatch, target: str, differs: int, told: int, ends: bool) -> None:
    library = Library(Path(__file__).parent, "nowhere", Target(target))
    tellings: list[str] = []

    async def tell(story_id: str) -> None:
        tellings.append(story_id)
        if len(tellings) <= differs:
            raise Otherwise("somewhere", [], "this", "that")

    monkeypatch.setattr(library, "_tell", tell)
    with warnings.catch_warnings(record=True), nullcontext() if ends else pytest.raises(Otherwise):
        await library.tell("a-story")
    assert len(tellings) == told
