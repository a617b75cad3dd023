"""The report of a lake that was written without Spark: what the page says, and that nobody's text can change it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from click.testing import CliRunner

from klamm import __version__
from klamm.cli.main import klamm
from klamm.pipeline.decode.frame_decoder import Reason
from klamm.pipeline.report import charts, evidence, facts, reading, write
from klamm.pipeline.report.page import RuleText, _head
from klamm.pipeline.report.write import rendered
from klamm.tests.journal.writing import START_NS
from klamm.tests.pipeline.report import lakes

RULES = {
    "W-01": RuleText("error", "responses leave in request order", "wire 1"),
    "W-03": RuleText("error", "every request is answered once", "wire 1"),
    "X-03": RuleText("warn", "retry storm", "advisory"),
    "C-16": RuleText("error", "Metadata shows the last UpdateMetadata", "controller 15"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    seqs = lakes.journal(lake)
    lakes.write_bronze(lake)
    lakes.tables(lake, seqs)
    return lake


@pytest.fixture(scope="module")
def page(lake: Path) -> str:
    return rendered(lakes.stored(lake), RULES)


def specs(page: str) -> dict[str, dict]:
    found = re.search(r'<script id="specs" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_page_has_all_pictures_and_their_rows(page: str) -> None:
    assert set(specs(page)) == {
        "leadership-picture", "led-picture", "balance-picture", "reassign-picture", "errors-picture", "latency-picture", "matrix-picture",
        "groups-picture", "incident-picture", "simulation-picture",
    }


def test_every_picture_is_as_wide_as_its_place_and_can_be_drawn(page: str) -> None:
    import vl_convert

    for name, spec in specs(page).items():
        assert spec["width"] == "container" and spec["autosize"]["type"] == "fit-x", name
        assert vl_convert.vegalite_to_vega(spec)["marks"], name


def test_every_picture_has_its_rows_as_a_table(page: str) -> None:
    for section in re.findall(r'<section id="([a-z]+)">(.*?)</section>', page, re.DOTALL):
        assert section[1].count('class="picture"') <= len(re.findall(r"<details><summary>[\d,]+ rows</summary>", section[1])), section[0]


def test_every_section_has_a_link_at_the_top(page: str) -> None:
    nav = re.search(r"<nav>(.*?)</nav>", page)
    assert nav is not None
    assert re.findall(r'href="#([a-z]+)"', nav[1]) == re.findall(r'<section id="([a-z]+)">', page)
    assert {"incident", "quarantine", "simulation"} <= set(re.findall(r'href="#([a-z]+)"', nav[1]))


def test_the_page_says_whose_report_it_is_and_that_times_are_utc(page: str) -> None:
    assert f"<h1>Klamm: run {lakes.RUN}</h1>" in page
    assert f"report of Klamm {__version__}, by hand; all times are UTC" in page


def test_a_count_of_nothing_has_no_colour_of_alarm(lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    held = [facts.RuleResult("W-01", 3, 0, [])]
    assert '<a class="chip none" href="#rules">0 violated</a>' in _head(replace(collected, rules=held), RULES)
    assert '<a class="chip violated" href="#rules">1 violated</a>' in _head(collected, RULES)


def test_the_time_in_which_replicas_copy_is_a_phase_of_a_reassignment() -> None:
    def phase(name: str, from_ms: int, to_ms: int, partition: str = "t-0") -> reading.Row:
        return {"topic_partition": partition, "phase": name, "throttle": "throttled", "from_ms": from_ms, "to_ms": to_ms}

    spans = [phase("U", 0, 1), phase("A1", 1, 2), phase("A2", 2, 3), phase("A2", 2, 4, "t-1"), phase("B1", 9000, 9001)]
    rows = facts._with_copying(spans, 20_000)
    assert [(row["topic_partition"], row["phase"], row["from_ms"], row["to_ms"]) for row in rows if row["phase"] == facts.COPY] == [
        ("t-0", "copy", 3, 9000), ("t-1", "copy", 4, 20_000)
    ]
    assert len(rows) == len(spans) + 2


def test_the_phases_of_reassignments_are_explained(page: str) -> None:
    for name in ("U", "A1", "B6"):
        assert f"<dt>{name}</dt><dd>{escape(charts.PHASES[name])}</dd>" in page


def test_page_loads_nothing(page: str) -> None:
    html = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["'](?!#)[^"']*""", html) == []
    assert "@import" not in html and "url(" not in html


def test_text_of_a_journal_stays_text(page: str) -> None:
    assert lakes.HOSTILE not in page
    assert "<script>document.title" not in page
    assert page.count("</script>") == 3, "the specifications, Vega, and what draws them"


def test_rules_are_violated_warn_hold_or_are_not_exercised(page: str) -> None:
    open_ones, _, folded = page.partition("<summary>2 other rules</summary>")
    rows = [re.findall(r"<b>([A-Z]-\d\d)</b> <span class=\"chip ([a-z-]+)\">", part) for part in (open_ones, folded)]
    assert rows == [[("W-03", "violated"), ("X-03", "warning")], [("W-01", "holds"), ("C-16", "not-exercised")]]
    assert "<li>2 more</li>" in page


def test_every_link_to_evidence_has_its_row(page: str) -> None:
    linked = set(re.findall(r'href="#(row-[^"]+)"', page))
    assert linked and linked <= set(re.findall(r'id="(row-[^"]+)"', page))


