"""`klamm control features`, `set-feature` and `show-cluster-id`: what clients of Kafka 4 see of a cluster before they use it."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, says, verb_command
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
show_cluster_id = verb_command(
    "show_cluster_id", says("the cluster id is changed"), click.Argument(["id"], required=False),
    text="""Let the brokers show the cluster id ID to clients, or without it the real one again.

    A client that wants the former one, in ApiVersions 5, gets REBOOTSTRAP_REQUIRED.

    \b
    klamm control show-cluster-id another
    """,
)
