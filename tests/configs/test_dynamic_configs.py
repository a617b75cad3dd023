"""Following /config/changes: in order, once each, by every broker, whatever is stored."""

from __future__ import annotations

from klamm.controller.events.catalogue import TopicUncleanLeaderElectionEnabled, UncleanLeaderElectionEnabled
from klamm.server.configs.dynamic_configs import DynamicConfigs, controller_events
from klamm.tests.configs.conftest import BROKER, SET, TOPIC
from klamm.tests.zk.labs import next_ms
from klamm.zk import change_notifications
from klamm.zk.admin import AdminZk

UNCLEAN = "unclean.leader.election.enable"


async def change(node, path, data):
    """What a foreign tool does: the node, then the notification."""
    if await node.zk.exists(f"/config/{path}") is None:
        await node.zk.create(f"/config/{path}", data)
    else:
        await node.zk.set(f"/config/{path}", data)
    await announce(node, b'{"version":2,"entity_path":"%s"}' % path.encode())


async def announce(node, data):
    await node.zk.create("/config/changes/config_change_", data, sequence=True)


async def test_every_broker_hears_of_everything(brokers):
    first, second = await brokers(0), await brokers(1)
    await first.create_topic("t")
    await first.increment((TOPIC, "t", [("retention.ms", SET, "5")]), (BROKER, "", [("min.insync.replicas", SET, "2")]))
    await first.increment((BROKER, "0", [("min.insync.replicas", SET, "3")]))
    await second.eventually(lambda: len(second.heard) == 4)
    topic = ("topics", "t", {"retention.ms": "5"}, frozenset({"retention.ms"}))
    default = ("brokers", "<default>", {"min.insync.replicas": "2"}, frozenset({"min.insync.replicas"}))
    assert second.heard[2:] == [topic, default]
    await first.eventually(lambda: len(first.heard) == 5)
    assert first.heard[2:4] == [topic, default]
    assert first.heard[4] == ("brokers", "0", {"min.insync.replicas": "3"}, frozenset({"min.insync.replicas"}))
    assert (first.config.get("min.insync.replicas"), second.config.get("min.insync.replicas")) == (3, 2)
    await first.increment((TOPIC, "t", [("retention.ms", SET, "6")]))
    await second.eventually(lambda: second.heard[-1][2] == {"retention.ms": "6"})
    assert len(second.heard) == 5, "the configs of another broker are not its business"


async def test_what_is_there_at_start_counts(brokers):
    first = await brokers(0)
    await first.increment((BROKER, "", [("min.insync.replicas", SET, "2"), ("log.cleaner.backoff.ms", SET, "7")]))
    await first.admin_zk.write_config("brokers", "1", {"min.insync.replicas": "4"})
    await first.zk.delete("/config/changes/config_change_0000000000")
    await first.zk.delete("/config/changes/config_change_0000000001")
    second = await brokers(1)
    assert (second.config.get("min.insync.replicas"), second.config.get("log.cleaner.backoff.ms")) == (4, 7)
    assert [(kind, name) for kind, name, _, _ in second.heard] == [("brokers", "<default>"), ("brokers", "1")]


async def test_the_node_counts_not_the_notification(brokers):
    node = await brokers(0)
    await change(node, "topics/t", b'{"version":1,"config":{"a":"1"}}')
    await node.eventually(lambda: len(node.heard) == 3)
    assert node.heard[2] == ("topics", "t", {"a": "1"}, frozenset({"a"}))
    await announce(node, b'{"version":2,"entity_path":"topics/never"}')
    await node.eventually(lambda: len(node.heard) == 4)
    assert node.heard[3] == ("topics", "never", {}, frozenset())


async def test_old_and_deep_notifications(brokers):
    node = await brokers(0)
    await announce(node, b'{"version":1,"entity_type":"topics","entity_name":"t"}')
    await announce(node, b'{"version":2,"entity_path":"users/u/clients/c"}')
    await node.eventually(lambda: len(node.heard) == 4)
    assert [(kind, name) for kind, name, _, _ in node.heard[2:]] == [("topics", "t"), ("users", "u/clients/c")]


async def test_bad_notifications_count_as_executed(brokers):
    node = await brokers(0)
    for bad in (b"no json", b"{}", b'{"version":9}', b'{"version":2,"entity_path":"topics"}', b'{"version":2,"entity_path":7}'):
        await announce(node, bad)
    for text in (r"topics/\ud800", r"topics/a\u0000", r"topics/\ud83d\udca9", "topics/.."):
        await announce(node, b'{"version":2,"entity_path":"%s"}' % text.encode())
    await change(node, "topics/bad", b'{"version":1,"config":{"a":1}}')
    await change(node, "topics/t", b'{"version":1,"config":{}}')
    await node.eventually(lambda: len(node.heard) == 3)
    assert node.heard[2][1] == "t"


async def test_a_name_that_is_too_long_for_a_request_has_no_configs(brokers):
    node = await brokers(0)
    await announce(node, b'{"version":2,"entity_path":"topics/%s"}' % (b"a" * 1_048_300))
    await change(node, "topics/t", b'{"version":1,"config":{}}')
    await node.eventually(lambda: node.heard[-1][1] == "t")
    assert [properties for _, _, properties, _ in node.heard[2:]] == [{}, {}]


