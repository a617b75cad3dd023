"""Our controller, told the story that a real one was recorded in, says the same to every broker, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.protocol import json_form
from klamm.tests.harness.names import unique_name
from klamm.tests.stories.recorded.recording import Form, Recorded, recording, steps, topic_ids
from klamm.tests.stories.recorded.teller import BROKERS, Teller

BY_HAND = "reassign-pair-0-1-to-2-1"
STOPS = {"stop-2-cleanly": 2, "dirty-stop-2": 2, "stop-controller-0-cleanly": 0, "stop-2-before-delete": 2}
REQUESTS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")


@pytest.fixture(scope="module")
def told(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teller]:
    """The story, told once."""
    teller = Teller(zookeeper, f"/{unique_name('story')}", tmp_path_factory.mktemp("story"))
    asyncio.run(teller.tell())
    yield teller


def recorded_epoch(epoch: int) -> int:
    return epoch


def our_epoch(epoch: int) -> int:
    """The hand-made reassignment cost one election: ours are one ahead from there on."""
    return max(1, epoch - 1)


class Side:
    """What was said in each step to each broker, in the form that is compared."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.said: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.answered: dict[tuple[str, int], list[dict[str, Any] | None]] = {}


@pytest.fixture(scope="module")
def real() -> Side:
    ports: dict[int, set[int]] = {}
    for r in recording():
        for broker in r.body.get("liveBrokers", []) if r.api == "UpdateMetadata" and not r.is_answer else []:
            ports.setdefault(broker["id"], set()).update(e["port"] for e in broker["endpoints"])
    side = Side(Form(recorded_epoch, lambda broker, port: port in ports[broker], topic_ids()))
    answers = {r.pair: r for r in recording() if r.is_answer}
    for r in recording():
        if not r.is_answer and r.api in REQUESTS:
            place = (r.step, r.receiver)
            side.said.setdefault(place, []).append(side.form.request(r.receiver, r.api, r.version, r.body))
            answer: Recorded | None = answers.get(r.number)
            side.answered.setdefault(place, []).append(None if answer is None else side.form.answer(r.api, answer.body))
    return side


@pytest.fixture(scope="module")
def ours(told: Teller) -> Side:
    side = Side(Form(our_epoch, lambda broker, port: port == told.fronts[broker].port, told.names))
    for step, by_broker in told.heard.items():
        for broker, frames in by_broker.items():
            for frame in frames:
                body = json_form.to_json(frame.body, frame.version)
                side.said.setdefault((step, broker), []).append(side.form.request(broker, frame.api, frame.version, body))
                answer = told.fronts[broker].answers.get(frame.number)
                form = None if answer is None else side.form.answer(frame.api, json_form.to_json(answer, frame.version))
                side.answered.setdefault((step, broker), []).append(form)
    return side


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("step", [s for s in steps() if s != BY_HAND])
def test_controller_sends_the_recorded_requests(step: str, broker: int, real: Side, ours: Side) -> None:
    mine, recorded = ours.said.get((step, broker), []), real.said.get((step, broker), [])
    if step in STOPS:
        # a broker that leaves hears as much as its haste allows, and a controller that resigns drops what it has not sent
        of = STOPS[step]
        last = [[f for f in side if of in (f["controllerId"], broker)] for side in (mine, recorded)]
        heard = min(map(len, last))
        assert last[0][:heard] == last[1][:heard]
        mine, recorded = ([f for f in side if of not in (f["controllerId"], broker)] for side in (mine, recorded))
    assert mine == recorded


@pytest.mark.parametrize(
    "step",
    ["start-2-again", "start-1-again", "freeze-2", "thaw-2", "dirty-start-2", "dirty-start-1", "start-0-again", "start-2-deletion-resumes"],
)
def test_leaders_get_the_recorded_responses_to_alter_partition(step: str, told: Teller) -> None:
    pairs = told.altered[step]
    assert pairs
    for mine, recorded in pairs:
        assert mine == recorded


def test_first_block_of_producer_ids_is_the_recorded_one(told: Teller) -> None:
    (recorded,) = [r.body for r in recording() if r.is_answer and r.api == "AllocateProducerIds"]
    assert told.producer_ids == recorded


@pytest.mark.parametrize("broker", BROKERS)
def test_brokers_send_the_recorded_responses(broker: int, real: Side, ours: Side) -> None:
    """Wherever a step's requests are the same, and both sides have the answer."""
    compared = 0
    for step in steps():
        place = (step, broker)
        if step == BY_HAND or real.said.get(place) != ours.said.get(place):
            continue
        for mine, recorded in zip(ours.answered.get(place, []), real.answered.get(place, []), strict=True):
            if mine is not None and recorded is not None:
                compared += 1
                assert mine == recorded, step
    assert compared > 50
