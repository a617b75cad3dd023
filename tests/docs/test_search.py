"""Questions of a new user, typed into the search of the site, lead to the answer with one click, or with a second one on a link there."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.tests.docs.site_search import ask, build_index

pytestmark = pytest.mark.slow
FIRST = 3
"""Results that somebody looks at."""


class Question(NamedTuple):
    """What is typed, a page that answers it in full, and what that page says."""

    typed: str
    page: str
    answer: str


QUESTIONS = (
    Question("how to install klamm", "tutorials/run_a_cluster.html", "pip install 'klamm[embedded]'"),
    Question("pytest fixture", "tutorials/test_my_client.html", "The fixture klamm is a cluster of three brokers"),
    Question("make a produce request fail", "testing_with_klamm.html", "klamm.fault(api=\"Produce\", topic=orders"),
    Question("kill a broker in a test", "testing_with_klamm.html", "klamm.kill_broker(klamm.wait_for_leader("),
    Question("run with docker compose", "containers.html", "docker compose up --build --detach"),
    Question("client cannot connect from docker container", "containers.html", "KLAMM_ADVERTISED=klamm:9092"),
    Question("use from java", "containers.html", "A GenericContainer whose port is chosen before it starts"),
    Question("address already in use", "troubleshooting.html", "klamm serve --port 0 --json takes free ports"),
    Question("consumer gets no messages", "troubleshooting.html", "unless auto.offset.reset=earliest"),
    Question("enable ssl and password", "tls_and_sasl.html", "klamm serve --tls --sasl SCRAM-SHA-256 --json"),
    Question("simulate older kafka version", "versions.html", "klamm serve --as-version 2.8"),
    Question("keep data after restart", "serve.html", "topics and records survive a restart"),
    Question("change the port", "serve.html", "klamm serve --port 0"),
    Question("does it support kraft", "what_works.html", "tiered storage, telemetry of clients, KRaft, Schema Registry"),
    Question("compare with testcontainers", "comparison.html", "the real thing"),
    Question("see what my client sent", "testing_with_klamm.html", "klamm journal tail ./lake --api Produce"),
)
"""Ten are asked for."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_index(tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module")
def found(index: Path) -> list[list[str]]:
    """For each question the first results: places of pages or sections."""
    return [[places[0] for places in results[:FIRST]] for results in ask(index, [each.typed for each in QUESTIONS])]


def test_two_clicks_lead_from_a_question_to_the_page_with_the_answer(index: Path, found: list[list[str]]) -> None:
    pages, lost = index.parent.parent, {}
    for question, one_click in zip(QUESTIONS, found, strict=True):
        two_clicks = {link for place in one_click for link in links(pages / place.partition("#")[0], place.partition("#")[2])}
        if question.page not in {place.partition("#")[0] for place in one_click} | two_clicks:
            lost[question.typed] = one_click
    assert not lost


def links(page: Path, section: str) -> set[str]:
    """Pages that a section of a page of the site links to; without `section`, all that it links to."""
    text = page.read_text()
    if section:
        begin = re.search(rf'<h(\d) id="{re.escape(section)}"', text)
        assert begin is not None, section
        text = re.split(rf"<h[1-{begin[1]}] ", text[begin.end() :])[0]
    root = page.parent
    while not (root / "search").is_dir():
        root = root.parent
    found = {(page.parent / target).resolve() for target in re.findall(r'href="([^"#:]+\.html)', text)}
    return {target.relative_to(root).as_posix() for target in found if target.is_relative_to(root)}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.typed)
def test_the_page_has_the_answer(index: Path, question: Question) -> None:
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", (index.parent.parent / question.page).read_text())).split())
    assert question.answer in text


def test_the_first_result_is_a_page_for_users(found: list[list[str]]) -> None:
    for_developers = ("adr/", "spec/", "project/", "coverage", "walks", "compatibility", "architecture")
    assert [first for first, *_ in found if first.startswith(for_developers)] == []
