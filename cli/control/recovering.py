"""`klamm control recovering` and `release-recovery`: leaders that wait in recovery after an unclean election (KIP-704)."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, verb_command
from klamm.cli.control.tables import show
from klamm.control.json_object import JsonObject

RECOVERY = ("TOPIC", "PARTITION", "BROKER", "LEADER-EPOCH")


def _show(api: ControlApi, response: JsonObject) -> None:
    rows = response["recovering"] if "recovering" in response else response["released"]
    show(api, response, RECOVERY, [(each["topic"], each["partition"], each["broker"], each["leader_epoch"]) for each in rows])


recovering = verb_command(
    "recovering", _show, text="List the leaders that wait to be released from recovery, with kip704.recovery.mode=manual."
)
release_recovery = verb_command(
    "release_recovery", _show, click.Argument(["topic"], required=False), click.Argument(["partition"], required=False, type=int),
    text="""Let leaders that wait in recovery go on: all, those of TOPIC, or that of one PARTITION of it.

    \b
    klamm control release-recovery orders 0
    """,
)
