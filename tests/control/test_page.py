"""The page of the control API in a browser: it shows the cluster, works with the keyboard alone, and fits in narrow windows."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kafka import KafkaProducer

from klamm.tests.cli.running import Running, call
from klamm.tests.control.browser import Page, browser
from klamm.tests.harness.names import unique_name

pytestmark = pytest.mark.slow

Cluster = dict[str, Any]


@pytest.fixture(scope="session")
def served(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a control API."""
    place = ("--port", "0", "--zookeeper", f"{zookeeper}/{unique_name('control-page')}", "--control-port", "0")
    running = Running(tmp_path_factory.mktemp("page"), "serve", "--json", *place, "--topic", "orders:3:3")
    try:
        yield running.ready()
    finally:
        running.kill()


def control(cluster: Cluster, *arguments: object) -> dict[str, Any]:
    done = call("control", *arguments, "--json", "--control", cluster["control"])
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def produce(cluster: Cluster, topic: str = "orders", client_id: str = "shop") -> None:
    producer = KafkaProducer(bootstrap_servers=cluster["bootstrap_servers"], client_id=client_id, retries=5)
    producer.send(topic, b"x", partition=0).get(30)
    producer.close()


@pytest_asyncio.fixture
async def page(served: Cluster, tmp_path: Path) -> AsyncIterator[Page]:
    """The page, open; at the end it has said nothing wrong, and the cluster is as before."""
    async with browser(tmp_path) as opened:
        await opened.open(served["control"])
        yield opened
        assert opened.errors == []
    control(served, "unhold", "--all")
    control(served, "reset")


async def test_the_page_shows_brokers_topics_and_the_controller(page: Page, served: Cluster) -> None:
    states = await page.evaluate("[...document.querySelectorAll('#brokers tr')].map(row => row.cells[1].textContent)")
    others = len(control(served, "brokers")["brokers"]) - 1
    assert sorted(states) == ["running"] * others + ["running, controller"]
    text = await page.evaluate("document.querySelector('#controller').textContent")
    assert f"Broker {control(served, 'controller')['id']} with controller epoch" in text
    assert "orders" in await page.evaluate("document.querySelector('#topics').textContent")


async def test_a_phase_is_held_and_released_with_the_keyboard(page: Page, served: Cluster) -> None:
    await page.tab_to("#hold-phase")
    for letter in "PartitionsAppeared":
        await page.press(letter)
    assert await page.evaluate("document.querySelector('#hold-phase').value") == "PartitionsAppeared"
    assert "New partitions" in await page.evaluate("document.querySelector('#hold-help').textContent")
    await page.tab_to("#hold-form button")
    await page.press("Enter")
    await page.until("document.querySelector('#holds tr') !== null")
    (hold,) = control(served, "holds")["holds"]
    assert (hold["phase"], hold["state"]) == ("PartitionsAppeared", "armed")
    creation = asyncio.get_running_loop().run_in_executor(None, produce, served, "held")
    await page.until("document.querySelector('#holds .reached') !== null")
    await page.until("document.querySelector('#controller').textContent.includes('Held at PartitionsAppeared')")
    await page.tab_to(f"#holds button[aria-label='Release hold {hold['id']}']")
    await page.press("Enter")
    await creation
    await page.until("document.querySelector('#holds tr').cells[3].textContent === 'released'")
    focus = await page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focus == f"Remove hold {hold['id']}", "the focus stays where it was while the table is updated"


async def test_a_fault_that_the_form_adds_hits_and_is_removed(page: Page, served: Cluster) -> None:
    await page.type("#fault-api", "Produce")
    await page.type("#fault-client", "shop")
    await page.type("#fault-topic", "orders")
    await page.type("#fault-partition", "0")
    await page.type("#fault-value", "NOT_LEADER_OR_FOLLOWER")
    await page.type("#fault-first", "1")
    await page.press("Enter")
    await page.until("document.querySelector('#faults tr') !== null")
    (fault,) = control(served, "faults")["faults"]
    assert fault["filter"] == {"api": "Produce", "client_id": "shop", "direction": "request", "topic": "orders", "partition": 0}
    assert (fault["effect"], fault["first"]) == ({"error": "NOT_LEADER_OR_FOLLOWER"}, 1)
    await asyncio.to_thread(produce, served)
    await page.until("document.querySelector('#faults tr').cells[4].textContent === '1'")
    await page.until("[...document.querySelectorAll('#requests .error')].some(cell => cell.textContent === 'NOT_LEADER_OR_FOLLOWER')")
    await page.tab_to("#faults button")
    await page.press("Enter")
    await page.until("document.querySelector('#faults tr') === null")
    assert control(served, "faults") == {"faults": []}


