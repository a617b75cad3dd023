"""`klamm.Cluster` with `tls`, `sasl`, `acls` and `users`."""

from __future__ import annotations

from typing import Any

import kafka
import pytest

import klamm
import klamm.testing
from klamm.server.local.made_security import kafka_python_settings


def producer(cluster: Any, **more: str) -> kafka.KafkaProducer:
    settings: dict[str, Any] = kafka_python_settings(cluster.client | more)
    return kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN", "SCRAM-SHA-512"])
def test_a_cluster_with_users_lets_each_do_what_acls_allow(zookeeper: str, chroot: str, mechanism: str) -> None:
    users = {"eve": "eve-secret"}
    with klamm.Cluster(1, topics="t:1:1", zookeeper=zookeeper + chroot, tls=True, sasl=mechanism, acls=True, users=users) as cluster:
        assert cluster.client["security.protocol"] == "SASL_SSL"
        admin = producer(cluster)
        assert admin.send("t", b"x", partition=0).get(30).offset == 0
        admin.close()
        eve = producer(cluster, **{"sasl.username": "eve", "sasl.password": "eve-secret"})
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            eve.send("t", b"x", partition=0).get(30)
        eve.close()


@pytest.mark.slow
def test_brokers_in_processes_of_their_own_have_the_same_users_certificates_and_acls(zookeeper: str, chroot: str) -> None:
    users = {"eve": "eve-secret"}
    with klamm.testing.Cluster(
        2, topics="t:1:2", zookeeper=zookeeper + chroot, processes=True, tls=True, sasl="SCRAM-SHA-256", acls=True, users=users,
        config={"min.insync.replicas": 1},
    ) as cluster:
        assert cluster.client["security.protocol"] == "SASL_SSL"
        admin = producer(cluster)
        assert admin.send("t", b"x", partition=0).get(30).offset == 0
        cluster.wait_for_replicas("t", 0, 1)
        eve = producer(cluster, **{"sasl.username": "eve", "sasl.password": "eve-secret"})
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            eve.send("t", b"x", partition=0).get(30)
        with cluster.fault(api="Produce", topic="t", error="NOT_LEADER_OR_FOLLOWER", first=1) as fault:
            assert admin.send("t", b"y", partition=0).get(30).offset == 1
        assert fault.hits == 1
        leader = cluster.wait_for_leader("t", 0)
        cluster.kill_broker(leader)
        assert admin.send("t", b"z", partition=0).get(30).offset == 2
        cluster.start_broker(leader)
        cluster.wait_for_replicas("t", 0, 3)
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            eve.send("t", b"x", partition=0).get(30)
        for each in (admin, eve):
            each.close()


def test_a_cluster_with_tls_alone_runs_again_with_the_same_certificates(zookeeper: str, chroot: str) -> None:
    cluster, clients = klamm.Cluster(1, topics="t:1:1", zookeeper=zookeeper + chroot, tls=True), []
    for _ in range(2):
        with cluster as running:
            made = producer(running)
            made.send("t", b"x", partition=0).get(30)
            made.close()
            clients.append(running.client)
    assert clients[0] == clients[1] and clients[0].keys() == {"security.protocol", "ssl.ca.location"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sasl": "MD5"}, "is not one of PLAIN"), ({"acls": True}, "without sasl"), ({"users": {"a": "b"}}, "without sasl"),
        ({"tls": True, "config": {"security.inter.broker.protocol": "SSL"}}, "is set by tls, sasl and acls"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        klamm.Cluster(1, **arguments)


def test_a_cluster_without_security_needs_nothing_of_its_clients(zookeeper: str, chroot: str) -> None:
    with klamm.Cluster(1, zookeeper=zookeeper + chroot) as cluster:
        assert cluster.client == {}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"users": {"admin": "other"}}, "users: admin is the user of the brokers, with a password of its own"),
        ({"users": {"": "x"}}, "users: a name or a password is empty"),
        ({"users": {"eve": ""}}, "users: a name or a password is empty"),
        ({"users": {"eve": 'a"b'}}, "users: name or password of 'eve' has a quote, backslash or line break, which PLAIN cannot have"),
        ({"acls": True, "config": {"super.users": "User:eve"}}, "config: super.users is set by tls, sasl and acls"),
        ({"tls": True, "config": {"ssl.keystore.type": "PEM"}}, "config: ssl.keystore.type is set by tls, sasl and acls"),
        (
            {"config": {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x"}},
            "config: listener.name.sasl_plaintext.plain.sasl.jaas.config is set by tls, sasl and acls",
        ),
    ],
)
def test_users_and_configs_that_would_be_lost_are_refused_without_a_password_in_the_text(arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="") as refused:
        klamm.Cluster(1, sasl="PLAIN", **arguments)
    assert str(refused.value) == line
