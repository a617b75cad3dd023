"""`klamm control brokers`, `broker` and `expire`: the brokers, their ends and starts, their ZooKeeper sessions."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, key_values, says, verb_command, verb_group
from klamm.cli.control.tables import BROKER, show
from klamm.cli.control.tables import broker as row
from klamm.control.json_object import JsonObject


@click.command("brokers", short_help="List brokers.")
@click.argument("broker", type=int, required=False, metavar="[ID]")
@control_command()
def brokers(api: ControlApi, broker: int | None) -> None:
    """List all brokers, those that do not run included, or show the broker ID."""
    if broker is not None:
        _show(api, api.call("broker", broker=broker))
        return
    response = api.call("brokers")
    show(api, response, BROKER, map(row, response["brokers"]))


def _show(api: ControlApi, response: JsonObject) -> None:
    show(api, response, BROKER, [row(response)])


ID = click.Argument(["broker"], type=int, metavar="ID")
_LOSE_LOG = click.Option(["--lose-log"], is_flag=True, help="The broker loses its records.")
_EXPIRE = click.Option(["--expire"], is_flag=True, help="End its ZooKeeper session at once. Otherwise the session times out.")
_CONFIG = click.Option(
    ["--config"], multiple=True, callback=key_values, metavar="KEY=VALUE", help="Config of this broker alone. Repeatable."
)

broker = verb_group(
    "Stop, kill, start, restart, pause, resume or add a broker.",
    stop=verb_command("stop_broker", _show, ID, _LOSE_LOG, text="Stop the broker ID with a controlled shutdown."),
    kill=verb_command("kill_broker", _show, ID, _EXPIRE, _LOSE_LOG, text="End the broker ID as kill -9 does."),
    start=verb_command("start_broker", _show, ID, text="Start the broker ID, which does not run."),
    restart=verb_command(
        "restart_broker", _show, ID, _LOSE_LOG, text="Stop the broker ID with a controlled shutdown, and start it again."
    ),
    pause=verb_command(
        "pause_broker", _show, ID, text="Freeze the broker ID: it reads and sends nothing, and its ZooKeeper session ends in time."
    ),
    resume=verb_command("resume_broker", _show, ID, text="Let the frozen broker ID go on."),
    add=verb_command("add_broker", _show, _CONFIG, text="Start one more broker, with the next id."),
)
expire = verb_command(
    "expire_session", says("the ZooKeeper session of broker {broker} is expired"), ID,
    text="End the ZooKeeper session of the broker ID, as ZooKeeper does when it hears nothing for too long.",
)
