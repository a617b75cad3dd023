"""Users, clients and addresses of `klamm configs`: refused options, output beside Kafka's kafka-configs, and what it does to a cluster.

What is printed is in tests/tools/quotas.txt, recorded from Kafka's kafka-configs; the lines of credentials were read from the same tool.
"""

from __future__ import annotations

import json
import subprocess
from functools import partial

import kafka.errors
import pytest

import klamm
from klamm.admin import AdminClient, QuotaEntity, ScramPassword
from klamm.protocol.errors import ErrorCode
from klamm.server.local.made_security import kafka_python_settings
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import java_command, wait_for
from klamm.tests.reference.jars import jars
from klamm.tests.reference.tools import CLASSES

TOGETHER = "Only 'users' and 'clients' entity types may be specified together"
EACH = "An entity name must be specified for every entity type"
CLIENT_QUOTAS = "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--describe --entity-type users --entity-type ips", TOGETHER),
        ("--describe --entity-type users --entity-type users", TOGETHER),
        ("--describe --entity-type topics --entity-type users --entity-name a", TOGETHER),
        ("--describe --entity-type topics --entity-type brokers --entity-name 1", TOGETHER),
        ("--alter --entity-type users --add-config a=1", "--alter of users, clients or ips needs --entity-name or --entity-default"),
        ("--alter --entity-type users --entity-type clients --entity-name a --add-config a=1", EACH),
        ("--describe --entity-type users --entity-name a --entity-name b", EACH),
        ("--describe --entity-type users --entity-name=", "--entity-name is empty"),
        (
            "--alter --entity-type users --entity-name a --add-config x=1",
            f"x: no config of users, which have {CLIENT_QUOTAS}, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            "--alter --entity-type clients --entity-name a --delete-config SCRAM-SHA-256",
            f"SCRAM-SHA-256: no config of clients, which have {CLIENT_QUOTAS}",
        ),
        (
            "--alter --entity-type users --entity-name a --entity-type clients --entity-name b --add-config SCRAM-SHA-512=[password=x]",
            f"SCRAM-SHA-512: no config of users and clients, which have {CLIENT_QUOTAS}",
        ),
        (
            "--alter --entity-type ips --entity-name a --add-config request_percentage=1",
            "request_percentage: no config of ips, which have connection_creation_rate",
        ),
        (
            "--alter --entity-type users --entity-name a --add-config producer_byte_rate=many",
            "Cannot parse quota configuration value for producer_byte_rate: many",
        ),
        (
            "--alter --entity-type users --entity-name a --add-config SCRAM-SHA-256=[secret]",
            "SCRAM-SHA-256 is not [iterations=N,password=TEXT] or [password=TEXT]",
        ),
        ("--alter --entity-type users --entity-default --delete-config SCRAM-SHA-256", "--entity-default has no SCRAM credentials"),
        (
            "--alter --entity-type users --entity-name a --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1",
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users'.",
        ),
    ],
)
def test_options_of_users_clients_and_addresses_that_do_not_fit_are_one_line(arguments: str, line: str) -> None:
    said = call("configs", "--bootstrap-server", "127.0.0.1:1", *arguments.split())
    assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm configs: {line}\n")


