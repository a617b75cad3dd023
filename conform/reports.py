"""The outcomes of a run as lines of text, as JSON, as JUnit's XML and as one HTML page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from xml.sax.saxutils import quoteattr

from klamm.conform import recorded
from klamm.conform.case import Case, Exchange, Outcome, Result
from klamm.conform.connection import KEYS, without_prefix
from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.json_form import to_json

SHOWN_BYTES = 512
"""How much of a frame that does not decode is shown."""
SHOWN_TEXT = 1200
SHOWN_LINES = 8
"""How many of the last lines of a client are printed below its case."""


def failed(outcomes: Sequence[Outcome], strict: bool) -> list[Outcome]:
    """Those that let the run fail."""
    bad = {Result.FAIL, Result.NON_STRICT} if strict else {Result.FAIL}
    return [outcome for outcome in outcomes if outcome.result in bad]


def line(outcome: Outcome) -> str:
    """One outcome in one line; below it the last lines that a client printed."""
    reason = f": {without_prefix(outcome.reason)}" if outcome.reason and outcome.result is not Result.PASS else ""
    output = "".join(f"\n    {each}" for each in outcome.output.splitlines()[-SHOWN_LINES:])
    return f"{outcome.result.value:<10} {outcome.case.id} {outcome.case.sentence}{reason}{output}"


def case_line(case: Case) -> str:
    """One case that is not run."""
    return f"{case.level.value:<6} {case.id} {case.sentence} [{case.source}]{' destructive' if case.destructive else ''}"


def totals(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Result → number of cases."""
    counts = Counter(outcome.result for outcome in outcomes)
    return {result.value: counts[result] for result in Result}


def by_section(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Section → result → number of cases."""
    sections: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        sections.setdefault(f"{outcome.case.number} {outcome.case.section}", []).append(outcome)
    return {name: totals(group) for name, group in sections.items()}


# JSON and JUnit


def as_json(party: str, name: str, outcomes: Sequence[Outcome], left: str) -> dict[str, Any]:
    """The whole run. `party` says what was tested: `server` or `client`."""
    cases = [
        {
            "id": outcome.case.id,
            "level": outcome.case.level.value,
            "sentence": outcome.case.sentence,
            "source": outcome.case.source,
            "result": outcome.result.value,
            "reason": outcome.reason,
            **({"output": outcome.output} if outcome.output else {}),
            "seconds": round(outcome.seconds, 4),
        }
        for outcome in outcomes
    ]
    return {party: name, "totals": totals(outcomes), "sections": by_section(outcomes), "left_behind": left, "cases": cases}


def as_junit(outcomes: Sequence[Outcome], strict: bool) -> str:
    """A suite for each section. Missing and Info are skipped tests; Non-strict is a failure only if `strict`."""
    rows = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    bad = {id(outcome) for outcome in failed(outcomes, strict)}
    for section in dict.fromkeys(outcome.case.section for outcome in outcomes):
        group = [outcome for outcome in outcomes if outcome.case.section == section]
        failures = sum(id(outcome) in bad for outcome in group)
        skipped = sum(outcome.result in (Result.MISSING, Result.INFO) for outcome in group)
        rows.append(f'<testsuite name={quoteattr(section)} tests="{len(group)}" failures="{failures}" skipped="{skipped}">')
        rows += [_junit_case(outcome, id(outcome) in bad) for outcome in group]
        rows.append("</testsuite>")
    return "\n".join([*rows, "</testsuites>"]) + "\n"


def _junit_case(outcome: Outcome, is_bad: bool) -> str:
    reason = quoteattr(_xml_text(outcome.reason))
    body = ""
    if is_bad:
        body = f"<failure message={reason}/>"
    elif outcome.result in (Result.MISSING, Result.INFO):
        body = f"<skipped message={reason}/>"
    name = quoteattr(_xml_text(f"{outcome.case.id} {outcome.case.sentence}"))
    if outcome.output:
        body += f"<system-out>{escape(_xml_text(outcome.output))}</system-out>"
    return f'<testcase classname={quoteattr(outcome.case.section)} name={name} time="{outcome.seconds:.4f}">{body}</testcase>'


def _xml_text(text: str) -> str:
    """XML has no control characters, not even escaped."""
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)


# frames


def request_text(exchange: Exchange) -> str:
    """The request of an exchange, decoded."""
    if not exchange.name:
        return _hex(exchange.request)
    try:
        header, offset = messages.decode_request_header(exchange.request[4:])
        name = f"{exchange.name}Request"
        body = messages.decode(name, exchange.version, exchange.request[4:], offset)[0]
    except (RemoteProtocolError, LocalProtocolError) as error:
        return f"{error}\n{_hex(exchange.request)}"
    return f"{exchange.name} {exchange.version}, correlation id {header.correlation_id}\n{_shown(body, exchange.version)}"


def response_text(exchange: Exchange) -> str:
    """The response of an exchange, decoded."""
    if exchange.response is None:
        return "no response"
    if exchange.name not in KEYS:
        return _hex(exchange.response)
    try:
        correlation_id, offset = messages.decode_response_header(KEYS[exchange.name].key, exchange.version, exchange.response)
        body = messages.decode(f"{exchange.name}Response", exchange.version, exchange.response, offset)[0]
    except (RemoteProtocolError, LocalProtocolError) as error:
        return f"{error}\n{_hex(exchange.response)}"
    return f"{exchange.name} {exchange.version}, correlation id {correlation_id}\n{_shown(body, exchange.version)}"


def _shown(body: Any, version: int) -> str:
    text = json.dumps(to_json(body, version), indent=1, ensure_ascii=False)
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}\n… {len(text) - SHOWN_TEXT} more characters"


def _hex(data: bytes) -> str:
    rows = [data[at : at + 16].hex(" ") for at in range(0, min(len(data), SHOWN_BYTES), 16)]
    return "\n".join([*rows, f"{len(data)} bytes"])


# HTML

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left}
td.n{text-align:right}details{margin:.2em 0}summary{cursor:pointer}
pre{background:#f5f5f5;padding:.6em;overflow:auto;max-height:30em;margin:0}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:.6em;margin:.5em 0}.r{display:inline-block;width:6em;font-weight:600}
.Pass{color:#187a2f}.Fail{color:#b00020}.Non-strict{color:#a15c00}.Info,.Missing{color:#666}
"""


def as_html(server: str, outcomes: Sequence[Outcome], left: str) -> str:
    """One page without anything from elsewhere: a table of the sections, then each case with its frames and what Apache Kafka answered."""
    head = "".join(f"<th>{result.value}</th>" for result in Result)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>" + "".join(f'<td class="n">{count}</td>' for count in counts.values()) + "</tr>"
        for name, counts in by_section(outcomes).items()
    )
    note = f"<p>Left behind: {escape(left)}</p>" if left else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>klamm conform {escape(server)}</title><style>{_STYLE}</style>'
        f"<h1>klamm conform {escape(server)}</h1>{note}<table><tr><th>Section</th>{head}</tr>{rows}</table>"
        + "".join(map(_html_case, outcomes))
        + "</html>\n"
    )


