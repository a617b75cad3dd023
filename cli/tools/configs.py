"""`klamm configs`: shows and changes dynamic configs of topics and brokers, quotas, and users of SCRAM, like Kafka's kafka-configs
(controller 16, R491-17).

Options, output and exit codes are those of kafka-configs for one topic, one broker, the default of all brokers, and for users, clients
and addresses (`client_entities.py`). kafka-configs needs brackets around a list in `--add-config`. Here they are optional: an element
without `=` continues the value before it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.shell.value_completion import complete_configs
from klamm.cli.tools.client_entities import KINDS, check_work, work_on
from klamm.cli.tools.commands import Place, run
from klamm.cli.tools.options import bootstrap_option, config_option

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient, ConfigChange, ConfigEntry, ConfigResource

CLIENT_ID = "klamm-configs"
_OUTSIDE_BRACKETS = re.compile(r",(?=[^\]]*(?:\[|$))")
MAX_ID = 2**31 - 1
_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}


class _DefaultName(click.Option):
    """A flag that adds None to the names of another option, so that the order of names and defaults is kept."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """See `click.Option`."""
        parser.add_option(obj=self, opts=self.opts, dest="entity_name", action="append_const", const=None)


@click.command(short_help="Show and change dynamic configs, quotas and users of SCRAM.")
@bootstrap_option(required=True)
@click.option(
    "--entity-type", type=click.Choice(["topics", "brokers", *KINDS]), required=True, multiple=True,
    help="Type of the entity to describe or alter. users and clients may be given together.",
)
@click.option(
    "--entity-name", metavar="NAME", multiple=True,
    help="Name of the topic, user or client, id of the broker, or address. One for each type.",
)
@click.option("--entity-default", is_flag=True, cls=_DefaultName, help="The default of all brokers, users, clients or addresses.")
@click.option("--describe", is_flag=True, help="Print the dynamic configs.")
@click.option("--alter", is_flag=True, help="Change configs; needs --add-config, --delete-config or both.")
@click.option(
    "--add-config", metavar="KEY=VALUE[,…]", shell_complete=complete_configs,
    help="Set these configs. A list is KEY=1,2,3 or KEY=[1,2,3].",
)
@click.option("--delete-config", metavar="KEY[,…]", shell_complete=complete_configs, help="Remove these configs.")
@config_option()
@click.option("--json", is_flag=True, help="With --describe: print one line of JSON.")
def command(**given: Any) -> None:
    """Show or change the dynamic configs of a topic, of a broker, or of all brokers; quotas of users, clients and addresses; passwords of
    users (SCRAM).

    Quotas are producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, and connection_creation_rate of an
    address. --describe without a name shows all users, clients or addresses.

    \b
    klamm configs --bootstrap-server localhost:9092 --entity-type brokers --entity-default --describe
    klamm configs --bootstrap-server localhost:9092 --entity-type brokers --entity-default --alter \\
        --add-config preferred_leader_blacklist=1,10,65
    klamm configs --bootstrap-server localhost:9092 --entity-type users --entity-name eve --alter \\
        --add-config 'SCRAM-SHA-256=[password=secret]'
    klamm configs --bootstrap-server localhost:9092 --entity-type users --entity-name eve --entity-type clients --entity-default \\
        --alter --add-config producer_byte_rate=1048576
    """
    of_clients = any(kind in KINDS for kind in given["entity_type"])
    additions, deletions = _check(given)
    if of_clients:
        work = check_work(given["entity_type"], given["entity_name"], given["describe"], additions, deletions)
        run(Place(given["bootstrap_server"], given["command_config"]), CLIENT_ID, lambda client: work_on(client, work, given["json"]))
        return
    _take_one(given)
    logging.getLogger().addHandler(logging.NullHandler())  # hides log lines of libraries: the tool reports the same in its own words
    asyncio.run(_run(given, additions, deletions))


def additions_of(text: str) -> dict[str, str]:
    """The values of `--add-config` by name. Raises UsageError."""
    values: dict[str, str] = {}
    name = None
    for element in _OUTSIDE_BRACKETS.split(text):
        before, equals, after = element.partition("=")
        if equals:
            name = before.strip()
            values[name] = after.strip()
        elif name is not None:
            values[name] += f",{element.strip()}"
        if not name:
            raise click.UsageError('Invalid entity config: all configs to be added must be in the format "key=val".')
    return {name: value.replace("[", "").replace("]", "").strip() for name, value in values.items()}


def _check(given: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The configs to set and the names to delete. Raises UsageError."""
    if given["describe"] == given["alter"]:
        raise click.UsageError("Command must include exactly one action: --describe, --alter")
    additions = {} if given["add_config"] is None else additions_of(given["add_config"])
    deletions = [] if given["delete_config"] is None else [name.strip() for name in given["delete_config"].split(",")]
    if given["alter"] and not additions and not deletions:
        raise click.UsageError("At least one of --add-config or --delete-config must be specified with --alter")
    if given["json"] and not given["describe"]:
        raise click.UsageError("--json needs --describe")
    if given["describe"] and (additions or deletions):
        raise click.UsageError("--add-config and --delete-config need --alter")
    return additions, deletions