async def test_one_bad_node_does_not_hide_those_read_with_it(brokers):
    first = await brokers(0)
    await change(first, "topics/good", b'{"version":1,"config":{"a":"1"}}')
    await change(first, "topics/bad", b'{"version":1,"config":{"a":1}}')
    second = await brokers(1)
    assert [(kind, name) for kind, name, _, _ in second.heard if kind == "topics"] == [("topics", "good")]


async def test_bad_values_do_not_stop_the_others(brokers):
    node = await brokers(0)
    await change(node, "brokers/0", b'{"version":1,"config":{"log.retention.bytes":"x","min.insync.replicas":"2"}}')
    await node.eventually(lambda: node.config.get("min.insync.replicas") == 2)
    await change(node, "brokers/0", b'{"version":1,"config":{"log.retention.ms":"0","min.insync.replicas":"3"}}')
    await change(node, "brokers/<default>", b'{"version":1,"config":{"a":"b"}}')
    await node.eventually(lambda: len(node.heard) == 5)
    assert node.config.get("min.insync.replicas") == 2
    await change(node, "brokers/0", b'{"version":1,"config":{"min.insync.replicas":"3"}}')
    await node.eventually(lambda: node.config.get("min.insync.replicas") == 3)


async def test_a_faulty_listener_is_not_in_the_way_of_others(brokers, caplog):
    node = await brokers(0)

    def fail(*change):
        raise RuntimeError("nobody caught me")

    heard = []
    node.dynamic.listen(fail)
    node.dynamic.listen(lambda *change: heard.append(change))
    await change(node, "topics/t", b'{"version":1,"config":{}}')
    await change(node, "topics/u", b'{"version":1,"config":{}}')
    await node.eventually(lambda: len(heard) == 2)
    assert "nobody caught me" in caplog.text


async def test_notifications_older_than_the_newest_by_the_limit_go(brokers, monkeypatch):
    """One without data is never purged. No clock of the broker has a say."""
    node = await brokers(0)
    dynamic = DynamicConfigs(node.config, 0, AdminZk(node.zk), lambda work: work.close())
    for number in range(4):
        await announce(node, None if number == 1 else b'{"version":2,"entity_path":"topics/t"}')
        next_ms()
    await dynamic.look()
    names = [f"config_change_{number:010d}" for number in range(4)]
    assert await node.zk.children("/config/changes") == names
    newest, third = [(await node.zk.get(f"/config/changes/{names[number]}")).ctime_ms for number in (3, 2)]
    monkeypatch.setattr(change_notifications, "EXPIRATION_MS", newest - third)
    await dynamic.look()  # as in a new session, in which nothing was announced
    assert await node.zk.children("/config/changes") == names[1:]


async def test_looking_twice_executes_once(brokers):
    node = await brokers(0)
    await change(node, "topics/t", b'{"version":1,"config":{}}')
    await node.eventually(lambda: len(node.heard) == 3)
    await node.dynamic.look()
    await node.dynamic.look()
    assert len(node.heard) == 3


async def test_a_session_that_is_over(brokers, caplog):
    node = await brokers(0)
    await node.zk.stop()
    await node.dynamic.look()
    assert "cannot watch config changes at the moment" in caplog.text


async def test_what_the_controller_hears(brokers):
    node = await brokers(0)
    config = node.config

    def events(kind, name, properties, changed):
        return list(controller_events(config, kind, name, properties, frozenset(changed)))

    assert events("topics", "t", {UNCLEAN: "TRUE"}, {UNCLEAN}) == [TopicUncleanLeaderElectionEnabled("t")]
    assert events("topics", "t", {UNCLEAN: "false"}, {UNCLEAN}) == []
    assert events("topics", "t", {}, ()) == []
    assert events("brokers", "0", {}, {UNCLEAN}) == []
    config.apply_dynamic({UNCLEAN: "true"}, {})
    assert events("brokers", "<default>", {UNCLEAN: "true"}, {UNCLEAN}) == [UncleanLeaderElectionEnabled()]
    assert events("brokers", "<default>", {UNCLEAN: "true"}, ()) == []
    assert events("users", "u", {UNCLEAN: "true"}, {UNCLEAN}) == []


async def test_each_topic_and_broker_that_a_notification_names_is_announced_other_brokers_and_unreadable_ones_too(brokers):
    node = await brokers(0)
    await change(node, "topics/t", b'{"version":1,"config":{"a":"1"}}')
    await change(node, "brokers/7", b'{"version":1,"config":{}}')
    await change(node, "users/u", b'{"version":1,"config":{}}')
    await change(node, "brokers/<default>", b"no json")
    await change(node, "topics/last", b'{"version":1,"config":{}}')
    await node.eventually(lambda: node.heard[-1][1] == "last")
    assert node.announcements == [("topics", "t"), ("brokers", "7"), ("brokers", "<default>"), ("topics", "last")]
