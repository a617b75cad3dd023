"""`klamm acls` prints what kafka-acls printed of a real Kafka: the recorded story, command by command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.stories.both.story_file import read

STORY = Path(__file__).parents[2] / "security" / "acls.txt"
AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:ANONYMOUS"}


@pytest.fixture
def broker(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[OwnedBroker]:
    tree = Tree(zookeeper, chroot)
    made = OwnedBroker(tree, tmp_path, 0, **AUTHORIZER).start()
    yield made
    made.kill()
    tree.close()


def _said(text: str) -> list[str]:
    """The lines, as stories keep them; ACLs of one command in any order."""
    return sorted(line.strip() for line in text.splitlines() if line.strip())


@pytest.mark.slow
def test_the_tool_prints_what_kafka_acls_printed(broker: OwnedBroker) -> None:
    story = next(each for each in read(STORY).stories if each.sections == "kafka-acls")
    commands = [line for line in story.scenes[0].commands if line.startswith("kafka-acls ")]
    recorded = [part.partition("\n") for part in ("\n" + story.scenes[0].outcome).split("\nexit ")[1:]]
    for line, (code, _, text) in zip(commands, recorded, strict=True):
        run = call("acls", "--bootstrap-server", f"127.0.0.1:{broker.port}", *shlex.split(line)[1:])
        assert run.returncode == int(code), (line, run)
        expected = _said(text if code == "0" else text.partition("Error while")[0])
        assert [row for row in _said(run.stdout) if row in expected or code == "0"] == [row for row in expected if row != "bills"], line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--topic t", "exactly one action"),
        ("--add --topic t", "--allow-principal, --deny-principal"),
        ("--add --allow-principal User:a", "at least one resource"),
        ("--add --allow-principal a --topic t", "principalType:principalName"),
        ("--add --allow-principal User:a --topic t --operation Nothing", "no operation"),
        ("--add --allow-principal User:a --topic t --resource-pattern-type match", "not valid when adding"),
        ("--add --allow-principal User:a --group g --producer", "must specify a --topic"),
        ("--add --allow-principal User:a --topic t --consumer", "--topic and a --group"),
        ("--list --allow-principal User:a", "--list takes"),
    ],
)
def test_a_wrong_command_line_ends_before_anything_is_connected(arguments: str, text: str) -> None:
    run = call("acls", "--bootstrap-server", "127.0.0.1:1", *arguments.split())
    assert run.returncode == 1 and text in run.stderr and run.stdout == ""
