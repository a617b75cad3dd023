"""`klamm acls`: adds, removes and lists ACLs, like Kafka's kafka-acls: with its options, and with what it prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.shell.output import say
from klamm.cli.tools.commands import Place, connection_options, run

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient
    from klamm.protocol.security.acls import Entry, Pattern

    Acls = dict[Pattern, list[Entry]]

CLIENT_ID = "klamm-acls"
PRODUCER, CONSUMER = ("Write", "Describe", "Create"), ("Read", "Describe")


def _many(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, metavar=metavar, help=f"{text} May be repeated.")


@click.command(short_help="Add, remove and list ACLs.")
@connection_options
@click.option("--add", "action", flag_value="add", help="Add ACLs.")
@click.option("--remove", "action", flag_value="remove", help="Remove ACLs; without principals all of the resources.")
@click.option("--list", "action", flag_value="list", help="List ACLs, those of the resources if any are named.")
@_many("--topic", "NAME", "A topic, or * for all.")
@_many("--group", "ID", "A consumer group, or * for all.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@_many("--transactional-id", "ID", "A transactional id, or * for all.")
@_many("--delegation-token", "ID", "A delegation token, or * for all.")
@_many("--user-principal", "TYPE:NAME", "A user, for operations on its tokens.")
@click.option(
    "--resource-pattern-type", type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False), default="literal",
    show_default=True, help="How names are meant. any and match only to list and to remove.",
)
@_many("--operation", "NAME", "An operation such as Read; all without the option.")
@_many("--allow-principal", "TYPE:NAME", "Who is allowed, such as User:alice or User:*.")
@_many("--deny-principal", "TYPE:NAME", "Who is denied. What denies wins over all that allows.")
@_many("--allow-host", "ADDRESS", "From where is allowed; from everywhere without the option.")
@_many("--deny-host", "ADDRESS", "From where is denied; from everywhere without the option.")
@_many("--principal", "TYPE:NAME", "List the ACLs of these only.")
@click.option("--producer", is_flag=True, help="What a producer needs: Write, Describe and Create on topics.")
@click.option("--consumer", is_flag=True, help="What a consumer needs: Read and Describe on topics, Read on groups.")
@click.option("--idempotent", is_flag=True, help="With --producer: also IdempotentWrite on the cluster.")
@click.option("--force", is_flag=True, help="Remove ACLs without a confirmation.")
def command(bootstrap_server: str, command_config: Path | None, **given: Any) -> None:
    """Add, remove or list ACLs, on clusters of Klamm and of Apache Kafka.

    \b
    klamm acls --bootstrap-server localhost:9092 --add --allow-principal User:alice --operation Read --topic orders
    klamm acls --bootstrap-server localhost:9092 --add --allow-principal User:bob --producer --topic orders
    klamm acls --bootstrap-server localhost:9092 --list --topic orders --resource-pattern-type match
    """
    _check(given)

    async def work(client: AsyncAdminClient) -> None:
        await {"add": _add, "remove": _remove, "list": _list}[given["action"]](client, given)

    run(Place(bootstrap_server, command_config), CLIENT_ID, work)


def _check(given: Mapping[str, Any]) -> None:
    """Raises UsageError, in the order and with the texts of Kafka's tool."""
    action = given["action"]
    if action is None:
        raise click.UsageError("Command must include exactly one action: --list, --add, --remove.")
    if (given["producer"] or given["consumer"]) and (given["operation"] or given["deny_principal"] or given["deny_host"]):
        raise click.UsageError("--producer and --consumer choose the operations, and allow only")
    if action == "list" and (given["producer"] or given["consumer"] or given["allow_principal"] or given["deny_principal"]):
        raise click.UsageError("--list takes resources and --principal only")
    if given["principal"] and action != "list":
        raise click.UsageError("The --principal option is only available if --list is set")
    if given["producer"] and not given["topic"]:
        raise click.UsageError("With --producer you must specify a --topic")
    if given["idempotent"] and not given["producer"]:
        raise click.UsageError("The --idempotent option is only available if --producer is set")
    if given["consumer"] and (not given["topic"] or not given["group"] or (not given["producer"] and given["cluster"])):
        raise click.UsageError("With --consumer you must specify a --topic and a --group and no --cluster option should be specified.")
    if action == "add" and given["resource_pattern_type"] in ("any", "match"):
        kind = given["resource_pattern_type"].upper()
        raise click.UsageError(f"A '--resource-pattern-type' value of '{kind}' is not valid when adding acls.")
    if action == "add" and not given["allow_principal"] and not given["deny_principal"]:
        raise click.UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    if action != "list" and not _patterns(given):
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or --delegation-token <token>"
        )
    for principal in (*given["allow_principal"], *given["deny_principal"], *given["principal"]):
        if ":" not in principal:
            raise click.UsageError(f"expected a string in format principalType:principalName but got {principal}")
    _check_operations(given)


def _check_operations(given: Mapping[str, Any]) -> None:
    from klamm.protocol.security.acls import OPERATIONS, UNKNOWN, number_of

    for name in given["operation"]:
        if number_of(OPERATIONS, name) == UNKNOWN:
            raise click.UsageError(f"{name} is no operation: {', '.join(OPERATIONS.values())}")


