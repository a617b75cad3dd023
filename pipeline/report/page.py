"""The page: one HTML file that needs no other file. Vega draws its pictures in the browser, in the light or dark theme of the system or the
reader.

Text from the journal (names of topics and clients, frames) may come from an attacker. It is escaped in HTML, and in the JSON of pictures
`<` is written as a number, so that it cannot end a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from importlib.metadata import version
from itertools import groupby
from operator import attrgetter
from typing import Any

from klamm.pipeline.report import charts
from klamm.pipeline.report.clients import Client, Sent
from klamm.pipeline.report.evidence import Evidence, Incident, proof
from klamm.pipeline.report.facts import CLIENTS, GROUPS, PARTITIONS, Facts, RuleResult
from klamm.pipeline.report.reading import Place, Row, to_ms
from klamm.pipeline.rules.runner import rules as all_rules
from klamm.seams.value_class import dataclass


@dataclass(frozen=True, slots=True)
class RuleText:
    """What a rule says, beside its id."""

    severity: str
    statement: str
    source: str


def rule_texts() -> dict[str, RuleText]:
    """Of all rules, by id."""
    return {rule.id: RuleText(rule.severity, rule.statement, rule.source) for rule in all_rules().values()}


ZOOM = " Grey lines are new leader epochs. Shift and the wheel of the mouse zoom the picture, dragging moves it."

SIMULATED = (
    "step", "action", "partitions", "leaderless", "under_min_isr", "most_leaders", "fewest_leaders", "leaders_moved", "replicas_moved",
    "bytes_moved", "hours",
)
"""Columns of a simulation's summary that the page shows."""


Picture = Callable[[str, charts.Spec | None, str], str]
"""Puts a picture into the page: its name, what it shows or None, and the text where it has nothing to show."""


def render(
    facts: Facts,
    rules: Mapping[str, RuleText],
    shown: Sequence[Evidence],
    incident: Incident | None,
    vega: str,
) -> str:
    """The page as text. `vega` is the JavaScript of Vega, Vega-Lite and Vega-Embed."""
    specs: dict[str, charts.Spec] = {}

    def picture(name: str, spec: charts.Spec | None, missing: str) -> str:
        if spec is None:
            return _none(missing) if missing else ""
        specs[name] = spec
        return f'<div class="picture" id="{name}" role="img"></div>'

    sections = _sections(facts, rules, shown, incident, picture)
    template = (resources.files("klamm.pipeline.report") / "page.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": escape(f"Klamm: {facts.run}"),
        "NAV": _nav(sections),
        "HEAD": _head(facts, rules),
        "BODY": "\n".join(sections),
        "SPECS": json.dumps(specs, default=str).replace("<", "\\u003c"),
        "VEGA": vega.replace("</script", "<\\/script"),
    }
    page = re.sub("{{([A-Z]+)}}", lambda place: parts[place[1]], template)  # once: clients may have such names too
    return page.encode(errors="backslashreplace").decode()  # events may have half of a surrogate pair


