"""`klamm control recovering` and `release-recovery`: leaders that wait in recovery after an unclean election (KIP-704)."""

from __future__ import annotations

from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command
from klamm.cli.control.tables import show

RECOVERY = ("TOPIC", "PARTITION", "BROKER", "LEADER-EPOCH")


@click.command("recovering", short_help="List leaders that wait in recovery (KIP-704).")
@control_command()
def recovering(api: ControlApi) -> None:
    """List the leaders that wait to be released from recovery, with kip704.recovery.mode=manual."""
    response = api.get("recovering")
    show(api, response, RECOVERY, map(_row, response["recovering"]))


@click.command("release-recovery", short_help="Let leaders that wait in recovery go on (KIP-704).")
@click.argument("topic", required=False)
@click.argument("partition", required=False, type=int)
@control_command()
def release_recovery(api: ControlApi, topic: str | None, partition: int | None) -> None:
    """Let leaders that wait in recovery go on: all, those of TOPIC, or that of one PARTITION of it.

    \b
    klamm control release-recovery orders 0
    """
    response = api.post("recovering", "release", body={"topic": topic, "partition": partition})
    show(api, response, RECOVERY, map(_row, response["released"]))


def _row(shown: dict[str, Any]) -> tuple[object, ...]:
    return shown["topic"], shown["partition"], shown["broker"], shown["leader_epoch"]
