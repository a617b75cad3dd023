"""`klamm configs` (controller 16, R491-17): what it takes, what it prints beside Kafka's kafka-configs, on clusters of both kinds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import click
import pytest

from klamm.cli.tools.configs import additions_of
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.scripted import scripted
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import java_command, wait_for
from klamm.tests.reference.jars import jars
from klamm.tests.reference.tools import CLASSES

LIST = "preferred_leader_blacklist"
BROKERS = ("--entity-type", "brokers")
OF_ALL = (*BROKERS, "--entity-default")
NO_ID = "The entity name for brokers must be a valid integer broker id"
PLACE = "/config/brokers/<default>"


def configs(members: ToolMembers, *arguments: object) -> subprocess.CompletedProcess[str]:
    return call("configs", "--bootstrap-server", members.bootstrap, *arguments)


def stored(members: ToolMembers, path: str = PLACE) -> dict[str, str]:
    found: dict[str, str] = (members.tree.json(path) or {"config": {}})["config"]
    return found


@pytest.fixture
def cluster(members: ToolMembers) -> Iterator[ToolMembers]:
    """No config of one test meets the next one."""
    yield members
    for path in (PLACE, "/config/brokers/0"):
        if stored(members, path):
            name = ("--entity-default",) if path == PLACE else ("--entity-name", "0")
            configs(members, "--entity-type", "brokers", *name, "--alter", "--delete-config", ",".join(stored(members, path)))


@pytest.mark.requirement("R491-17")
@pytest.mark.parametrize(
    ("text", "values"),
    [
        (f"{LIST}=1,10,65", {LIST: "1,10,65"}),
        (f"{LIST}=[1,10,65]", {LIST: "1,10,65"}),
        (f"{LIST}=1,10,65,min.insync.replicas=2", {LIST: "1,10,65", "min.insync.replicas": "2"}),
        (f"min.insync.replicas=2,{LIST}=[1,10],a.b=5", {LIST: "1,10", "min.insync.replicas": "2", "a.b": "5"}),
        (f"{LIST} = 1, 10 ,65", {LIST: "1,10,65"}),
        (f"{LIST}=", {LIST: ""}),
        (f"{LIST}=[]", {LIST: ""}),
        (f"{LIST}=7", {LIST: "7"}),
        ("sasl.jaas.config=[a b=c,d=e]", {"sasl.jaas.config": "a b=c,d=e"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_a_list_is_taken_with_brackets_and_without(text: str, values: dict[str, str]) -> None:
    assert additions_of(text) == values


@pytest.mark.parametrize("text", ["", "1,10", "=1", "a=1,=2"])
def test_a_value_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        additions_of(text)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--describe", "--alter", *OF_ALL), "Command must include exactly one action: --describe, --alter"),
        (OF_ALL, "Command must include exactly one action: --describe, --alter"),
        (("--alter", *OF_ALL), "At least one of --add-config or --delete-config must be specified with --alter"),
        (("--alter", *OF_ALL, "--entity-name", 1, "--add-config", "a=1"), "exactly one of --entity-name and --entity-default is needed"),
        (("--describe", "--entity-type", "brokers"), "exactly one of --entity-name and --entity-default is needed"),
        (("--describe", "--entity-type", "topics", "--entity-default"), "there is no default of all topics"),
        (("--alter", *BROKERS, "--entity-name", "", "--add-config", "a=1"), f"{NO_ID}, found: "),
        (("--describe", *BROKERS, "--entity-name", "x"), f"{NO_ID}, found: x"),
        (("--describe", *BROKERS, "--entity-name", "-1"), f"{NO_ID}, found: -1"),
        (("--describe", *BROKERS, "--entity-name", 2**31), f"{NO_ID}, found: {2**31}"),
        (("--describe", "--entity-type", "topics", "--entity-name", ""), "--entity-name is empty"),
        (("--describe", *OF_ALL, "--delete-config", "a"), "--add-config and --delete-config need --alter"),
        (("--alter", *OF_ALL, "--add-config", "a"), 'Invalid entity config: all configs to be added must be in the format "key=val".'),
    ],
)
def test_options_that_do_not_fit_are_one_line_and_nothing_is_connected(arguments: tuple[object, ...], line: str) -> None:
    said = call("configs", "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm configs: {line}\n")


@pytest.mark.requirement("R491-17")
@pytest.mark.parametrize("text", [f"{LIST}=1,10,65", f"{LIST}=[1,10,65]"])
def test_the_list_is_stored_shown_and_taken_away(cluster: ToolMembers, text: str) -> None:
    done = configs(cluster, *OF_ALL, "--alter", "--add-config", text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Completed updating default config for brokers in the cluster.\n", "")
    assert stored(cluster) == {LIST: "1,10,65"}
    value, hidden = ("1,10,65", "false") if cluster.kind == "klamm" else ("null", "true")
    line = f"  {LIST}={value} sensitive={hidden} synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{LIST}={value}}}\n"

    def shows() -> bool:
        shown = configs(cluster, *OF_ALL, "--describe")
        assert (shown.returncode, shown.stderr) == (0, "")
        return bool(shown.stdout == f"Default configs for brokers in the cluster are:\n{line}")

    wait_for(shows, "the list is shown")
    gone = configs(cluster, *OF_ALL, "--alter", "--delete-config", LIST)
    assert (gone.returncode, gone.stderr) == (0, "") and stored(cluster) == {}


def test_what_the_cluster_refuses_is_one_line(cluster: ToolMembers) -> None:
    topic = cluster.topic([0])
    refused = [
        (("--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", f"{LIST}=1"), "INVALID_CONFIG"),
        (
            ("--entity-type", "topics", "--entity-name", "no-such", "--alter", "--add-config", "retention.ms=1"),
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (("--entity-type", "brokers", "--entity-name", "0", "--alter", "--add-config", "broker.id=7"), "INVALID_REQUEST"),
        ((*OF_ALL, "--alter", "--delete-config", LIST), f"Invalid config(s): {LIST}"),
    ]
    if cluster.kind == "klamm":
        refused.append((("--entity-type", "brokers", "--entity-name", "0", "--alter", "--add-config", f"{LIST}=1"), "INVALID_REQUEST"))
        refused.append(((*OF_ALL, "--alter", "--add-config", f"{LIST}=1,x"), "INVALID_REQUEST"))
    for arguments, reason in refused:
        said = configs(cluster, *arguments)
        assert said.returncode == 1 and said.stderr.count("\n") == 1 and reason in said.stderr, said
    assert stored(cluster) == {}


def test_a_topic_that_does_not_exist_is_one_line_without_a_heading(cluster: ToolMembers) -> None:
    said = configs(cluster, "--entity-type", "topics", "--entity-name", "no-such", "--describe")
    line = "klamm: UNKNOWN_TOPIC_OR_PARTITION: The topic 'no-such' does not exist.\n"
    assert (said.returncode, said.stdout, said.stderr) == (1, "", line)


def test_configs_as_json_are_one_line(cluster: ToolMembers) -> None:
    topic = cluster.topic([0])
    entity = ("--entity-type", "topics", "--entity-name", topic)
    assert configs(cluster, *entity, "--alter", "--add-config", "retention.ms=1000").returncode == 0
    heard(cluster, "--entity-type", "topics", "--entity-name", topic)
    (config,) = json.loads(configs(cluster, *entity, "--describe", "--json").stdout)["configs"]
    assert (config["name"], config["value"], config["sensitive"]) == ("retention.ms", "1000", False)
    assert config["synonyms"][0] == {"source": "DYNAMIC_TOPIC_CONFIG", "name": "retention.ms", "value": "1000"}
    wrong = configs(cluster, *entity, "--alter", "--delete-config", "retention.ms", "--json")
    assert wrong.returncode == 1 and "--json needs --describe" in wrong.stderr


@pytest.mark.slow
@pytest.mark.reference
def test_it_prints_what_kafkas_own_tool_prints(cluster: ToolMembers) -> None:
    topic = cluster.topic([0])

    def kafkas(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = java_command(jars(), CLASSES["kafka-configs"], "--bootstrap-server", cluster.bootstrap, *map(str, arguments))
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    for entity, changes, names in (
        (("--entity-type", "topics", "--entity-name", topic), "retention.ms=1000,cleanup.policy=[compact,delete]", "retention.ms"),
        (("--entity-type", "brokers", "--entity-name", 0), "num.io.threads=5,log.retention.ms=60000", "num.io.threads,log.retention.ms"),
        (OF_ALL, f"num.io.threads=6,{LIST}=[1,2]", f"num.io.threads,{LIST}"),
    ):
        said: list[list[str]] = []
        for tool in (kafkas, lambda *arguments: configs(cluster, *arguments)):
            said.append([])
            for step in (("--alter", "--add-config", changes), ("--describe",), ("--alter", "--delete-config", names), ("--describe",)):
                done = tool(*entity, *step)
                assert done.returncode == 0, done
                said[-1].append(done.stdout)
                heard(cluster, *entity)
        assert said[0] == said[1]


def heard(members: ToolMembers, kind_option: str, kind: str, name_option: str, name: object = "<default>") -> None:
    """Wait until the broker shows what is stored for an entity."""
    entity = (kind_option, kind, name_option, *([] if name == "<default>" else [name]))

    def shows() -> bool:
        shown = configs(members, *entity, "--describe").stdout.splitlines()[1:]
        return [line.split("=")[0].strip() for line in shown] == sorted(stored(members, f"/config/{kind}/{name}"))

    wait_for(shows, f"configs of {kind} {name} are shown")


@pytest.mark.parametrize(
    ("entity", "code", "needed"),
    [
        (("brokers", "--entity-default"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the cluster"),
        (("topics", "--entity-name", "t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t"),
    ],
)
def test_who_may_not_alter_configs_is_told_which_operation_that_needs(entity: tuple[str, ...], code: ErrorCode, needed: str) -> None:
    def refused(request: messages.IncrementalAlterConfigsRequest, version: int) -> messages.IncrementalAlterConfigsResponse:
        kind = messages.IncrementalAlterConfigsResponse
        rows = [kind.AlterConfigsResourceResponse(int(code), None, r.resource_type, r.resource_name) for r in request.resources]
        return kind(responses=rows)

    with scripted() as cluster:
        for broker in cluster.add(1):
            broker.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, refused)
        chosen = ("--entity-type", *entity, "--alter", "--add-config", "preferred_leader_blacklist=1")
        said = call("configs", "--bootstrap-server", cluster.bootstrap, *chosen)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == f"klamm: {code.name}: it needs ALTER_CONFIGS on {needed}\n"