@pytest.mark.parametrize("effect", ["delay_ms", "drop", "close", "truncate", "throttle_time_ms"])
async def test_the_form_has_a_value_for_the_effects_that_have_one(page: Page, served: Cluster, effect: str) -> None:
    value = {"delay_ms": 5, "close": "amid", "truncate": 7, "throttle_time_ms": 3}.get(effect, True)
    filled = {"fault-api": "Produce", "fault-value": "" if value is True else str(value)}
    await page.evaluate(
        f"$('fault-effect').value = '{effect}'; chooseEffect();"
        + "".join(f"$('{name}').value = {json.dumps(text)};" for name, text in filled.items())
        + "$('fault-form').requestSubmit()"
    )
    await page.until("document.querySelector('#faults tr') !== null")
    assert [fault["effect"] for fault in control(served, "faults")["faults"]] == [{effect: value}]


async def test_a_wrong_fault_is_an_error_that_is_announced_and_dismissed(page: Page, served: Cluster) -> None:
    await page.type("#fault-api", "Prodoce")
    await page.type("#fault-value", "NOT_LEADER_OR_FOLLOWER")
    await page.press("Enter")
    text = await page.until("!document.querySelector('#error').hidden && document.querySelector('#error').textContent")
    assert "there is no API 'Prodoce'; did you mean Produce?" in text
    assert await page.evaluate("document.querySelector('#error').getAttribute('role')") == "alert"
    await page.tab_to("#error-close")
    await page.press("Enter")
    await page.until("document.querySelector('#error').hidden")
    page.errors[:] = [error for error in page.errors if "400 (Bad Request)" not in error]


async def test_a_broker_is_killed_and_started_and_its_leaders_move_in_the_timeline(page: Page, served: Cluster) -> None:
    await page.evaluate("document.querySelector('[aria-label=\"Stop broker 3\"]').click()")
    await page.until("document.querySelectorAll('#brokers tr')[2].cells[1].textContent === 'stopped'")
    await page.until("document.querySelectorAll('#changes li').length > 0")
    assert re.search(r"leader of orders-\d: broker 3 → broker [12]", await page.evaluate("document.querySelector('#changes').textContent"))
    assert await page.evaluate("document.querySelectorAll('#timeline rect').length") > await page.evaluate(
        "document.querySelectorAll('#timeline text:not(.quiet)').length"
    )
    await page.tab_to("[aria-label='Start broker 3']")
    await page.press("Enter")
    await page.until("document.querySelectorAll('#brokers tr')[2].cells[1].textContent === 'running'")


async def test_the_timeline_has_changes_from_before_the_page_was_opened(served: Cluster, tmp_path: Path) -> None:
    before = control(served, "controller")["id"]
    after = control(served, "controller", "move")["id"]
    async with browser(tmp_path) as page:
        await page.open(served["control"])
        await page.until("document.querySelectorAll('#changes li').length > 0")
        text = await page.evaluate("document.querySelector('#changes').textContent")
    # Both at once, or with none between them.
    assert f"controller: broker {before} → " in text
    assert f" → broker {after}" in text


async def test_a_broker_is_added(page: Page, served: Cluster) -> None:
    count = len(control(served, "brokers")["brokers"])
    await page.tab_to("#broker-add")
    await page.press("Enter")
    await page.until(f"document.querySelectorAll('#brokers tr')[{count}]?.cells[1].textContent === 'running'")
    assert control(served, "brokers", count + 1)["state"] == "running"


