"""franz-go's own tests of its client, `pkg/kgo`; `go/go.mod` has the version."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from klamm.tests.clients.suites.conftest import WITHIN_S, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * WITHIN_S)]

FOLDER = Path(__file__).with_name("go")
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
RECORDS = "20000"
"""Records that the tests of groups and transactions copy from topic to topic; by default half a million."""

EXCLUDED = {
    "TestShareGroup": "share groups came with Kafka 4",
    "TestShareGroupETL": "share groups came with Kafka 4",
    "TestShareGroupAckOnClose": "share groups came with Kafka 4",
    "TestShareGroupOffsetsAdmin": "share groups came with Kafka 4",
    "TestConsumeRegexShareSkipsInternal": "share groups came with Kafka 4",
    "Test848RegexBrokerResolves": "the consumer group protocol of KIP-848 needs KRaft in Kafka 3.9",
    "TestIssueProduceBrokerTooOldFailsRecords": "it needs brokers without Produce 3, which Kafka 3.9 has",
    "TestSCRAMAuth": "it needs a second cluster, with SASL/SCRAM",
    "TestSCRAMAuthBadCredentials": "it needs a second cluster, with SASL/SCRAM",
    "TestOAuthAuth": "it needs a second cluster, with SASL/OAUTHBEARER",
}
"""Tests that leave themselves out, and why. They do so with a Kafka broker, too."""


def test_franz_go(bootstrap: str, run_suite: Run) -> None:
    assert shutil.which("go") is not None, "this test needs Go: install it"
    variables = {"GOFLAGS": "-buildvcs=false", "KGO_SEEDS": bootstrap, "KGO_TEST_RECORDS": RECORDS, "KGO_LOG_LEVEL": "none"}
    said = run_suite(["go", "-C", FOLDER, "test", "-v", "-count=1", f"-timeout={WITHIN_S}s", PACKAGE], variables)
    outcomes = {name: outcome for outcome, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\S+)", said, re.MULTILINE)}
    failed = [name for name, outcome in outcomes.items() if outcome == "FAIL"]
    assert failed == [], "\n".join(line for line in said.splitlines() if "PASS" not in line)[-5000:]
    assert said.splitlines()[-1].startswith("ok "), said[-5000:]
    assert {name for name, outcome in outcomes.items() if outcome == "SKIP"} == EXCLUDED.keys()
    assert list(outcomes.values()).count("PASS") > 140
