"""The suite against brokers: Klamm passes what Apache Kafka passes, and Apache Kafka 3.9.1 decides the suite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import klamm
from klamm.cli.tools.conform import command
from klamm.conform.case import Case, Level, Outcome, Result
from klamm.conform.lab import Lab
from klamm.conform.runner import chosen, run
from klamm.conform.sections.catalogue import SECTIONS
from klamm.conform.sections.groups import described, join_request
from klamm.protocol import messages
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.tree import Tree

WAITING = frozenset({"quotas/10.9", "fetch/7.8", "frames/1.4"})
"""Cases that wait for time, and are left to the long test."""


@pytest.fixture(scope="module")
def address(zookeeper: str) -> Iterator[tuple[str, int]]:
    config = {"group.initial.rebalance.delay.ms": "0"}
    with klamm.Cluster(1, zookeeper=f"{zookeeper}/{unique_name('conform')}", config=config) as cluster:
        host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
        yield host, int(port)


def outcomes_of(address: tuple[str, int], cases: list[Case], timeout_s: float = 30) -> list[Outcome]:
    outcomes, left = asyncio.run(run(cases, Lab(*address), timeout_s, lambda _: None))
    assert left == ""
    return outcomes


def broken(outcomes: list[Outcome]) -> list[str]:
    return [f"{each.case.id} {each.reason}" for each in outcomes if each.result in (Result.FAIL, Result.NON_STRICT)]


@pytest.mark.parametrize("section", [each.name for each in SECTIONS if each.name != "versions"])
def test_klamm_passes(address: tuple[str, int], section: str) -> None:
    cases = [case for case in chosen(SECTIONS, [section]) if case.id not in WAITING and not case.destructive]
    outcomes = outcomes_of(address, cases)
    assert broken(outcomes) == []
    assert section == "sasl" or Result.MISSING not in {each.result for each in outcomes}


def test_klamm_passes_values_of_each_api(address: tuple[str, int]) -> None:
    """A draw that is the same each time: the whole section is in the long test."""
    assert broken(outcomes_of(address, chosen(SECTIONS, ["versions"])[::7])) == []


def test_a_run_that_is_cancelled_in_a_rebalance_leaves_nothing(zookeeper: str) -> None:
    """A group whose only member left is not empty until the first rebalance ends."""

    async def rebalances(lab: Lab) -> None:
        group, version = lab.group(), lab.version("JoinGroup")
        connection = await lab.coordinator(group)
        named = await connection.ask(join_request(group), version)
        await connection.send(join_request(group, named.member_id), version)
        await lab.until(lambda: described(lab, group), lambda found: found.group_state == "PreparingRebalance")
        raise asyncio.CancelledError

    delay_s = 600

    async def groups_left(lab: Lab) -> list[str]:
        waiting = asyncio.ensure_future(asyncio.to_thread(cluster.wait_for_requests, api="LeaveGroup"))
        waiting.add_done_callback(lambda _: cluster.advance(2 * delay_s))
        with pytest.raises(asyncio.CancelledError):
            await run([Case("x", 1, "1", Level.MUST, "A sentence.", "a source", rebalances)], lab, 600, lambda _: None)
        await waiting
        groups = (await lab.ask(messages.ListGroupsRequest(), 4)).groups
        lab.end()
        return [each.group_id for each in groups]

    config = {"group.initial.rebalance.delay.ms": str(1000 * delay_s)}
    with klamm.Cluster(1, zookeeper=f"{zookeeper}/{unique_name('conform')}", config=config) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        assert asyncio.run(groups_left(Lab(host, int(port)))) == []


def test_the_command_prints_and_exits(address: tuple[str, int], tmp_path: Path) -> None:
    server = f"{address[0]}:{address[1]}"
    page, xml = tmp_path / "page.html", tmp_path / "junit.xml"
    done = CliRunner().invoke(
        command, [server, "frames/1.1", "produce/6.1", "--json", "--html", str(page), "--junit", str(xml)], standalone_mode=False
    )
    assert done.return_value == 0
    assert json.loads(done.stdout)["totals"]["Pass"] == 2
    assert "frames/1.1" in page.read_text() and "frames/1.1" in xml.read_text()
    done = CliRunner().invoke(command, [server, "frames", "--dryrun"], standalone_mode=False)
    assert done.stdout.splitlines()[-1] == "28 cases" and done.return_value == 0


def test_a_server_with_tls(zookeeper: str, tmp_path: Path) -> None:
    """The certificate is checked: without its authority the server cannot be reached, which is one line."""
    with klamm.Cluster(1, zookeeper=f"{zookeeper}/{unique_name('conform')}", tls=True) as cluster:
        server, authority = cluster.bootstrap_servers, cluster.client["ssl.ca.location"]
        cases = ["frames", "produce/6.1", "pipelining/13.1"]
        done = CliRunner().invoke(command, [server, *cases, "--tls-ca", authority, "--json"], standalone_mode=False)
        totals = json.loads(done.stdout)["totals"]
        assert totals["Pass"] == 30 and totals["Fail"] == totals["Non-strict"] == 0, done.stdout
        done = CliRunner().invoke(command, [server, *cases, "--tls"])
        assert done.exit_code == 2 and f"{server} cannot be reached: self-signed certificate in certificate chain" in done.stderr


@pytest.mark.parametrize("option", ["--html", "--junit"])
def test_a_report_that_cannot_be_written_is_told_before_the_run(option: str, tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="No such file or directory"):
        CliRunner().invoke(
            command, ["127.0.0.1:1", option, str(tmp_path / "none" / "report")], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.slow
@pytest.mark.reference
def test_apache_kafka_passes_all_cases(zookeeper: str, chroot: str, kafka_jars: Path, tmp_path: Path) -> None:
    tree = Tree(zookeeper, chroot)
    broker = KafkaBroker(kafka_jars, tree, tmp_path, 0)
    try:
        broker.start()
        cases = [case for case in chosen(SECTIONS, ()) if not case.destructive]
        assert broken(outcomes_of(("127.0.0.1", broker.port), cases)) == []
    finally:
        broker.kill()
        tree.close()