async def test_links_sessions_topics_and_crashes_are_steered_with_the_keyboard(page: Page, served: Cluster) -> None:
    await page.look(width=400)
    await page.until("document.querySelectorAll('#link-to option').length > 1")
    await page.type("#link-ms", "5")
    await page.press("Enter")
    await page.until("document.querySelectorAll('#faults tr').length === 2")
    assert {fault["effect"]["delay_ms"] for fault in control(served, "faults")["faults"]} == {5}
    await page.tab_to("#zookeeper-form button")
    await page.press("Enter")
    await page.until("document.querySelector('#events').textContent.includes('expired')")
    await page.type("#topic-name", "made")
    await page.press("Enter")
    await page.until("[...document.querySelectorAll('#topics button')].some(each => each.textContent === 'made')")
    await page.evaluate("[...document.querySelectorAll('#topics button')].find(each => each.textContent === 'made').click()")
    await page.until("!document.querySelector('#topic').hidden")
    await page.type("#partitions-count", "3")
    await page.press("Enter")
    await page.until("document.querySelectorAll('#topic-rows tr').length === 3")
    await page.tab_to("#topic-delete")
    await page.press("Enter")
    await page.until("![...document.querySelectorAll('#topics button')].some(each => each.textContent === 'made')")
    await page.evaluate("$('hold-action').value = 'crash'")
    await page.tab_to("#hold-form button")
    await page.press("Enter")
    await page.until("document.querySelector('#holds tr') !== null")
    assert [hold["crash"] for hold in control(served, "holds")["holds"]] == [True]
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


async def test_an_open_transaction_is_aborted(page: Page, served: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=served["bootstrap_servers"], transactional_id="copy")
    await asyncio.to_thread(producer.init_transactions)
    producer.begin_transaction()
    await asyncio.to_thread(producer.send("orders", b"x", partition=0).get, 30)
    await page.until("document.querySelector('#transactions tr')?.cells[1].textContent === 'Ongoing'")
    await page.tab_to("#transactions button")
    await page.press("Enter")
    await page.until("document.querySelector('#transactions tr')?.cells[1].textContent === 'CompleteAbort'")
    producer.close(0)


async def test_the_controller_moves_to_the_chosen_broker(page: Page, served: Cluster) -> None:
    present = control(served, "controller")["id"]
    other = next(broker for broker in (1, 2, 3) if broker != present)
    await page.evaluate(f"$('move-to').value = '{other}'; $('move-form').requestSubmit()")
    await page.until(f"document.querySelector('#controller').textContent.startsWith('Broker {other} ')")


async def test_a_topic_opens_with_its_log_ends(page: Page, served: Cluster) -> None:
    await asyncio.to_thread(produce, served)
    name = "[...document.querySelectorAll('#topics button')].find(each => each.textContent === 'orders')"
    await page.evaluate(f"{name}.click()")
    await page.until("document.querySelectorAll('#topic-rows tr').length === 3")
    (first, *_) = control(served, "topic", "orders")["partitions"]
    end = first["brokers"]["1"]["log_end_offset"]
    assert end > 0
    await page.until(f"document.querySelector('#topic-rows tr').cells[5].textContent === '{end} (HW {end})'")
    assert await page.evaluate(f"{name}.getAttribute('aria-expanded')") == "true"
    await page.evaluate(f"{name}.click()")
    await page.until("document.querySelector('#topic').hidden")


async def test_requests_are_filtered_and_texts_of_clients_are_no_markup(page: Page, served: Cluster) -> None:
    name = "<img src=x onerror=alert(1)>"
    await asyncio.to_thread(produce, served, client_id=name)
    await asyncio.to_thread(produce, served, client_id="other")
    await page.type("#requests-client", name)
    await page.type("#requests-api", "Produce")
    await page.press("Enter")
    cells = "[...document.querySelectorAll('#requests tr')].map(row => [row.cells[3].textContent, row.cells[4].textContent.split(' ')[0]])"
    await page.until(f"{cells}.length > 0 && {cells}.every(each => each[1] === 'Produce')")
    assert {tuple(each) for each in await page.evaluate(cells)} == {(name, "Produce")}
    assert await page.evaluate("document.querySelectorAll('img').length") == 0
    await page.tab_to("#requests summary")
    await page.press("Enter")
    shown = json.loads(await page.until("document.querySelector('#requests pre')?.textContent"))
    assert shown["request"]["acks"] == -1
    assert shown["response"]["responses"][0]["name"] == "orders"
    await page.evaluate("$('requests-errors').click()")
    await page.until("document.querySelectorAll('#requests tr').length === 0")


