"""`klamm control zookeeper` and `link`: the connections of brokers to ZooKeeper and to each other."""

from __future__ import annotations

import click

from klamm.cli.control.brokers import ID
from klamm.cli.control.client import ControlApi, print_line, says, verb_command, verb_group
from klamm.cli.shell.output import say
from klamm.control.json_object import JsonObject

zookeeper = verb_group(
    "Cut, restore or delay the connection of a broker to ZooKeeper.",
    cut=verb_command(
        "cut_zookeeper", says("broker {broker} is cut off from ZooKeeper"), ID,
        text="Let the broker ID lose its connection to ZooKeeper, and get no other until `restore`. Its session can time out.",
    ),
    restore=verb_command(
        "restore_zookeeper", says("broker {broker} can connect to ZooKeeper"), ID, text="Let the broker ID connect to ZooKeeper again."
    ),
    delay=verb_command(
        "delay_zookeeper", says("requests of broker {broker} wait {delay_ms} ms"), ID, click.Argument(["ms"], type=int, metavar="MS"),
        text="Let each request of the broker ID to ZooKeeper wait MS milliseconds; 0 ends that.",
    ),
)


def _made(api: ControlApi, made: JsonObject) -> None:
    if api.as_json:
        print_line(made)
    else:
        say("\n".join(f"fault {number}" for number in made["faults"]))


link = verb_command(
    "add_link", _made,
    click.Argument(["from_broker"], type=int, metavar="FROM"),
    click.Argument(["to_broker"], type=int, metavar="TO"),
    click.Option(["--cut"], is_flag=True, help="Close the connection with each request."),
    click.Option(["--delay-ms"], type=int, help="Let each request wait this time."),
    click.Option(
        ["--one-way", "both"], is_flag=True, callback=lambda ctx, param, is_one_way: not is_one_way,
        help="Only requests from FROM to TO. Otherwise also those from TO to FROM.",
    ),
    text="""Add faults to the requests between two brokers, and print their numbers. `klamm control unfault` removes them.

    \b
    klamm control link 1 2 --cut
    """,
)