def _take_one(given: dict[str, Any]) -> None:
    """Replace the types and names by one of each; a name of None is the default. Raises UsageError."""
    kinds, names = given["entity_type"], given["entity_name"]
    if len(kinds) != 1:
        raise click.UsageError("Only 'users' and 'clients' entity types may be specified together")
    if len(names) != 1:
        raise click.UsageError("exactly one of --entity-name and --entity-default is needed")
    given |= {"entity_type": kinds[0], "entity_name": names[0]}
    if names[0] is None and kinds[0] == "topics":
        raise click.UsageError("there is no default of all topics")
    _check_name(kinds[0], names[0])


def _check_name(entity_type: str, name: str | None) -> None:
    """An empty name must not become the default of all brokers. Raises UsageError."""
    if name is None:
        return
    if entity_type == "topics":
        if not name:
            raise click.UsageError("--entity-name is empty")
    elif not (name.isascii() and name.isdecimal() and int(name) <= MAX_ID):
        raise click.UsageError(f"The entity name for brokers must be a valid integer broker id, found: {name}")


async def _run(given: dict[str, Any], additions: dict[str, str], deletions: list[str]) -> None:
    from klamm.admin import AdminError, AlterOperation, ConfigChange, ConfigResource, ResourceType
    from klamm.cli.tools.client import connected_client, error_text
    from klamm.cli.tools.failures import ToolFailed

    name, is_topic = given["entity_name"], given["entity_type"] == "topics"
    resource = ConfigResource(ResourceType.TOPIC if is_topic else ResourceType.BROKER, name or "")
    whose = f"{'topic' if is_topic else 'broker'} {name}"
    try:
        async with connected_client(given["bootstrap_server"], given["command_config"], CLIENT_ID) as client:
            if given["describe"]:
                entries = [entry for _, entry in sorted((await _dynamic(client, resource)).items())]
                if given["json"]:
                    say(json.dumps({"configs": [_as_json(entry) for entry in entries]}))
                    return
                say("Default configs for brokers in the cluster are:" if name is None else printable(f"Dynamic configs for {whose} are:"))
                for entry in entries:
                    say(printable(_line(entry)))
                return
            unset = [key for key in deletions if key not in await _dynamic(client, resource)] if deletions else []
            if unset:
                raise ToolFailed(f"Invalid config(s): {','.join(unset)}")
            changes = [ConfigChange(key, value) for key, value in additions.items()]
            changes += [ConfigChange(key, operation=AlterOperation.DELETE) for key in deletions]
            await _alter(client, resource, changes)
            say(f"Completed updating {'default config for brokers in the cluster' if name is None else f'config for {whose}'}.")
    except AdminError as error:
        raise ToolFailed(error_text(error)) from error
    except ValueError as problem:
        raise ToolFailed(str(problem)) from problem


async def _dynamic(client: AsyncAdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    """The dynamic configs of this resource, without those that it inherits. Raises AdminError."""
    from klamm.admin.calls.errors import response_error
    from klamm.protocol.errors import ErrorCode

    described = await client.describe_configs([resource], include_synonyms=True)
    error = described.errors.get(resource)
    if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not error.message:
        raise response_error(error.code, f"The topic '{resource.name}' does not exist.")  # the broker returns only the code
    if error is not None:
        raise error
    source = 1 if resource.type == 2 else 2 if resource.name else 3
    return {name: entry for name, entry in described.found[resource].items() if entry.source == source}


async def _alter(client: AsyncAdminClient, resource: ConfigResource, changes: list[ConfigChange]) -> None:
    """Raises AdminError."""
    from klamm.admin.calls.errors import response_error
    from klamm.protocol.errors import ErrorCode

    for error in (await client.incremental_alter_configs({resource: changes})).errors().values():
        if error.code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED) and not error.message:
            whose = f"topic {resource.name}" if resource.type == 2 else "the cluster"
            raise response_error(error.code, f"it needs ALTER_CONFIGS on {whose}")  # the broker returns only the code
        raise error


def _as_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"source": _SOURCES.get(source, source.name), "name": name, "value": value} for name, value, source in entry.synonyms
        ],
    }


def _line(entry: ConfigEntry) -> str:
    """As kafka-configs writes it."""
    synonyms = ", ".join(f"{_SOURCES.get(source, source.name)}:{name}={_text(value)}" for name, value, source in entry.synonyms)
    return f"  {entry.name}={_text(entry.value)} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value
