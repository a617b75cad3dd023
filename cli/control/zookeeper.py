"""`klamm control zookeeper` and `link`: the connections of brokers to ZooKeeper and to each other."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, print_line
from klamm.cli.shell.output import say

id_argument = click.argument("number", type=int, metavar="ID")


@click.group("zookeeper", short_help="Cut, restore or delay the connection of a broker to ZooKeeper.")
def zookeeper() -> None:
    """Cut, restore or delay the connection of a broker to ZooKeeper."""


@zookeeper.command("cut", short_help="Let a broker lose its connection to ZooKeeper.")
@id_argument
@control_command()
def cut(api: ControlApi, number: int) -> None:
    """Let the broker ID lose its connection to ZooKeeper, and get no other until `restore`. Its session can time out."""
    _done(api, api.post("zookeeper", "cut", body={"broker": number}), f"broker {number} is cut off from ZooKeeper")


@zookeeper.command("restore", short_help="Let a broker connect to ZooKeeper again.")
@id_argument
@control_command()
def restore(api: ControlApi, number: int) -> None:
    """Let the broker ID connect to ZooKeeper again."""
    _done(api, api.post("zookeeper", "restore", body={"broker": number}), f"broker {number} can connect to ZooKeeper")


@zookeeper.command("delay", short_help="Let requests of a broker to ZooKeeper wait.")
@id_argument
@click.argument("ms", type=int, metavar="MS")
@control_command()
def delay(api: ControlApi, number: int, ms: int) -> None:
    """Let each request of the broker ID to ZooKeeper wait MS milliseconds; 0 ends that."""
    _done(api, api.post("zookeeper", "delay", body={"broker": number, "ms": ms}), f"requests of broker {number} wait {ms} ms")


@click.command("link", short_help="Cut or slow what brokers send each other.")
@click.argument("from_broker", type=int, metavar="FROM")
@click.argument("to_broker", type=int, metavar="TO")
@click.option("--cut", "is_cut", is_flag=True, help="Close the connection with each request.")
@click.option("--delay-ms", type=int, help="Let each request wait this time.")
@click.option("--one-way", is_flag=True, help="Only requests from FROM to TO. Otherwise also those from TO to FROM.")
@control_command()
def link(api: ControlApi, from_broker: int, to_broker: int, is_cut: bool, delay_ms: int | None, one_way: bool) -> None:
    """Add faults to the requests between two brokers, and print their numbers. `klamm control unfault` removes them.

    \b
    klamm control link 1 2 --cut
    """
    body = {
        "from_broker": from_broker, "to_broker": to_broker, "cut": is_cut or None, "delay_ms": delay_ms, "both": False if one_way else None,
    }
    made = api.post("links", body=body)
    _done(api, made, "".join(f"fault {number}\n" for number in made["faults"]).rstrip())


def _done(api: ControlApi, response: dict[str, object], text: str) -> None:
    if api.as_json:
        print_line(response)
    else:
        say(text)
