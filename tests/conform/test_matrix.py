"""The matrix of clients and servers: each pair is run, and what a pair does not obey is shown with its frames."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klamm.conform import reports
from klamm.conform.case import Case, Exchange, Level, Outcome, Result
from klamm.tests.conform import matrix
from klamm.tests.conform.servers import OWN


async def nothing(lab: object) -> None:
    """A case that is not run."""


def outcome(index: str, result: Result) -> Outcome:
    exchange = Exchange("ApiVersions", 0, b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", b"\0\0\0\1\0\0\0\0\0\0")
    case = Case("produce", 3, index, Level.MUST, "A sentence.", "a source", nothing)
    return Outcome(case, result, exchanges=[exchange], is_broken=result is Result.FAIL)


def test_a_red_cell_of_the_matrix_leads_to_its_frames() -> None:
    cells = {("one", "a server"): [outcome("1", Result.PASS)], ("two", "a server"): [outcome("1", Result.PASS), outcome("2", Result.FAIL)]}
    page = reports.as_matrix(cells)
    assert '<a class="Pass" href="#one-a-server">1 Pass</a>' in page
    assert '<a class="Fail" href="#two-a-server-produce/3.2">1 Pass, 1 Fail</a>' in page
    found = re.findall(r'<details id="([^"]*)".*?</details>', page, re.DOTALL)
    assert found == ["one-a-server-produce/3.1", "two-a-server-produce/3.1", "two-a-server-produce/3.2"]
    assert page.count("ApiVersions 0, correlation id 1") == 2  # request and response of the one that failed
    assert matrix.table(cells) == ["| section | one | two |", "|---|---|---|", "| 3 produce | 1 | 1 (1 fail) |"]


@pytest.mark.slow
def test_clients_run_with_servers_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that steers the cluster is Missing with a server that is not of the suite."""
    clients, servers = ["--client", "librdkafka", "--client", "franz-go"], ["--server", OWN, "--server", "kfake"]
    matrix.main(["produce/3.1", "produce/3.11", "fetch/4.16", *clients, *servers, "--html", str(tmp_path / "matrix.html")])
    own, other = capsys.readouterr().out.split("\nkfake\n")
    assert "| 3 produce | 2 | 2 |" in own and "| 3 produce | 1 | 1 |" in other
    assert all("| 4 fetch | 1 | 1 |" in each for each in (own, other))
    page = (tmp_path / "matrix.html").read_text()
    assert 'href="#franz-go-kfake">2 Pass, 1 Missing' in page
