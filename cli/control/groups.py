"""`klamm control groups`, `group` and `transactions`: what the coordinators have."""

from __future__ import annotations

from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command, print_line, verb_command
from klamm.cli.control.tables import GROUP, show
from klamm.cli.control.tables import group as row
from klamm.cli.shell.output import say
from klamm.cli.tools.commands import print_table
from klamm.control.json_object import JsonObject


@click.command("groups", short_help="List groups.")
@control_command()
def groups(api: ControlApi) -> None:
    """List the groups of all coordinators."""
    response = api.call("groups")
    show(api, response, GROUP, map(row, response["groups"]))


@click.command("group", short_help="Show a group, end sessions of members, or let it rebalance.")
@click.argument("name")
@click.option("--expire", "expired", metavar="MEMBER", help="End the session of this member: the group removes it and rebalances.")
@click.option("--expire-all", is_flag=True, help="End the sessions of all members.")
@click.option("--rebalance", is_flag=True, help="Let the group rebalance.")
@control_command()
def group(api: ControlApi, name: str, expired: str | None, expire_all: bool, rebalance: bool) -> None:
    """Show the group NAME and its members, end sessions, or let it rebalance.

    \b
    klamm control group billing
    klamm control group billing --expire pod-1-8d0c9e
    """
    if (expired is not None) + expire_all + rebalance > 1:
        raise click.UsageError("--expire, --expire-all and --rebalance cannot be combined")
    if expired is not None or expire_all:
        ended = api.call("expire_members", name=name, member=expired)
        if api.as_json:
            print_line(ended)
        else:
            print_table(("EXPIRED",), [(member,) for member in ended["expired"]])
        return
    response = api.call("rebalance" if rebalance else "group", name=name)
    show(api, response, GROUP, [row(response)])
    if response["members"] and not api.as_json:
        say("")
        members = [(m["member_id"], m["client_id"], m["instance_id"], _leads(response, m)) for m in response["members"]]
        print_table(("MEMBER", "CLIENT-ID", "INSTANCE-ID", "LEADER"), members)


def _leads(group: dict[str, object], member: dict[str, object]) -> str:
    return "yes" if group["leader"] == member["member_id"] else "no"


TRANSACTION = ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR", "PARTITIONS")


def _transaction_row(shown: dict[str, Any]) -> tuple[object, ...]:
    partitions = ",".join(f"{each['topic']}-{each['partition']}" for each in shown["partitions"]) or None
    return (
        shown["transactional_id"], shown["state"], shown["producer_id"], shown["producer_epoch"], shown["coordinator"], partitions
    )


def _show(api: ControlApi, response: JsonObject) -> None:
    show(api, response, TRANSACTION, map(_transaction_row, response.get("transactions", [response])))


transactions = verb_command(
    "transactions", _show, text="List the transactional ids of all coordinators, with the partitions of open transactions."
)


@click.command("transaction", short_help="Show a transactional id, or let its transaction time out.")
@click.argument("transactional_id", metavar="ID")
@click.option("--expire", is_flag=True, help="Let its open transaction time out now: it is aborted, and the producer is fenced.")
@control_command()
def transaction(api: ControlApi, transactional_id: str, expire: bool) -> None:
    """Show the transactional id ID, or let its open transaction time out.

    \b
    klamm control transaction payments-1 --expire
    """
    _show(api, api.call("expire_transaction" if expire else "transaction", name=transactional_id))
