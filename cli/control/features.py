"""`klamm control features` and `set-feature`: the finalized features of a cluster that stands for Kafka 4."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, verb_command
from klamm.cli.control.tables import show
from klamm.control.json_object import JsonObject

HEAD = ("BROKER", "EPOCH", "FEATURE", "LEVEL", "SUPPORTED")


def _show(api: ControlApi, response: JsonObject) -> None:
    show(api, response, HEAD, [
        (each["id"], each["epoch"], name, each["finalized"].get(name, 0), f"{low}-{high}")
        for each in response["brokers"] for name, (low, high) in sorted(each["supported"].items())
    ])


features = verb_command("features", _show, text="List the features that each broker supports, and their finalized levels.")
set_feature = verb_command(
    "set_feature", _show, click.Argument(["name"]), click.Argument(["level"], type=int),
    text="""Set the level of the feature NAME to LEVEL while clients run; 0 removes it. The command ends when all brokers show it.

    \b
    klamm control set-feature transaction.version 0
    """,
)