def _sections(
    facts: Facts, rules: Mapping[str, RuleText], shown: Sequence[Evidence], incident: Incident | None, picture: Picture
) -> list[str]:
    """The sections of the page in their order; "" for one that this run does not have."""
    more = f"the {PARTITIONS} that changed most of {facts.partitions:,}" if facts.partitions > PARTITIONS else f"all {facts.partitions:,}"
    some = f"the {GROUPS} with most generations of {facts.groups:,}" if facts.groups > GROUPS else f"all {facts.groups:,} with members"
    groups = f"<p>Groups: {some}. A rebalance lasts until the first member has its assignment.</p>" if facts.groups else ""
    of_brokers = [
        _section(
            "leadership", "Leaders", f"<p>Partitions: {more}. Bands are the terms of controllers.</p>"
            + picture("leadership-picture", charts.leadership(facts), "No request of a controller said who leads.")
            + _table(facts.leaders, ("topic_partition", "leader", "leader_epoch", "controller_epoch", "from_ms", "to_ms")),
        ),
        _section(
            "led", "Leaders per broker",
            picture("led-picture", charts.led(facts), "No partition had a leader.")
            + _table(facts.led, ("leader", "at_ms", "partitions"))
            + picture("balance-picture", charts.leaders_before_and_after(facts), "")
            + _table(charts.balance(facts), ("leader", "when", "partitions")),
        ),
        _section(
            "reassignments", "Reassignments",
            f"<p>{facts.reassigned:,} partitions were reassigned.{ZOOM if facts.phases else ''}</p>"
            + picture("reassign-picture", charts.reassignments(facts), "Nothing was reassigned.") + _phase_texts(facts)
            + _table(facts.phases, ("topic_partition", "phase", "step", "throttle", "from_ms", "to_ms")),
        ),
    ]
    return [
        _section("who", "Who spoke", _who(facts)),
        _section("sent", "What clients sent", _sent(facts.sent, {each.place for each in shown})),
        _section("rules", "Rules", _rules(facts, rules, {each.place: each for each in shown})),
        # Without frames of a controller they would be empty.
        *(of_brokers if facts.leaders or facts.phases or not facts.is_of_clients else ()),
        _section(
            "groups", "Groups", groups + picture("groups-picture", charts.groups(facts), "No group had members.")
            + _table(
                facts.generations,
                ("group", "generation", "phase", "members", "leader", "partitions", "commits", "broker", "from_ms", "to_ms"),
            ),
        ),
        _section(
            "errors", "Errors",
            picture("errors-picture", charts.errors(facts), "No response had an error code.")
            + _table(facts.errors, ("what", "code", "at_ms", "counted", "count")),
        ),
        _section(
            "latency", "Latency", "<p>From a request to its response, at the slowest broker.</p>"
            + picture("latency-picture", charts.latencies(facts), "No response was sent.")
            + _table(facts.latencies, ("api", "percentile", "ms", "count")),
        ),
        _section(
            "clients", "Clients",
            (f"<p>The {CLIENTS} busiest of {facts.clients:,} clients.</p>" if facts.clients > CLIENTS else "")
            + picture("matrix-picture", charts.matrix(facts), "No client sent a request.")
            + _table(facts.matrix, ("client", "api", "version", "requests", "errors", "outside", "quarantined")),
        ),
        _section(
            "incident", "An incident",
            "" if incident is None else f"<p>{escape(incident.title)}</p>"
            + picture("incident-picture", charts.sequence(incident.arrows, incident.lifelines), "")
            + _table(incident.arrows, ("at", "from", "to", "text")),
        ) if incident is not None else "",
        _section("quarantine", "Quarantine", _plain(("reason", "count"), facts.quarantine) or _none("Every frame decodes.")),
        "" if facts.simulation is None else _section(
            "simulation", "Simulation", f"<p>{escape(facts.simulation.name)}</p>"
            + picture("simulation-picture", charts.simulated(facts.simulation), "")
            + _table(facts.simulation.leaders, ("broker", "when", "leaders")) + _plain(SIMULATED, facts.simulation.steps),
        ),
        _section("evidence", "Evidence", "".join(map(_evidence, shown)) or _none("There is no violation, and no client got an error.")),
    ]


def status(result: RuleResult, severity: str) -> str:
    """A rule that is not applicable or that nothing exercised did not hold and did not fail."""
    if result.lacks:
        return "not applicable"
    if result.checked == 0:
        return "not exercised"
    if result.violated == 0:
        return "holds"
    return "violated" if severity == "error" else "warning"


def anchor(place: Place) -> str:
    """The id of a row's place on the page."""
    return f"row-{place.node_id}-{place.seq}"