def _patterns(given: Mapping[str, Any]) -> list[Pattern]:
    """The resources that the options name. Their pattern type may be ANY or MATCH."""
    from klamm.protocol.security.acls import ANY, CLUSTER, LITERAL, MATCH, PREFIXED, Pattern

    pattern_type = {"any": ANY, "match": MATCH, "literal": LITERAL, "prefixed": PREFIXED}[given["resource_pattern_type"]]
    kinds = {2: "topic", 3: "group", 5: "transactional_id", 6: "delegation_token", 7: "user_principal"}
    named = [Pattern(kind, name.strip(), pattern_type) for kind, option in kinds.items() for name in given[option]]
    return [*named, *([Pattern(CLUSTER, "kafka-cluster", LITERAL)] if given["cluster"] else [])]


def _wanted(given: Mapping[str, Any]) -> Acls:
    """The ACLs that the options describe."""
    from klamm.protocol.security.acls import CLUSTER, LITERAL, Pattern

    patterns = _patterns(given)
    acls: Acls = {}

    def put(pattern: Pattern, operations: Sequence[str]) -> None:
        acls[pattern] = list(dict.fromkeys([*acls.get(pattern, ()), *_entries(given, operations)]))

    if not given["producer"] and not given["consumer"]:
        for pattern in patterns:
            put(pattern, given["operation"] or ("All",))
    for pattern in patterns:
        if given["producer"] and pattern.resource_type == 2:
            put(pattern, PRODUCER)
        if given["producer"] and pattern.resource_type == 5:
            put(pattern, PRODUCER[:2])
        if given["consumer"] and pattern.resource_type == 2:
            put(pattern, CONSUMER)
        if given["consumer"] and pattern.resource_type == 3:
            put(pattern, CONSUMER[:1])
    if given["idempotent"]:
        put(Pattern(CLUSTER, "kafka-cluster", LITERAL), ("IdempotentWrite",))
    return acls


def _entries(given: Mapping[str, Any], operations: Sequence[str]) -> list[Entry]:
    from klamm.protocol.security.acls import ALLOW, DENY, OPERATIONS, WILDCARD, Entry, number_of

    numbers = [number_of(OPERATIONS, name) for name in operations]
    return [
        Entry(principal.strip(), host.strip(), operation, permission)
        for permission, option in ((ALLOW, "allow"), (DENY, "deny"))
        for principal in given[f"{option}_principal"]
        for host in given[f"{option}_host"] or (WILDCARD,)
        for operation in numbers
    ]


async def _add(client: AsyncAdminClient, given: Mapping[str, Any]) -> None:
    from klamm.admin import Acl

    wanted = _wanted(given)
    for pattern, entries in wanted.items():
        _say(f"Adding ACLs for resource `{_resource(pattern)}`:", entries)
    (await client.create_acls([Acl(pattern, entry) for pattern, entries in wanted.items() for entry in entries])).all()


async def _remove(client: AsyncAdminClient, given: Mapping[str, Any]) -> None:
    from klamm.protocol.security.acls import Filter

    for pattern, entries in _wanted(given).items():
        resource = f"resource filter `{_resource(pattern)}`"
        if entries:
            rows = "\n".join(f"\t{_entry(entry)}" for entry in entries)
            question = f"Are you sure you want to remove ACLs: \n {rows} \n from {resource}? (y/n)"
        else:
            question = f"Are you sure you want to delete all ACLs for {resource}? (y/n)"
        if not given["force"] and not _confirms(question):
            continue
        filters = [
            Filter(*pattern, principal=entry.principal, host=entry.host, operation=entry.operation, permission=entry.permission)
            for entry in entries
        ] or [Filter(*pattern)]
        (await client.delete_acls(filters)).all()


async def _list(client: AsyncAdminClient, given: Mapping[str, Any]) -> None:
    from klamm.protocol.security.acls import Filter

    filters = [Filter(*pattern) for pattern in _patterns(given)] or [Filter()]
    acls: Acls = {}
    for wanted in filters:
        for acl in await client.describe_acls(wanted):
            acls.setdefault(acl.pattern, []).append(acl.entry)
    for principal in given["principal"] or (None,):
        if principal is not None:
            say(f"ACLs for principal `{principal}`")
        for pattern, entries in acls.items():
            chosen = [entry for entry in dict.fromkeys(entries) if principal in (None, entry.principal)]
            if chosen:
                _say(f"Current ACLs for resource `{_resource(pattern)}`:", chosen)


def _confirms(question: str) -> bool:
    say(question)
    return sys.stdin.readline().strip().lower() == "y"


def _say(title: str, entries: Iterable[Entry]) -> None:
    rows = "\n".join(f"\t{_entry(entry)}" for entry in entries)
    say(f"{title} \n {rows} \n")


def _resource(pattern: Pattern) -> str:
    from klamm.protocol.security.acls import RESOURCE_TYPES, capitals

    types = {1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
    kind = capitals(RESOURCE_TYPES[pattern.resource_type])
    return f"ResourcePattern(resourceType={kind}, name={pattern.name}, patternType={types[pattern.pattern_type]})"


def _entry(entry: Entry) -> str:
    from klamm.protocol.security.acls import OPERATIONS, PERMISSIONS, capitals

    operation, permission = capitals(OPERATIONS[entry.operation]), capitals(PERMISSIONS[entry.permission])
    return f"(principal={entry.principal}, host={entry.host}, operation={operation}, permissionType={permission})"