def as_matrix(cells: Mapping[tuple[str, str], Sequence[Outcome]]) -> str:
    """One page: (client, server) → how many of its cases passed and failed, with the frames of those that a pair does not obey."""
    clients, servers = dict.fromkeys(client for client, _ in cells), dict.fromkeys(server for _, server in cells)
    head = "".join(f"<th>{escape(server)}</th>" for server in servers)
    rows = "".join(
        f"<tr><td>{escape(client)}</td>" + "".join(_cell(client, server, cells.get((client, server), ())) for server in servers) + "</tr>"
        for client in clients
    )
    pairs = "".join(
        f'<h2 id="{_anchor(*pair)}">{escape(pair[0])} and {escape(pair[1])}</h2>'
        + "".join(_html_case(each, f"{_anchor(*pair)}-", each.is_broken) for each in outcomes)
        for pair, outcomes in cells.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Clients and servers</title><style>{_STYLE}</style>'
        f"<h1>Clients and servers</h1><table><tr><th>Client</th>{head}</tr>{rows}</table>{pairs}</html>\n"
    )


def _cell(client: str, server: str, outcomes: Sequence[Outcome]) -> str:
    """The counts of a pair, with a link to the first case that failed."""
    counts, broken = totals(outcomes), [each for each in outcomes if each.is_broken]
    text = ", ".join(f"{count} {result}" for result, count in counts.items() if count) or "not run"
    result = "Fail" if counts["Fail"] else "Non-strict" if broken else "Pass" if counts["Pass"] else "Missing"
    target = f"{_anchor(client, server)}-{broken[0].case.id}" if broken else _anchor(client, server)
    return f'<td><a class="{result}" href="#{escape(target)}">{text}</a></td>'


def _anchor(client: str, server: str) -> str:
    return "-".join(f"{client} {server}".split())


def _html_case(outcome: Outcome, prefix: str = "", has_frames: bool = True) -> str:
    case, result = outcome.case, outcome.result.value
    answers = "".join(
        f"<tr><td>Apache Kafka {release}</td><td>{escape(one)}</td><td>{escape(text)}</td></tr>"
        for release, (one, text) in recorded.of_case(case.id).items()
    )
    pairs = "".join(
        f'<div class="pair"><pre>{escape(request_text(each))}</pre><pre>{escape(response_text(each))}</pre></div>'
        for each in (outcome.exchanges if has_frames else ())
    )
    output = f"<pre>{escape(outcome.output)}</pre>" if outcome.output else ""
    return (
        f'<details id="{escape(prefix + case.id)}"{" open" if result == "Fail" else ""}><summary><span class="r {result}">{result}</span> '
        f"{escape(case.id)} {escape(case.sentence)}</summary><p>{case.level.value}. {escape(case.source)}. "
        f"{escape(outcome.reason)}</p>{output}<table>{answers}</table>{pairs}</details>"
    )
