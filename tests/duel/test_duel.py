"""Random stories: how they are drawn and shrunk, and, the long way, a few minutes of them told to a real Kafka and to Klamm."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

import pytest

from klamm.tests.duel.account import requests
from klamm.tests.duel.known import KNOWN, explained
from klamm.tests.duel.pair import Difference
from klamm.tests.duel.running import DuelRun, batches
from klamm.tests.duel.shrinking import shrunk
from klamm.tests.duel.story import SETTINGS, draw_tale
from klamm.tests.duel.tale import ProducerMarks, Tale, named
from klamm.tests.stories.both import command_brokers, command_requests, command_views
from klamm.tests.stories.both.commands import ACTIONS, VIEWS
from klamm.tests.stories.both.story_file import read, read_all

STORIES = Path(command_views.__file__).parent
WORDS = (command_brokers, command_requests)
SEEDS, SEED_BATCHES, SEED_STORIES, SEED_S = (1, 2), 3, 8, 400.0
"""Seeds told by `make test-all`, how many batches of each and stories of a batch, and how long at most: the same stories every time."""


def _tales(seed: int) -> list[Tale]:
    return [tale for batch in islice(batches(seed, 10), len(SETTINGS)) for tale in batch.tales]


def test_a_seed_means_the_same_stories_again() -> None:
    assert _tales(5) == _tales(5)
    assert _tales(5) != _tales(6)


def test_random_stories_are_made_of_the_words_of_recorded_ones() -> None:
    for tale in _tales(7):
        for lines in tale.scenes:
            words = [line.split()[0] for line in lines]
            assert words, tale.name
            assert all(word in ACTIONS for word in words[:-1]), words
            assert words[-1] in ACTIONS or words[-1] in VIEWS, words


def test_random_stories_ask_in_every_area() -> None:
    words = {line.split()[0] for tale in _tales(8) for lines in tale.scenes for line in lines}
    asked = {line.split()[1] for tale in _tales(8) for lines in tale.scenes for line in lines if line.startswith("ask")}
    assert {"create", "delete", "grow", "elect", "alter-partition", "die", "bounce", "shutdown", "put-state", "resign", "steal"} <= words
    assert {"CreateTopics", "IncrementalAlterConfigs", "LeaderAndIsr", "UpdateMetadata", "StopReplica", "Metadata"} <= asked


def test_each_telling_has_names_of_its_own() -> None:
    assert named('told ~1 @2 {"brokerId":~1}', 7) == 'told 71 t7-2 {"brokerId":71}'
    assert named("fetch @1-0@5 as=~2", 7) == "fetch t7-1-0@5 as=72"


def test_producer_ids_and_epochs_are_those_that_brokers_gave() -> None:
    marks = ProducerMarks()
    line = "tx-add a pid=<pid a> epoch=<epoch a -1> t-0"
    assert marks.filled(line) == "tx-add a pid=-1 epoch=<epoch a -1> t-0"
    marks.learn(["tx-init a v0-1"], "v0: NONE id 7 epoch 3\nv1: NONE id 7 epoch 4")
    marks.learn(["tx-init a"], "v5: PRODUCER_FENCED")
    marks.learn(["tx-init b"], "v5: NONE id 8 epoch 0")
    assert marks.filled(line) == "tx-add a pid=7 epoch=3 t-0"
    assert marks.filled("ask X v0 <epoch 71> <epoch b +1>") == "ask X v0 <epoch 71> 1"


def test_a_story_file_of_transactions_has_no_marks_for_producers(tmp_path: Path) -> None:
    tale = Tale("1/2/3 transactions", (), (("tx-init @8",), ("tx-end @8 pid=<pid @8> epoch=<epoch @8> commit",)))
    path = tmp_path / "1-2-3.txt"
    path.write_text(tale.story_file(path, ["v5: NONE id 4 epoch 2", "v4: INVALID_TXN_STATE"], "Random.").text())
    assert [scene.commands for scene in read(path).stories[0].scenes] == [["tx-init t1-8"], ["tx-end t1-8 pid=4 epoch=2 commit"]]


def test_random_transactions_begin_write_and_end() -> None:
    tales = [draw_tale(f"1/0/{at}", "transactions", ()) for at in range(20)]
    words = {line.split()[0] for tale in tales for lines in tale.scenes for line in lines}
    assert {"tx-init", "tx-add", "tx-end", "tx-offsets", "tx-commit", "tx-markers", "tx-described", "produce", "fetched"} <= words


def test_every_version_asked_counts_as_a_request() -> None:
    tale = Tale("x", (), (("fakes ~1", "create @1 [~1]", "ask CreateTopics v2-4 {}"), ("state @1",), ("metadata @1",)))
    assert requests(tale) == 5


async def test_a_story_shrinks_to_what_it_needs() -> None:
    async def differs(tale: Tale) -> bool:
        lines = [line for scene in tale.scenes for line in scene]
        return "needed" in lines and any(line.startswith("ask X") and "2" in line.partition("{")[2] for line in lines)

    scenes = (("a",), ("b", "needed"), ("c",), ("d", "e"), ('ask X v1 {"rows":[1,2,3],"more":[[],[4]]}',))
    shorter = await shrunk(Tale("x", (), scenes), differs, 100)
    assert shorter.scenes == (("needed",), ('ask X v1 {"rows":[2],"more":[]}',))


async def test_shrinking_stops_when_it_may_ask_no_more() -> None:
    async def differs(tale: Tale) -> bool:
        return True

    tale = Tale("x", (), (("a",), ("b",), ("c",), ("d",)))
    assert len((await shrunk(tale, differs, 1)).scenes) == 3


def test_known_differences_are_those_of_recorded_stories() -> None:
    reasons = [scene.klamm[0] for file in read_all(STORIES) for story in file.stories for scene in story.scenes if scene.klamm]
    assert [known.reason for known in KNOWN if not any(reason.startswith(known.reason) for reason in reasons)] == []


def test_a_known_difference_explains_nothing_beside_it() -> None:
    commands = ["alter-partition t-0 leader=12 isr=12", "state t"]
    theirs, ours = "NONE, leader 12 le 0 isr 12 pe 1", "INVALID_REQUEST, leader 0 le 0 isr none pe 0"
    assert explained(Difference(0, commands, theirs, ours)) is not None
    assert explained(Difference(0, commands, f"t-1 leader 1\n{theirs}", f"t-1 leader 2\n{ours}")) is None
    assert explained(Difference(0, ["state t"], theirs, ours)) is None


@pytest.mark.parametrize("refusal", ["INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"])
def test_a_broker_without_a_replica_that_is_kept_out_of_an_isr_is_a_known_difference(refusal: str) -> None:
    commands = ["alter-partition t-0 leader=present isr=101,103 v1", "state t"]
    theirs, ours = "all NONE\nNONE, leader 101 le 0 isr 101,103 pe 1", f"all NONE\n{refusal}, leader 0 le 0 isr none pe 0"
    assert explained(Difference(0, commands, theirs, ours)) is not None
    assert explained(Difference(0, commands, ours, theirs)) is None
    assert explained(Difference(0, commands, theirs, ours.replace(refusal, "FENCED_LEADER_EPOCH"))) is None


def test_a_known_difference_is_recognised_whichever_versions_answer_alike() -> None:
    commands = ['ask CreateTopics v0-1 {"topics":[{"name":"t","assignments":[{"partitionIndex":-1,"brokerIds":[0]}]}]}']
    row = 'topics: {{"name":"t","errorCode":"{}"}}'
    theirs = f"v0: {row.format('NONE')}\nv1: {row.format('TOPIC_ALREADY_EXISTS')}\nv0: other\nv1: other"
    ours = f"v0-1: {row.format('INVALID_REPLICA_ASSIGNMENT')}\nv0-1: other"
    assert explained(Difference(0, commands, theirs, ours)) is not None
    assert explained(Difference(0, commands, theirs, ours + "\nv0-1: more")) is None
    assert explained(Difference(0, [commands[0].replace("-1", "7")], theirs, ours)) is None


def test_a_random_story_is_written_as_a_story_file(tmp_path: Path) -> None:
    tale = Tale("1/2/3 topics", (("num.partitions", "2"),), (("create @1 [0]",), ("state @1",)))
    path = tmp_path / "1-2-3.txt"
    path.write_text(tale.story_file(path, ["t1-1 NONE"], "Random.").text())
    file = read(path)
    assert file.properties == {"num.partitions": "2"}
    assert [(scene.commands, scene.outcome) for scene in file.stories[0].scenes] == [(["create t1-1 [0]"], "t1-1 NONE")]


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("seed", SEEDS)
async def test_klamm_does_what_kafka_does_in_random_stories(seed: int, tmp_path: Path) -> None:
    run = DuelRun(seed, tmp_path, print, SEED_STORIES)
    await run.until(time.monotonic() + SEED_S, SEED_BATCHES)
    assert run.account.stories > 0
    assert not run.account.unexplained, "\n".join([run.account.text(seed), *(path.read_text() for path in run.account.unexplained)])


def test_random_reassignments_begin_are_cancelled_and_caught_up_with() -> None:
    tales = [draw_tale(f"1/0/{at}", "reassignments", ()) for at in range(20)]
    lines = [line for tale in tales for lines in tale.scenes for line in lines]
    assert {"reassign", "put-reassignment", "alter-partition", "reassigning", "die", "bounce"} <= {line.split()[0] for line in lines}
    assert any("=cancel" in line for line in lines)
    assert all(line.count("@1-") == 1 for line in lines if line.startswith("reassign ") and "@1-" in line)
