"""`klamm control brokers`, `broker` and `expire`: the brokers, their ends and starts, their ZooKeeper sessions."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, key_values, print_line
from klamm.cli.control.tables import BROKER, show
from klamm.cli.control.tables import broker as row
from klamm.cli.shell.output import say


@click.command("brokers", short_help="List brokers.")
@click.argument("broker", type=int, required=False, metavar="[ID]")
@control_command()
def brokers(api: ControlApi, broker: int | None) -> None:
    """List all brokers, those that do not run included, or show the broker ID."""
    if broker is not None:
        _show(api, api.get("brokers", broker))
        return
    response = api.get("brokers")
    show(api, response, BROKER, map(row, response["brokers"]))


@click.group("broker", short_help="Stop, kill, start, restart, pause, resume or add a broker.")
def broker() -> None:
    """Stop, kill, start, restart, pause, resume or add a broker, and print its state."""


id_argument = click.argument("number", type=int, metavar="ID")
lose_log_option = click.option("--lose-log", is_flag=True, help="The broker loses its records.")


@broker.command("stop", short_help="Stop a broker with a controlled shutdown.")
@id_argument
@lose_log_option
@control_command()
def stop(api: ControlApi, number: int, lose_log: bool) -> None:
    """Stop the broker ID with a controlled shutdown."""
    _show(api, api.post("brokers", number, "stop", body={"lose_log": lose_log or None}))


@broker.command("kill", short_help="End a broker as kill -9 does.")
@id_argument
@click.option("--expire", is_flag=True, help="End its ZooKeeper session at once. Otherwise the session times out.")
@lose_log_option
@control_command()
def kill(api: ControlApi, number: int, expire: bool, lose_log: bool) -> None:
    """End the broker ID as kill -9 does."""
    _show(api, api.post("brokers", number, "kill", body={"expire": expire or None, "lose_log": lose_log or None}))


@broker.command("start", short_help="Start a broker that does not run.")
@id_argument
@control_command()
def start(api: ControlApi, number: int) -> None:
    """Start the broker ID, which does not run."""
    _show(api, api.post("brokers", number, "start"))


@broker.command("restart", short_help="Stop a broker and start it again.")
@id_argument
@lose_log_option
@control_command()
def restart(api: ControlApi, number: int, lose_log: bool) -> None:
    """Stop the broker ID with a controlled shutdown, and start it again."""
    _show(api, api.post("brokers", number, "restart", body={"lose_log": lose_log or None}))


@broker.command("pause", short_help="Freeze a broker, as SIGSTOP does.")
@id_argument
@control_command()
def pause(api: ControlApi, number: int) -> None:
    """Freeze the broker ID: it reads and sends nothing, and its ZooKeeper session ends in time."""
    _show(api, api.post("brokers", number, "pause"))


@broker.command("resume", short_help="Let a frozen broker go on.")
@id_argument
@control_command()
def resume(api: ControlApi, number: int) -> None:
    """Let the frozen broker ID go on."""
    _show(api, api.post("brokers", number, "resume"))


@broker.command("add", short_help="Start one more broker.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Config of this broker alone. Repeatable.")
@control_command()
def add(api: ControlApi, configs: tuple[str, ...]) -> None:
    """Start one more broker, with the next id."""
    _show(api, api.post("brokers", body={"config": key_values(configs)}))


@click.command("expire", short_help="End the ZooKeeper session of a broker.")
@id_argument
@control_command()
def expire(api: ControlApi, number: int) -> None:
    """End the ZooKeeper session of the broker ID, as ZooKeeper does when it hears nothing for too long."""
    response = api.post("zookeeper", "expire", body={"broker": number})
    if api.as_json:
        print_line(response)
    else:
        say(f"the ZooKeeper session of broker {number} is expired")


def _show(api: ControlApi, response: dict[str, object]) -> None:
    show(api, response, BROKER, [row(response)])