def _head(facts: Facts, rules: Mapping[str, RuleText]) -> str:
    counts = {"holds": 0, "violated": 0, "warning": 0, "not exercised": 0, "not applicable": 0}
    for result in facts.rules:
        counts[status(result, _severity(rules, result.rule))] += 1
    seconds = (facts.end_ms - facts.begin_ms) / 1000
    figures = [
        (f"{facts.counts['frames']:,}", "frames"),
        (f"{facts.counts['events']:,}", "events"),
        (f"{facts.counts['quarantine']:,}", "in quarantine"),
        (f"{len(facts.brokers)}", "brokers"),
        (f"{facts.partitions:,}", "partitions"),
        (f"{seconds:,.1f} s", f"from {_clock(facts.begin_ms)} UTC"),
    ]
    if facts.is_of_clients and not facts.partitions:
        del figures[4]  # only controllers say which partitions there are
    tiles = "".join(f'<div class="tile"><b>{value}</b><span>{escape(name)}</span></div>' for value, name in figures)
    chips = "".join(
        _chip(name if count else "none", f"{count} {name}", "#rules") for name, count in counts.items() if count or name != "warning"
    )
    others = [run for run in facts.runs[-8:] if run != facts.run]
    also = f'<p class="dim">Other runs of this lake: {escape(", ".join(others))}</p>' if others else ""
    verdicts = f'<div class="chips">{chips}</div>' if facts.rules else ""
    by = f"brokers of Klamm {', '.join(facts.versions)}; " if facts.versions else ""
    about = f'<p class="dim">{escape(by)}report of Klamm {version("klamm")}, {escape(facts.engine)}; all times are UTC</p>'
    lacks = "".join(f'<p class="error">{escape(note)}</p>' for note in facts.notes)
    return f'<h1>Klamm: run {escape(facts.run)}</h1>{about}{lacks}<div class="tiles">{tiles}</div>{verdicts}{also}'


def _nav(sections: Sequence[str]) -> str:
    """A link to each section that is there."""
    titles = (re.match(r'<section id="([a-z]+)"><h2>([^<]*)</h2>', section) for section in sections)
    return "".join(f'<a href="#{title[1]}">{title[2]}</a>' for title in titles if title is not None)


def _phase_texts(facts: Facts) -> str:
    """What the phases of the picture are."""
    seen = {row["phase"] for row in facts.phases}
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in charts.PHASES.items() if name in seen)
    return f'<dl class="phases">{lines}</dl>' if lines else ""


def _chip(status_name: str, text: str, link: str = "") -> str:
    name = status_name.replace(" ", "-")
    return f'<a class="chip {name}" href="{link}">{escape(text)}</a>' if link else f'<span class="chip {name}">{escape(text)}</span>'


