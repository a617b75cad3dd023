"""`klamm control fault`: adds a fault to requests."""

from __future__ import annotations

import json
from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command, says
from klamm.cli.shell.value_completion import complete_apis, complete_errors

FILTER = (
    "api", "versions", "broker", "from_broker", "client_id", "principal", "topic", "topic_id", "partition", "group", "transactional_id",
    "direction", "disk", "log_dir", "while_",
)
DISK_OPERATIONS = ("append", "flush", "read")
EFFECT = (
    "error", "message", "delay_ms", "drop", "close", "corrupt", "truncate", "correlation_id", "lose_response", "throttle_time_ms",
    "values", "unknown_tags", "slow_disk_ms",
)
LIMITS = ("first", "after", "probability", "seed")


@click.command("fault", short_help="Add a fault to requests.")
@click.option("--api", "api_name", metavar="NAME", shell_complete=complete_apis, help="Requests of this API, by name or key.")
@click.option("--versions", metavar="LOW[-HIGH]", help="Requests of these versions.")
@click.option("--broker", type=int, help="Requests to this broker.")
@click.option("--from-broker", type=int, help="Requests that this broker sends to others.")
@click.option("--client-id", metavar="TEXT", help="Requests with this client id. A text may end with *.")
@click.option("--principal", metavar="TEXT", help="Requests of this principal.")
@click.option("--topic", metavar="TEXT", help="Only this topic in a request.")
@click.option("--topic-id", metavar="ID", help="Only the topic with this id.")
@click.option("--partition", type=int, help="Only this partition.")
@click.option("--group", metavar="TEXT", help="Requests of this group.")
@click.option("--transactional-id", metavar="TEXT", help="Requests of this transactional id.")
@click.option(
    "--direction", type=click.Choice(("request", "response")), help="Act before or after the request is processed.  [default: request]"
)
@click.option("--disk", type=click.Choice(DISK_OPERATIONS), help="With --slow-disk-ms: these operations of logs. Default: all.")
@click.option("--log-dir", metavar="PATH", help="With --slow-disk-ms: logs in this log directory.")
@click.option(
    "--while", "while_", metavar="CONDITION",
    help="Act only while hold=ID or phase=NAME holds something, fault=ID exists, or broker=ID:STATE: running, paused, down, controller.",
)
@click.option("--error", metavar="NAME", shell_complete=complete_errors, help="Respond with this error, by name or code.")
@click.option("--message", metavar="TEXT", help="Text of the error.")
@click.option("--delay-ms", type=int, help="Wait this time; alone, or with one of the others.")
@click.option("--drop", is_flag=True, help="Do not process the request and do not respond.")
@click.option("--close", type=click.Choice(("before", "amid", "after")), help="Close the connection before, amid or after the response.")
@click.option("--corrupt", is_flag=True, help="Respond with other bytes.")
@click.option("--truncate", type=int, metavar="BYTES", help="Respond with the first BYTES bytes, then close the connection.")
@click.option("--correlation-id", type=int, metavar="N", help="Respond with this correlation id.")
@click.option("--lose-response", is_flag=True, help="Process the request and do not respond.")
@click.option("--throttle-time-ms", type=int, metavar="MS", help="Respond with this throttle time.")
@click.option(
    "--value", "values", multiple=True, metavar="PATH=JSON",
    help="Respond with this value of a field, such as topics.partitions.leaderId=9.",
)
@click.option("--unknown-tags", is_flag=True, help="Respond with tagged fields that no client knows.")
@click.option("--slow-disk-ms", type=int, metavar="MS", help="Let operations of logs wait this time, instead of requests.")
@click.option("--first", type=int, metavar="N", help="Hit N requests, then no more. Default: all.")
@click.option("--after", type=int, metavar="N", help="Let N requests pass first.")
@click.option("--probability", type=float, metavar="P", help="Hit a request with this probability, above 0 and at most 1.")
@click.option("--seed", type=int, help="Seed for --probability.")
@control_command()
def command(api: ControlApi, **options: Any) -> None:
    """Add a fault to the requests that match all filters, and print its number.

    \b
    klamm control fault --api Produce --client-id billing --topic orders --partition 0 --error NOT_LEADER_OR_FOLLOWER --first 2
    klamm control fault --api Fetch --delay-ms 500
    klamm control fault --api Produce --lose-response --first 1
    klamm control fault --broker 2 --topic orders --disk append --slow-disk-ms 300
    """
    options["api"] = options.pop("api_name")
    options["versions"] = _versions(options["versions"])
    options["values"] = dict(map(_value, options["values"])) or None
    options["while_"] = _condition(options["while_"])
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    body: dict[str, Any] = {name: given[name] for name in LIMITS if name in given}
    body["filter"] = {name.rstrip("_"): given[name] for name in FILTER if name in given}
    body["effect"] = {name: given[name] for name in EFFECT if name in given}
    says("fault {id}")(api, api.call("add_fault", **body))


def _value(text: str) -> tuple[str, Any]:
    """Path and value of `--value`. Raises UsageError."""
    path, _, value = text.partition("=")
    try:
        return path, json.loads(value)
    except ValueError:
        raise click.UsageError(f"--value: {text!r} is not PATH=JSON") from None


def _condition(text: str | None) -> dict[str, object] | None:
    """The condition of `--while`. Raises UsageError."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if name == "phase" and value:
        return {"phase": value}
    number, _, state = value.partition(":")
    if not equals or not number.isdigit():
        raise click.UsageError(f"--while: {text!r} is none of hold=ID, phase=NAME, fault=ID and broker=ID:STATE")
    return {name: int(number), "state": state} if state else {name: int(number)}


def _versions(text: str | None) -> list[int] | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not low.isdigit() or not (high or low).isdigit():
        raise click.UsageError(f"--versions: {text!r} is not LOW-HIGH")
    return [int(low), int(high or low)]