async def test_events_are_shown_as_they_happen(page: Page, served: Cluster) -> None:
    made = control(served, "hold", "DeletionQueued")
    await page.until(f"document.querySelector('#events').textContent.includes('hold: id={made['id']} phase=DeletionQueued')")
    first = "document.querySelector('#events li').textContent"
    assert await page.evaluate(f"/^\\d\\d:\\d\\d:\\d\\d\\.\\d\\d\\d /.test({first})"), "as the times of requests: UTC, 24 hours"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 400, 800, 1280])
async def test_no_width_scrolls_sideways(page: Page, served: Cluster, width: int, dark: bool) -> None:
    name = "a_very_long_name_that_goes_on_and_on_without_any_space_0123456789"
    control(served, "hold", "ReassignmentCompletionStored", "--where", f"topic={name}")
    control(served, "fault", "--api", "Produce", "--client-id", name, "--drop")
    await asyncio.to_thread(produce, served)
    await page.look(width=width, dark=dark)
    await page.evaluate("[...document.querySelectorAll('#topics button')].find(each => each.textContent === 'orders').click()")
    await page.until("document.querySelector('#topic-rows tr') !== null && document.querySelector('#requests tr') !== null")
    await page.until("document.querySelector('#holds tr') !== null && document.querySelector('#faults tr') !== null")
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


CONTRAST = """
(() => {
  const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b)
  const parse = text => text.match(/[\\d.]+/g).map(Number)
  const back = element => {
    for (let at = element; at !== null; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor)
      if (colour.length < 4 || colour[3] > 0) return colour
    }
    return [255, 255, 255]
  }
  const bad = []
  for (const element of document.querySelectorAll('body *')) {
    const hasText = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim() !== '')
    if (element.offsetParent === null || !hasText) continue
    const pair = [luminance(parse(getComputedStyle(element).color)), luminance(back(element))].sort((a, b) => b - a)
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05)
    if (contrast < 4.5) bad.push(`${element.outerHTML.slice(0, 80)}: ${contrast.toFixed(2)}`)
  }
  return bad
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_text_has_a_contrast_of_4_5(page: Page, served: Cluster, dark: bool) -> None:
    control(served, "hold", "PartitionsAppeared")
    control(served, "fault", "--api", "Produce", "--error", "NOT_LEADER_OR_FOLLOWER", "--first", 1)
    control(served, "broker", "pause", 2)
    await page.look(dark=dark)
    shown = ("#holds tr", "#faults tr", "#brokers .paused")
    await page.until(" && ".join(f"document.querySelector('{each}') !== null" for each in shown))
    await page.evaluate("showError(new ApiError(400, 'an error'))")
    assert await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    assert await page.evaluate(CONTRAST) == []


async def test_all_fields_have_labels_and_all_buttons_names(page: Page) -> None:
    unnamed = """[...document.querySelectorAll('input, select, button')]
        .filter(each => !(each.labels?.length > 0) && !each.getAttribute('aria-label') && each.textContent.trim() === '')
        .map(each => each.outerHTML)"""
    assert await page.evaluate(unnamed) == []


async def test_with_a_token_the_page_wants_it_once(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    place = ("--brokers", 1, "--port", 0, "--zookeeper", zookeeper + chroot, "--control-port", 0, "--control-token", "se&cret")
    running = Running(tmp_path, "serve", "--json", *place)
    try:
        cluster = running.ready()
        async with browser(tmp_path) as page:
            await page.open(cluster["control"])
            assert await page.evaluate("document.querySelector('#brokers tr')") is None
            assert await page.evaluate("document.activeElement.id") == "token"
            await page.call("Input.insertText", text="se&cret")
            await page.press("Enter")
            await page.until("document.querySelector('#brokers tr') !== null && document.querySelector('#token-form').hidden")
            done = call("control", "hold", "DeletionQueued", "--control", cluster["control"], "--token", "se&cret")
            assert done.returncode == 0
            await page.until("document.querySelector('#events').textContent.includes('DeletionQueued')")
            await page.open(cluster["control"])
            await page.until("document.querySelector('#brokers tr') !== null")
            assert await page.evaluate("document.querySelector('#token-form').hidden")
    finally:
        running.kill()