def _none(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def _severity(rules: Mapping[str, RuleText], rule: str) -> str:
    return rules[rule].severity if rule in rules else "error"


def _section(name: str, title: str, content: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{content}</section>'


def _who(facts: Facts) -> str:
    """The software that sent requests, with what became of them, and the brokers."""
    brokers = ", ".join(map(str, facts.brokers))
    speakers = "".join(map(_speaker, facts.speakers))
    return f"<p>Brokers that got requests: {escape(brokers)}.</p>" + (speakers or _none("No client sent a request."))


def _speaker(row: Row) -> str:
    software, name = row["client_sw"], row["client_id"] or "no client id"
    who = f"<b>{escape(software or name)}</b>" + (f" as {escape(name)}" if software else "; it did not say its software")
    errors = f'<b class="error">{row["errors"]:,} with an error</b>' if row["errors"] else "no errors"
    odd = f", {row['quarantined']:,} that do not decode" if row["quarantined"] else ""
    times = "" if row["p50_ns"] is None else f"; median latency {to_ms(row['p50_ns']):,.1f} ms, p99 {to_ms(row['p99_ns']):,.1f} ms"
    counts = f"{_counted(row['connections'], 'connection')}, {_counted(row['requests'], 'request')}{odd}, {errors}{times}"
    spoken = ", ".join(f"{api} {'/'.join(versions)}" for api, versions in row["spoken"].items())
    return f'<p class="client">{who}: {counts}<br><span class="dim">{escape(spoken)}</span></p>'


def _accused(facts: Facts, is_client: bool) -> str:
    rows = [one for one in facts.accused if one.is_client == is_client]
    if not rows:
        return ""
    lines = ""
    for one in rows:
        links = ", ".join(f'<a href="#rule-{rule}">{rule}</a> {count:,}' for rule, count in one.rules.items())
        lines += f"<tr><td>{escape(one.who)}</td><td>{links}</td></tr>"
    head = f"<tr><th>{'client' if is_client else 'broker'}</th><th>rules that it broke, and how often</th></tr>"
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{lines}</tbody></table></div>'


def _rules(facts: Facts, rules: Mapping[str, RuleText], shown: Mapping[Place, Evidence]) -> str:
    """Who broke some, and those that are violated, with what violates them; the others are folded, a line each."""
    results = facts.rules
    if not results:
        return _none("No rule was checked: `klamm pipeline check` does that.")
    lacking = sum(bool(result.lacks) for result in results)
    about = (
        f"<p>The frames are those of clients. {lacking} rules need more than that, and are not applicable.</p>"
        if facts.is_of_clients and lacking else ""
    )
    order = {"violated": 0, "warning": 1, "holds": 2, "not exercised": 3, "not applicable": 4}
    broken: list[str] = []
    folded: list[str] = []
    for result in sorted(results, key=lambda one: (order[status(one, _severity(rules, one.rule))], one.rule)):
        text = rules.get(result.rule, RuleText("error", "", ""))
        name = status(result, text.severity)
        counts = f"{result.checked:,} checked, {result.violated:,} violated" if result.checked else ""
        counts = f"without {result.lacks}" if result.lacks else counts
        said = f'{escape(text.statement)} <span class="dim">{escape(_rests_on(text.source))}</span>'
        line = f'<b>{escape(result.rule)}</b> {_chip(name, name)} <span class="dim">{counts}</span>'
        links = "".join(_violation(violation, shown) for violation in result.violations)
        more = f"<li>{result.violated - len(result.violations):,} more</li>" if result.violated > len(result.violations) else ""
        proofs = f"<ul>{links}{more}</ul>" if links else ""
        (broken if result.violated else folded).append(
            f'<div class="rule" id="rule-{result.rule}">{line}<p>{said}</p>{proofs}</div>'
        )
    others = f'<details><summary>{len(folded)} other rules</summary>{"".join(folded)}</details>' if folded else ""
    return about + _accused(facts, False) + _accused(facts, True) + ("".join(broken) or _none("No rule is violated.")) + others


SIDE_BY_SIDE = 4
"""Number of frames of a violation that are beside each other."""


def _beside(places: Sequence[Place], shown: Mapping[Place, Evidence]) -> str:
    """The first frames of a violation beside each other, decoded."""
    frames = "".join(
        f"<div><b>{escape(each.title)}</b> <span class=\"dim\">broker {place.node_id}, row {place.seq}, {_clock(each.at_ms)}</span>"
        f"<pre>{escape(each.text)}</pre></div>"
        for place in places if (each := shown.get(place)) is not None
    )
    return f'<details><summary>frames side by side</summary><div class="side">{frames}</div></details>' if frames else ""


def _rests_on(source: str) -> str:
    """Where a rule is from, in words: a section of the specification is in a file of Klamm's documentation."""
    return re.sub(r"^(wire|controller|zookeeper-layout) (\d+)", r"docs/spec/\1.md, section \2", source)


def _violation(violation: Row, shown: Mapping[Place, Evidence]) -> str:
    rows = dict.fromkeys(proof(violation))
    by_broker = [
        f'<span class="dim">broker {broker}, rows</span> ' + " ".join(f'<a href="#{anchor(row)}">{row.seq}</a>' for row in of_broker)
        for broker, of_broker in groupby(rows, attrgetter("node_id"))
    ]
    return f'<li>{escape(violation["detail"] or "")} {"; ".join(by_broker)}{_beside([*rows][:SIDE_BY_SIDE], shown)}</li>'


def _sent(sent: Sent, shown: Collection[Place]) -> str:
    """The clients, those with errors first, and the list of their requests."""
    if not sent.clients:
        return _none("No client sent a request.")
    others = f"; brokers sent {sent.of_brokers:,}, which are not in this section" if sent.of_brokers else ""
    some = f" Shown are {len(sent.clients)} clients, those with most errors first." if sent.number > len(sent.clients) else ""
    about = f"<p>{_counted(sent.requests, 'request')} of {_counted(sent.number, 'client')}{others}.{some}</p>"
    return about + "".join(_client(client, shown) for client in sent.clients) + _requests(sent, shown)


def _client(client: Client, shown: Collection[Place]) -> str:
    software = f' <span class="dim">{escape(client.software)}</span>' if client.software not in ("", client.name) else ""
    errors = f'<b class="error">{client.errors:,} with an error</b>' if client.errors else "no errors"
    summary = f"<b>{escape(client.name)}</b>{software} {_counted(client.requests, 'request')}, {errors}"
    if not client.shown:
        return f'<p class="client">{summary}</p>'
    lines = "".join(
        f'<tr><td class="number" data-noun="{_noun(error.responses, "response")}">{error.responses:,}</td><td>{escape(error.api)}</td>'
        f"<td>{escape(error.errors)}</td>"
        f"<td>{_clock(error.at_ms)}</td>"
        f"<td>{'<br>'.join(map(escape, filter(None, [*error.before, error.fault])))}</td>"
        f"<td>{_link('request', error.request, shown)} {_link('response', error.response, shown)}</td></tr>"
        for error in client.shown
    )
    rest = client.errors - sum(error.responses for error in client.shown)
    more = f"<p>{client.left:,} more kinds of errors, of {rest:,} responses</p>" if client.left else ""
    head = "".join(f"<th>{name}</th>" for name in ("responses", "API", "error", "first at", "what changed just before", "its frames"))
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    return f'<details class="client" open><summary>{summary}</summary>{table}{more}</details>'


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {_noun(number, noun)}"


def _link(text: str, place: Place, shown: Collection[Place]) -> str:
    return f'<a href="#{anchor(place)}">{text}</a>' if place in shown else ""


def _requests(sent: Sent, shown: Collection[Place]) -> str:
    """The list of requests with its filters; without JavaScript it is the whole list."""
    lines = "".join(
        "<tr>" + "".join(_cell(name, row[name]) for name in ("at_ms", "client", "broker", "api", "version"))
        + f'<td class="result">{escape(row["result"])}</td>{_cell("latency", row["ms"])}'
        + f"<td>{_link('frame', row['request'], shown)} {escape(row['fault'])}</td></tr>"
        for row in sent.listed
    )
    left = sent.requests - len(sent.listed)
    which = f"The first ones with an error and the latest ones; {left:,} are left out." if left > 0 else "All requests."
    choices = "".join(
        f'<label>{label} <select id="of-{name}"><option value="">all</option>'
        + "".join(f"<option>{escape(value)}</option>" for value in sorted({row[name] for row in sent.listed}))
        + "</select></label>"
        for name, label in (("client", "Client"), ("api", "API"))
    )
    head = "".join(f"<th>{name}</th>" for name in ("at", "client", "broker", "API", "version", "result", "ms", ""))
    return (
        f'<details id="requests"><summary>{len(sent.listed):,} requests in order</summary><p class="dim">{which}</p>'
        f'<form class="filters">{choices}<label><input type="checkbox" id="of-errors"> only errors</label> '
        f'<output id="of-found"></output></form>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></details>'
    )


def _evidence(each: Evidence) -> str:
    hexes = f"<pre>{escape(each.hex)}</pre>" if each.hex else ""
    return (
        f'<details class="row" id="{anchor(each.place)}"><summary><b>broker {each.place.node_id}, row {each.place.seq}</b> '
        f'{escape(each.title)} <span class="dim">{_clock(each.at_ms)}</span></summary>'
        f'<div class="both"><pre>{escape(each.text)}</pre>{hexes}</div></details>'
    )


def _table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The rows of a picture, folded."""
    return "" if not rows else f"<details><summary>{len(rows):,} rows</summary>{_plain(columns, rows)}</details>"


def _plain(columns: Sequence[str], rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name.removesuffix('_ms').replace('_', ' '))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(name, row.get(name)) for name in columns) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "<td></td>"
    if name.endswith("_ms"):
        return f"<td>{_clock(value)}</td>"
    if isinstance(value, float):
        return f'<td class="number">{value:,.3f}</td>'
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"


def _clock(at_ms: float) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return f"{at_ms:.0f} ms"
