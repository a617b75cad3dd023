"""A reader whose library has lost its brokers is known, and one that has not is not."""

from __future__ import annotations

import json

import pytest

import klamm.testing
from klamm.admin import AdminClient
from klamm.chaos.clients import contact as contacts
from klamm.chaos.clients.contact import Contact
from klamm.chaos.clients.members import Member
from klamm.tests.harness.waits import wait_for

CONFIGS: dict[str, str | int | bool] = {
    "offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1, "group.initial.rebalance.delay.ms": 0,
}


@pytest.mark.slow
def test_a_reader_whose_metadata_had_no_brokers_has_lost_them_for_good(
    zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contacts, "LOST_S", 0.5)
    with (
        klamm.testing.Cluster(1, topics="t:1:1", zookeeper=f"{zookeeper}{chroot}", config=CONFIGS) as cluster,
        AdminClient(cluster.bootstrap_servers) as admin,
    ):
        admin.alter_group_offsets("g", {("t", 0): 0}).all()
        reader = Member(cluster.bootstrap_servers, "t", "g", "reader", "range", lambda *_: None).start()
        wait_for(lambda: reader.assignments, "it is a member")
        assert not reader.contact.is_lost and not reader.hangs
        cluster.fault(api="Metadata", client_id="reader", error="UNKNOWN_TOPIC_OR_PARTITION", first=1)  # such a response has no brokers
        wait_for(lambda: reader.hangs, "it is lost for good")
        reader.ends(5)


def test_a_client_that_connects_to_none_of_the_brokers_it_knows_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contacts, "LOST_S", -1.0)
    contact = Contact()
    idle = {"2": {"nodeid": 2, "state": "INIT"}, "GroupCoordinator": {"nodeid": -1, "state": "INIT"}}
    contact.told_statistics(json.dumps({"brokers": idle, "cgrp": {"state": "query-coord", "join_state": "init"}}))
    assert contact.is_lost and contact.is_lost_for_good
    assert contact.known == "brokers: 2 INIT, coordinator INIT; group: query-coord, init"
    contact.told_statistics(json.dumps({"brokers": idle | {"3": {"nodeid": 3, "state": "CONNECT"}}}))
    assert not contact.is_lost
    contact.told_statistics(json.dumps({"brokers": {}}))
    assert contact.is_lost