DESCRIBE_JAY = ("--describe", "--json", "--entity-type", "users", "--entity-name", "jay")
ADDRESS = "--entity-type ips --entity-name 127.0.0.9"
ALICE = "--entity-type users --entity-name alice --entity-type clients --entity-default"
SAID: list[tuple[str, str]] = [
    (f"--alter {ALICE} --add-config producer_byte_rate=1000,request_percentage=12.5", "Completed updating config for user alice.\n"),
    (
        "--alter --entity-type clients --entity-default --entity-type users --entity-name bob --add-config consumer_byte_rate=20000000",
        "Completed updating default config for clients in the cluster.\n",
    ),
    (
        "--alter --entity-type users --entity-default --add-config consumer_byte_rate=2000000",
        "Completed updating default config for users in the cluster.\n",
    ),
    (f"--alter {ADDRESS} --add-config connection_creation_rate=10", "Completed updating config for ip 127.0.0.9.\n"),
    (
        f"--describe {ALICE}",
        "Quota configs for user-principal 'alice', the default client-id are request_percentage=12.5, producer_byte_rate=1000.0\n",
    ),
    (
        "--describe --entity-type users --entity-name bob --entity-type clients",
        "Quota configs for user-principal 'bob', the default client-id are consumer_byte_rate=2.0E7\n",
    ),
    ("--describe --entity-type users --entity-default", "Quota configs for the default user-principal are consumer_byte_rate=2000000.0\n"),
    ("--describe --entity-type ips", "Quota configs for ip '127.0.0.9' are connection_creation_rate=10.0\n"),
    (
        "--alter --entity-type users --entity-name eve --add-config SCRAM-SHA-256=[iterations=8192,password==],SCRAM-SHA-512=[password=c]",
        "Completed updating config for user eve.\n",
    ),
    (
        "--describe --entity-type users",
        "Quota configs for the default user-principal are consumer_byte_rate=2000000.0\n"
        "SCRAM credential configs for user-principal 'eve' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n",
    ),
    ("--alter --entity-type users --entity-name eve --delete-config SCRAM-SHA-512", "Completed updating config for user eve.\n"),
    (
        "--describe --entity-type users --entity-name eve",
        "SCRAM credential configs for user-principal 'eve' are SCRAM-SHA-256=iterations=8192\n",
    ),
    ("--alter --entity-type users --entity-name eve --delete-config SCRAM-SHA-256", "Completed updating config for user eve.\n"),
    ("--describe --entity-type users --entity-name eve", ""),
    (
        "--alter --entity-type users --entity-default --delete-config consumer_byte_rate",
        "Completed updating default config for users in the cluster.\n",
    ),
    (f"--alter {ALICE} --delete-config producer_byte_rate,request_percentage", "Completed updating config for user alice.\n"),
    (
        "--alter --entity-type clients --entity-default --entity-type users --entity-name bob --delete-config consumer_byte_rate",
        "Completed updating default config for clients in the cluster.\n",
    ),
    (f"--alter {ADDRESS} --delete-config connection_creation_rate", "Completed updating config for ip 127.0.0.9.\n"),
    ("--describe --entity-type users --entity-type clients", ""),
    ("--describe --entity-type ips --entity-default", ""),
]
"""Arguments, and what kafka-configs prints for them."""


@pytest.mark.parametrize("tool", ["klamm", pytest.param("kafka", marks=(pytest.mark.slow, pytest.mark.reference))])
def test_quotas_and_users_are_set_shown_and_removed_with_the_lines_of_kafka_configs(members: ToolMembers, tool: str) -> None:
    for arguments, output in SAID:
        if tool == "klamm":
            done = call("configs", "--bootstrap-server", members.bootstrap, *arguments.split())
        else:
            command = java_command(jars(), CLASSES["kafka-configs"], "--bootstrap-server", members.bootstrap, *arguments.split())
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, output), (arguments, done.stderr)


def test_quotas_and_credentials_as_json_are_one_line(members: ToolMembers) -> None:
    with AdminClient(members.bootstrap) as admin:
        entity = QuotaEntity(user="jay", client_id="")
        admin.alter_client_quotas({entity: {"producer_byte_rate": 5}}).all()
        admin.alter_user_scram_credentials({"jay": {"SCRAM-SHA-256": ScramPassword("x")}}).all()
        described = ("configs", "--bootstrap-server", members.bootstrap, *DESCRIBE_JAY)
        quotas = json.loads(call(*described, "--entity-type", "clients").stdout)
        row = {"entity": {"user": "jay", "client_id": None}, "quotas": {"producer_byte_rate": 5.0}}
        assert quotas == {"quotas": [row], "credentials": []}
        users = json.loads(call(*described).stdout)
        assert users == {"quotas": [], "credentials": [{"user": "jay", "iterations": {"SCRAM-SHA-256": 4096}}]}
        admin.alter_client_quotas({entity: {"producer_byte_rate": None}}).all()
        admin.alter_user_scram_credentials({"jay": {"SCRAM-SHA-256": None}}).all()


