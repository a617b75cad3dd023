"""The report of a lake that a proxy or a capture wrote: who spoke, who broke which rule, and nothing about what such a lake cannot know."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from klamm.pipeline.report.write import report
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import TinyJournal


def strangers(lake: Path, *, with_broker: bool = False) -> None:
    """A client whose members of groups say nothing that decodes, and a broker that gives a producer no id."""
    with TinyJournal(lake) as journal:
        journal.event("broker_started" if with_broker else "conn_open")
        client = journal.connection(8, kind="accepted", client_id="app", client_sw="sarama/1.2")
        form = messages.JoinGroupRequest
        asked = journal.request(
            client, ApiKey.JOIN_GROUP, 7, form("g", 6_000, 6_000, "", None, "consumer", [form.JoinGroupRequestProtocol("range", b"\0\1")])
        )
        journal.response(client, asked, messages.JoinGroupResponse(error_code=79, generation_id=-1, member_id="m"))
        asked = journal.request(client, ApiKey.INIT_PRODUCER_ID, 4, messages.InitProducerIdRequest(None, 1_000))
        journal.response(client, asked, messages.InitProducerIdResponse(producer_id=-1, producer_epoch=-1))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = tmp_path_factory.mktemp("strangers")
    strangers(lake)
    return re.sub(r"<script.*?</script>", "", report(lake).page, flags=re.DOTALL)


def section(page: str, name: str) -> str:
    """The section as text, with one blank between words."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    assert found is not None, name
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[1])).split())


def test_the_page_says_who_spoke_and_in_which_versions(page: str) -> None:
    said = section(page, "who")
    assert "sarama/1.2 as app: 1 connection, 2 requests, 1 with an error ; median latency" in said
    assert "InitProducerId 4, JoinGroup 7" in said


def test_violations_are_counted_by_broker_and_by_client(page: str) -> None:
    said = section(page, "rules")
    assert "broker rules that it broke, and how often broker 1 T-07 1" in said
    assert "client rules that it broke, and how often app (sarama/1.2) K-06 1" in said
    assert 'href="#rule-T-07"' in page and 'id="rule-T-07"' in page


def test_a_violation_has_its_frames_side_by_side_and_says_what_it_rests_on(page: str) -> None:
    (one,) = re.findall(r'<div class="rule" id="rule-T-07">(.*?)</ul></div>', page, re.DOTALL)
    assert "docs/spec/wire.md, section 13" in one
    assert re.findall(r"<div><b>([^<]*)</b>", one) == ["InitProducerId v4 request", "InitProducerId v4 response"]
    assert "&quot;producerId&quot;: -1" in one


def test_what_frames_of_clients_do_not_show_is_left_out(page: str) -> None:
    assert not re.search(r'<section id="(leadership|led|reassignments)">', page)
    assert "partitions</span>" not in page
    assert "rules need more than that, and are not applicable." in section(page, "rules")


def test_a_run_of_brokers_has_sections_of_what_did_not_happen(tmp_path: Path) -> None:
    strangers(tmp_path, with_broker=True)
    assert "Nothing was reassigned." in section(report(tmp_path).page, "reassignments")
