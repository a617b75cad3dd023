"""A schedule is a pure function of its seed, keeps the promises of its options, and can be written to a file."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from klamm.chaos.kinds import KINDS, kind_named
from klamm.chaos.schedule import BadSchedule, Options, as_json, chosen_kinds, draw, from_json, read, write
from klamm.chaos.story import story, told

LONG = 30.0
SCENES = ("unclean-cut", "expire-offset")


def test_the_same_seed_gives_the_same_schedule_in_another_process() -> None:
    text = "import json; from klamm.chaos.schedule import *; print(json.dumps(as_json(draw(7, 2, Options(small_disks=True)))))"
    other = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert json.loads(other) == as_json(draw(7, 2, Options(small_disks=True)))


def test_other_seeds_give_other_schedules() -> None:
    assert len({draw(seed, 1, Options()).steps[:3] and str(draw(seed, 1, Options()).steps) for seed in range(20)}) == 20


@pytest.mark.parametrize("seed", range(20))
def test_never_two_brokers_are_away_at_once(seed: int) -> None:
    away = [step for step in draw(seed, LONG, Options(small_disks=True)).steps if KINDS[step.kind].takes_broker]
    assert all(later.at_ms > earlier.end_ms for earlier, later in itertools.pairwise(away))


def test_with_unclean_elections_two_brokers_may_be_away() -> None:
    away = [step for step in draw(3, LONG, Options(unclean=True)).steps if KINDS[step.kind].takes_broker]
    assert any(later.at_ms < earlier.end_ms for earlier, later in itertools.pairwise(away))


def test_a_long_schedule_has_every_kind_about_as_often() -> None:
    counts = Counter(step.kind for step in draw(1, LONG, Options(small_disks=True)).steps)
    assert set(counts) == {kind.name for kind in KINDS.values() if not kind.is_asked_for}
    for takes_broker in (True, False):
        own = [counts[kind.name] for kind in KINDS.values() if kind.takes_broker is takes_broker and not kind.is_asked_for]
        assert max(own) - min(own) <= 1


def test_disks_are_filled_only_where_they_can_be() -> None:
    assert "disk-full" not in {step.kind for step in draw(1, LONG, Options()).steps}


def test_steps_begin_in_order_within_the_time() -> None:
    schedule = draw(5, 2, Options())
    times = [step.at_ms for step in schedule.steps]
    assert times == sorted(times) and times[-1] < schedule.length_ms == 120_000


def test_only_and_without_choose_kinds() -> None:
    assert chosen_kinds(["kill", "elect"]) == ("kill", "elect")
    assert set(chosen_kinds(without=["kill"])) == set(KINDS) - {"kill", *SCENES}
    assert chosen_kinds(SCENES) == SCENES, "a kind that is asked for"
    assert {step.kind for step in draw(1, LONG, Options(kinds=chosen_kinds(["kill", "elect"]))).steps} == {"kill", "elect"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("kil", "did you mean 'kill'?"), ("cut_zookeeper", "did you mean 'cut-zookeeper'?"), ("nonsense", "there are kill, stop")],
)
def test_an_unknown_kind_is_refused_with_a_suggestion(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="is not a kind of step") as refused:
        kind_named(name)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("minutes", "options", "text"),
    [
        (0, Options(), "the time is to be above 0"),
        (-1, Options(), "the time is to be above 0"),
        (1, Options(brokers=2), "2 brokers are too few"),
        (1, Options(kinds=("disk-full",)), "no kind of step is left"),
    ],
)
def test_what_cannot_be_promised_is_refused(minutes: float, options: Options, text: str) -> None:
    with pytest.raises(BadSchedule, match=text):
        draw(1, minutes, options)


def test_no_kind_left_is_refused() -> None:
    with pytest.raises(BadSchedule, match="no kind of step is left"):
        chosen_kinds(["kill"], ["kill"])


def test_a_written_schedule_is_read_again(tmp_path: Path) -> None:
    schedule = draw(9, 1, Options(processes=True, small_disks=True))
    write(schedule, tmp_path / "schedule.json")
    assert read(tmp_path / "schedule.json") == schedule


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 2}, "format 2 is not 1"),
        ({"steps": [{"at_ms": 1, "kind": "kil", "lasts_ms": None, "parameters": {}}]}, "did you mean 'kill'"),
        ({"steps": [{"at_ms": 1}]}, "'kind' is missing"),
        ({"steps": 5}, "this is not a schedule"),
        ({"brokers": 2}, "too few"),
    ],
)
def test_a_file_that_is_not_a_schedule_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(BadSchedule, match=text):
        from_json(as_json(draw(1, 1, Options())) | change)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{"])
def test_a_file_of_something_else_is_refused_with_its_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(BadSchedule, match="file: "):
        read(tmp_path / "file")


def test_every_kind_is_told_in_a_sentence_of_its_own() -> None:
    schedule = draw(1, LONG, Options(small_disks=True, kinds=tuple(KINDS)))
    by_kind = {step.kind: told(step) for step in schedule.steps}
    assert len(set(by_kind.values())) == len(KINDS)
    lines = story(schedule)
    assert len(lines) == len(schedule.steps) + 2 and all(line.endswith(".") for line in lines)