def test_what_a_cluster_refuses_of_quotas_and_users_is_one_line(members: ToolMembers) -> None:
    for arguments, line in (
        ("--alter --entity-type clients --entity-name c --delete-config producer_byte_rate", "Invalid config(s): producer_byte_rate"),
        (
            "--alter --entity-type clients --entity-name c --add-config producer_byte_rate=1.5",
            "INVALID_REQUEST: Configuration producer_byte_rate must be a LONG value",
        ),
        (
            "--alter --entity-type users --entity-name nobody --delete-config SCRAM-SHA-256",
            "RESOURCE_NOT_FOUND: Attempt to delete a user credential that does not exist",
        ),
        (
            "--alter --entity-type users --entity-name eve --add-config SCRAM-SHA-256=[iterations=1,password=x]",
            "the iterations must be from 4096 to 16384, not 1",
        ),
    ):
        said = call("configs", "--bootstrap-server", members.bootstrap, *arguments.split())
        assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm: {line}\n")


def test_a_user_who_was_given_a_password_is_let_in_and_not_any_more_when_it_is_removed(zookeeper: str, chroot: str) -> None:
    with klamm.Cluster(1, zookeeper=zookeeper + chroot, sasl="SCRAM-SHA-256") as cluster:
        settings = kafka_python_settings(cluster.client)
        connect = partial(AdminClient, cluster.bootstrap_servers)
        with connect(**settings) as admin:
            passwords = {"SCRAM-SHA-256": ScramPassword("secret"), "SCRAM-SHA-512": ScramPassword("x", 8192)}
            admin.alter_user_scram_credentials({"eve": passwords}).all()
            described = admin.describe_user_scram_credentials(["eve", "nobody"])
            assert described.found == {"eve": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}}
            assert described.errors["nobody"].code is ErrorCode.RESOURCE_NOT_FOUND
            assert admin.describe_user_scram_credentials([]).found == {}
            assert set(admin.describe_user_scram_credentials().found) == {"admin", "eve"}
            eves = settings | {"sasl_plain_username": "eve", "sasl_plain_password": "secret"}

            def enters() -> bool:
                with connect(**eves) as eve:
                    try:
                        eve.describe_cluster(timeout_ms=10_000)
                    except kafka.errors.KafkaError:
                        return False
                return True

            wait_for(enters, "eve is let in")
            admin.alter_user_scram_credentials({"eve": {"SCRAM-SHA-256": None}}).all()
            wait_for(lambda: not enters(), "eve is refused")
            entity = QuotaEntity(user="eve", client_id="")
            admin.alter_client_quotas({entity: {"producer_byte_rate": 5, "request_percentage": 1.5}}).all()
            assert admin.describe_client_quotas({"user": "eve"}) == {entity: {"producer_byte_rate": 5.0, "request_percentage": 1.5}}
            assert admin.describe_client_quotas({"user": "eve"}, strict=True) == {}
            admin.alter_client_quotas({entity: {"producer_byte_rate": None}}).all()
            assert admin.describe_client_quotas() == {entity: {"request_percentage": 1.5}}
            wrong = admin.alter_client_quotas({entity: {"no_quota": 1}, QuotaEntity(ip="127.0.0.1"): {"connection_creation_rate": 7}})
            assert list(wrong.errors()) == [entity]


def test_a_password_is_not_in_the_text_of_its_value() -> None:
    assert "secret" not in repr(ScramPassword("secret")) + str({"eve": ScramPassword("secret")})
