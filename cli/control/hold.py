"""`klamm control hold`: holds a phase from now on."""

from __future__ import annotations

import json

import click

from klamm.cli.control.client import WAIT_MS, ControlApi, control_command, says
from klamm.cli.control.holds import waited
from klamm.cli.control.tables import HOLD, hold, show
from klamm.cli.shell.value_completion import complete_phases
from klamm.control.json_object import JsonObject


@click.command("hold", short_help="Hold a phase from now on.")
@click.argument("phase", shell_complete=complete_phases)
@click.option(
    "--where", "where", multiple=True, metavar="FIELD=VALUE",
    help="Only if this field has this value: JSON or a text. Repeatable; a field that is named twice has one of the values.",
)
@click.option("--count", type=int, help="How many are held, then the hold ends. Default: all.")
@click.option("--nth", type=int, default=1, show_default=True, help="The first that is held; those before it pass.")
@click.option("--crash", is_flag=True, help="Kill the broker that reaches the phase and end its ZooKeeper session.")
@click.option("--fail", metavar="ERROR", help="Let what reaches the phase fail with this error at once.")
@click.option("--delay-ms", type=int, metavar="MS", help="Let what reaches the phase go on after this time.")
@click.option("--wait", is_flag=True, help="Wait until something is held.")
@click.option("--timeout-ms", type=int, default=WAIT_MS, show_default=True, help="With --wait: the longest wait.")
@control_command()
def command(
    api: ControlApi, phase: str, where: tuple[str, ...], count: int | None, nth: int, crash: bool, fail: str | None, delay_ms: int | None,
    wait: bool, timeout_ms: int,
) -> None:
    """Hold PHASE from now on and print the number of the hold. What reaches the phase waits until `step`, `release`, `fail` or `crash`.

    \b
    klamm control hold DeletionReplicasStopped --where topic=orders --wait
    klamm control release 1
    klamm control hold ZooKeeperRead --where 'paths=/brokers/topics/orders*' --nth 3 --count 1 --fail ConnectionLost
    """
    body: JsonObject = {
        "phase": phase, "where": _filter(where), "count": count, "nth": nth, "crash": crash, "fail": fail, "delay_ms": delay_ms,
    }
    made = api.call("hold", **body)
    if wait:
        reached = waited(api, made["id"], timeout_ms)
        show(api, reached, HOLD, [hold(reached)])
    else:
        says("hold {id}")(api, made)


def _filter(where: tuple[str, ...]) -> dict[str, object]:
    """Field → value, or a list of values for a field that is named more than once. Raises UsageError."""
    values: dict[str, list[object]] = {}
    for each in where:
        name, equals, text = each.partition("=")
        if not equals:
            raise click.UsageError(f"--where: {each!r} is not FIELD=VALUE")
        try:
            value: object = json.loads(text)
        except ValueError:
            value = text
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}
