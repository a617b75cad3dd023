"""What a coordinator wrote is not appended if it has given up its partition before the records are ready, also if it has it again."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.broker.transactions.requests import InitProducerId
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.records.validation import assign
from klamm.server.produce import record_appends
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.harness.waits import WITHIN_S, eventually
from klamm.tests.server.transactions.transaction_broker import ID, TransactionBroker


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    """Its logs compress what they get, in a thread."""
    broker = TransactionBroker(compression_type="gzip")
    await broker.start()
    await broker.led()
    await broker.coordinate()
    yield broker
    await broker.close()


async def test_a_commit_of_a_coordinator_that_was_replaced_meanwhile_is_in_no_log(broker: TransactionBroker) -> None:
    commit = broker.groups.commit(broker.commit_request(5))
    broker.lead(leader=2, epoch=2)
    broker.lead(epoch=3)
    await eventually(commit.done, "the commit has a response")
    assert commit.result() is E.NOT_COORDINATOR
    await broker.settle()
    assert (broker.records(), broker.offset()) == ([], None)


async def test_an_epoch_of_a_coordinator_that_was_replaced_meanwhile_is_in_no_log(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    compresses, has_moved = threading.Event(), threading.Event()

    def compressed(*arguments: Any) -> Any:
        compresses.set()
        has_moved.wait(WITHIN_S)
        return assign(*arguments)

    monkeypatch.setattr(record_appends, "assign", compressed)
    init = broker.coordinator.init_producer_id(InitProducerId(None, ID, 60_000))
    await eventually(compresses.is_set, "the thread has the record")
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    broker.lead(epoch=3, topic=TRANSACTION_TOPIC)
    has_moved.set()
    await eventually(init.done, "the request has a response")
    assert init.result().error is E.NOT_COORDINATOR
    await broker.settle()
    assert broker.records(topic=TRANSACTION_TOPIC) == []
