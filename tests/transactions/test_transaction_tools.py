"""Kafka's tools that show, write and read transactions print of Klamm what they print of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.mixed.conftest import new_members
from klamm.tests.transactions.tool_tale import BROKERS, FILE, SETTINGS, tell

__all__ = ["new_members"]

pytestmark = [pytest.mark.slow, pytest.mark.reference, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["klamm", pytest.param("kafka", marks=pytest.mark.retold)])
def test_tools_for_transactions_print_what_they_printed_of_apache_kafka(new_members: Callable[..., Members], kind: str) -> None:
    members = new_members(lambda _: SETTINGS)
    (members.klamm if kind == "klamm" else members.kafka)(*BROKERS)
    assert tell(members) == FILE.read_text(encoding="utf-8").splitlines()
