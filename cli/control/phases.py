"""`klamm control phases`: the phases that can be held."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command
from klamm.cli.control.tables import show
from klamm.cli.tools.failures import ToolFailed


@click.command("phases", short_help="List the phases that can be held.")
@click.argument("name", required=False)
@control_command()
def command(api: ControlApi, name: str | None) -> None:
    """List the phases that can be held, or describe the phase NAME with the types of its fields.

    \b
    klamm control phases
    klamm control phases DeletionReplicasStopped
    """
    response = api.call("phases")
    if name is None:
        show(api, response, ("PHASE", "KIND", "FIELDS"), [(p["name"], p["kind"], " ".join(p["fields"])) for p in response["phases"]])
        return
    named = [phase for phase in response["phases"] if phase["name"] == name]
    if not named:
        from klamm.protocol.errors import did_you_mean

        names = [phase["name"] for phase in response["phases"]]
        raise ToolFailed(f"there is no phase {name!r}{did_you_mean(name, names)}")
    (phase,) = named
    fields = [("field " + field, kind) for field, kind in phase["fields"].items()]
    text = " ".join(phase["text"].split())
    show(api, phase, ("PHASE", phase["name"]), [("kind", phase["kind"]), ("at this point", text), *fields])