def test_evidence_is_a_tree_and_bytes(lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    shown = evidence.evidence(reading.StoredTables(lake, collected.run), evidence.places(collected))
    assert [each.title for each in shown] == [
        "Metadata v12 request", "Metadata v12 response", "bytes that are no request", "event controller_event",
    ]
    assert json.loads(shown[0].text)["topics"][0]["name"] == lakes.HOSTILE
    assert shown[0].hex.splitlines()[0].split()[:5] == ["0", "00", "00", "00", f"{shown[0].row['frame'][3]:02x}"]
    assert shown[2].text.partition(":")[0] in set(Reason)
    assert json.loads(shown[3].text)["input"]["name"] == "BrokerChange"


def test_without_violations_the_incident_is_the_death_of_a_broker(lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    incident = evidence.incident(reading.StoredTables(lake, collected.run), collected, [])
    assert incident is not None
    assert incident.title == "Controller 1: BrokerChange"
    assert incident.lifelines == ["broker 1", "broker 2", "ZooKeeper"]
    assert [(arrow["from"], arrow["to"], arrow["text"]) for arrow in incident.arrows] == [
        ("broker 1", "broker 1", "BrokerChange"),
        ("broker 1", "broker 1", "broker 3 is gone"),
        ("broker 1", "broker 1", "decides"),
        ("broker 1", "ZooKeeper", "set /brokers/topics/t/partitions/0/state and 3 more"),
        ("broker 1", "broker 1", "UpdateMetadata v8 request"),
        ("broker 1", "broker 1", "UpdateMetadata v8 response"),
        ("broker 1", "broker 2", "UpdateMetadata v8 request"),
        ("broker 2", "broker 1", "UpdateMetadata v8 response"),
    ]


def test_pictures_are_bounded_and_the_page_says_what_is_left_out(page: str, lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    assert len({row["topic_partition"] for row in collected.leaders}) == facts.PARTITIONS < collected.partitions == 64
    assert "the 40 that changed most of 64" in page


def test_a_generation_is_a_rebalance_and_the_time_until_the_next_one(lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    rows = [row for row in collected.generations if row["group"] == "payments"]
    begin = START_NS / 1e6
    assert [(row["generation"], row["phase"], round(row["from_ms"] - begin), round(row["to_ms"] - begin)) for row in rows[:-1]] == [
        (1, "rebalance", 1000, 1200), (1, "stable", 1200, 2000), (2, "rebalance", 2000, 2200), (2, "stable", 2200, 3000),
    ]
    assert (rows[-1]["generation"], rows[-1]["phase"], rows[-1]["to_ms"]) == (3, "rebalance", collected.end_ms)
    assert collected.groups == 2


def test_leaders_of_all_partitions_are_counted_at_each_time(lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    for at_ms in {row["at_ms"] for row in collected.led}:
        assert sum(row["partitions"] for row in collected.led if row["at_ms"] == at_ms) <= 64
    end = max(row["at_ms"] for row in collected.led)
    assert sum(row["partitions"] for row in collected.led if row["at_ms"] == end) == 64


def test_tables_without_rows_are_sentences(tmp_path: Path) -> None:
    lakes.journal(tmp_path)
    lakes.write_bronze(tmp_path)
    page = rendered(lakes.stored(tmp_path), RULES)
    assert set(specs(page)) == {"incident-picture"}
    assert "No group had members." in page
    for sentence in ("Nothing was reassigned.", "No response had an error code.", "No rule was checked", "Every frame decodes."):
        assert sentence in page


def test_brokers_have_the_same_colour_in_every_picture(lake: Path) -> None:
    collected = facts.collect(lakes.stored(lake))
    leadership, led = charts.leadership(collected), charts.led(collected)
    assert leadership is not None and led is not None
    scales = [spec["layer"][1]["encoding"]["color"]["scale"] for spec in (leadership, led)]
    colours = [dict(zip(scale["domain"], scale["range"], strict=True)) for scale in scales]
    assert colours[0] == colours[1] and len(set(colours[0].values())) == len(colours[0])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["."], "has no frames: brokers journal them with `klamm serve --journal"),
        (["{lake}", "--run", "other"], "has no run 'other'; it has 20261122T120000Z-0001"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(klamm, ["report", *(each.format(lake=lake) for each in arguments)])
    assert result.exit_code == 1
    assert reason in result.output and len(result.output.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_command_writes_the_file_and_says_its_size(lake: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.html"
    result = CliRunner().invoke(klamm, ["report", str(lake), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert re.fullmatch(rf"{output}: [01]\.\d MB, from the journal, by DuckDB\n", result.output)
    assert output.read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_a_report_does_not_import_the_grammars_of_formats(lake: Path, tmp_path: Path) -> None:
    """Importing them takes seconds."""
    script = (
        "import sys; from klamm.cli.start import main; sys.argv = ['klamm', 'report', sys.argv[1], '-o', sys.argv[2]]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\nassert 'rfc3987_syntax' not in sys.modules"
    )
    output = tmp_path / "report.html"
    subprocess.run([sys.executable, "-c", script, str(lake), str(output)], check=True)
    assert output.exists()


def test_the_script_of_the_pictures_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def bundle() -> str:
        made.append(1)
        return "let é = 1"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert {write._vega() for _ in range(2)} == {"let é = 1"} and len(made) == 1
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert {write._vega() for _ in range(2)} == {"let é = 1"} and len(made) == 3
