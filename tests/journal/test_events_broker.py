"""Rows about a broker itself."""

from __future__ import annotations

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.apis import APIS
from klamm.server.journal.broker_events import BrokerEvents
from klamm.server.journal.journaling import NoFrames
from klamm.tests.journal.recorded import RecordedJournal


def test_a_broker_says_what_it_is_what_it_offers_and_that_it_ended() -> None:
    journal = RecordedJournal()
    broker = BrokerEvents(journal, NoFrames(), 3)
    config = BrokerConfig({"listeners": "ONE://:1,TWO://:2", "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
                           "inter.broker.listener.name": "ONE", "zookeeper.connect": "h:2181/k"})
    broker.started(config, "1.2")
    broker.offers(["ONE", "TWO"], [APIS[18]])
    broker.stopped()
    started, one, two, stopped = journal.check()
    assert (started.kind, stopped.kind) == ("broker_started", "broker_stopped")
    assert started.output == {"broker": 3, "version": "1.2", "ibp": "3.9-IV0", "listeners": ["ONE", "TWO"], "zookeeper": "h:2181/k"}
    assert (one.input, two.input) == ({"listener": "ONE"}, {"listener": "TWO"})
    assert one.output == two.output == {"apis": [[18, 0, APIS[18].max_version]]}


def test_a_config_that_changes_is_named_without_its_value() -> None:
    journal = RecordedJournal()
    BrokerEvents(journal, NoFrames(), 3).config_changed("brokers", "3", {"ssl.key.password": "secret"}, frozenset({"ssl.key.password"}))
    (row,) = journal.check()
    assert row.input == {"entity_type": "brokers", "entity": "3"} and row.output == {"keys": ["ssl.key.password"]}
    assert "secret" not in str(row)
