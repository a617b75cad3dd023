"""librdkafka's own tests, those that need brokers, in its quick mode."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from klamm.tests.clients.suites import librdkafka
from klamm.tests.clients.suites.conftest import WITHIN_S, Run
from klamm.tests.harness.kafka import java_command
from klamm.tests.reference.jars import VERSION

pytestmark = [pytest.mark.slow, pytest.mark.reference, pytest.mark.timeout(2 * WITHIN_S + 1200)]

ONLY_WITH_BROKERS, QUICK, WITHOUT_SOCKET_EMULATION, REPORT, TOGETHER = "-L", "-Q", "-E", "-r", "-p6"

EXCLUDED = {
    "0053_stats": "is not built without the library RapidJSON",
    "0098_consumer_txn": "is not built without the library RapidJSON; transactions are tested by 0103",
    "0101_fetch_from_follower": "is not built without the library RapidJSON",
    "0110_batch_size": "is not built without the library RapidJSON",
    "0082_fetch_max_bytes": "is not a part of the quick mode; 0041 tests the same limit",
    "0097_ssl_verify": "needs a cluster with TLS, and files of trivup, which starts librdkafka's own clusters",
    "0126_oauthbearer_oidc": "needs a cluster with SASL, and an OAuth server",
    "0135_sasl_credentials": "needs a cluster with SASL",
    "0142_reauthentication": "needs a cluster with SASL",
}
"""Tests that leave themselves out, and why."""

TOOLS = {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-acls.sh": "kafka.admin.AclCommand"}
"""Kafka's tools that the tests call; they are the only reason why a JVM takes part."""


@pytest.fixture
def kafka_path(kafka_jars: Path, tmp_path: Path) -> Path:
    """A folder with the tools, laid out as in Kafka's distribution."""
    folder = tmp_path / "kafka" / "bin"
    folder.mkdir(parents=True)
    for name, main in TOOLS.items():
        program = folder / name
        words = " ".join(f"'{word}'" for word in java_command(kafka_jars, main))
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    return folder.parent


def test_librdkafka(bootstrap: str, kafka_path: Path, run_suite: Run, tmp_path: Path) -> None:
    runner = librdkafka.runner()
    conf, report = tmp_path / "test.conf", tmp_path / "report.json"
    conf.write_text(f"bootstrap.servers={bootstrap}\ntest.timeout.multiplier=3\ntest.topic.random=true\n")
    variables = {
        "LD_LIBRARY_PATH": os.fspath(runner.parent), "KAFKA_PATH": os.fspath(kafka_path), "BROKERS": bootstrap,
        "RDKAFKA_TEST_CONF": os.fspath(conf), "TEST_REPORT": os.fspath(report),
    }
    options = [ONLY_WITH_BROKERS, QUICK, WITHOUT_SOCKET_EMULATION, TOGETHER, REPORT, "-V", f"{VERSION}.0"]
    said = run_suite([runner, *options], variables)
    assert report.exists(), said[-5000:]
    outcomes = {name: row["state"] for name, row in json.loads(report.read_text())["tests"].items() if name != "<MAIN>"}
    failed = [name for name, state in outcomes.items() if state not in ("PASSED", "SKIPPED")]
    assert failed == [], "\n".join(line for line in said.splitlines() if "FAIL" in line)[-5000:]
    assert {name for name in EXCLUDED if outcomes[name] == "SKIPPED"} == EXCLUDED.keys()
    assert list(outcomes.values()).count("PASSED") > 70
