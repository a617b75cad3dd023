"""The verb `klamm control`: a group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command
from klamm.cli.shell.lazy_group import LazyGroup

_HERE = "klamm.cli.control"
COMMANDS = {
    "broker": f"{_HERE}.brokers:broker",
    "brokers": f"{_HERE}.brokers:brokers",
    "clock": f"{_HERE}.clock",
    "controller": f"{_HERE}.controller",
    "crash": f"{_HERE}.holds:crash",
    "add-partitions": f"{_HERE}.topics:add_partitions",
    "create-topic": f"{_HERE}.topics:create_topic",
    "delete-topic": f"{_HERE}.topics:delete_topic",
    "events": f"{_HERE}.events",
    "expire": f"{_HERE}.brokers:expire",
    "fail": f"{_HERE}.holds:fail",
    "fault": f"{_HERE}.fault",
    "faults": f"{_HERE}.faults:faults",
    "features": f"{_HERE}.features:features",
    "group": f"{_HERE}.groups:group",
    "groups": f"{_HERE}.groups:groups",
    "hold": f"{_HERE}.hold",
    "holds": f"{_HERE}.holds:holds",
    "link": f"{_HERE}.zookeeper:link",
    "phases": f"{_HERE}.phases",
    "recovering": f"{_HERE}.recovering:recovering",
    "release": f"{_HERE}.holds:release",
    "release-recovery": f"{_HERE}.recovering:release_recovery",
    "requests": f"{_HERE}.requests",
    "reset": f"{_HERE}.reset",
    "set-feature": f"{_HERE}.features:set_feature",
    "show-cluster-id": f"{_HERE}.features:show_cluster_id",
    "step": f"{_HERE}.holds:step",
    "topic": f"{_HERE}.topics:topic",
    "topics": f"{_HERE}.topics:topics",
    "transaction": f"{_HERE}.groups:transaction",
    "transactions": f"{_HERE}.groups:transactions",
    "unfault": f"{_HERE}.faults:unfault",
    "unhold": f"{_HERE}.holds:unhold",
    "wait-for-configs": f"{_HERE}.reset:wait_for_configs",
    "zookeeper": f"{_HERE}.zookeeper:zookeeper",
}
"""Command → the module that has it, and its name there if that is not `command`."""


@click.command(cls=LazyGroup, modules=COMMANDS, short_help="Steer a cluster of `klamm serve --control-port`.")
@control_command()
def command(api: ControlApi) -> None:
    """Steer a cluster of `klamm serve --control-port`: hold phases, add faults to requests, stop brokers, move the clock.

    Every command needs the address of the control API: --control URL, or the environment variable KLAMM_CONTROL.

    \b
    export KLAMM_CONTROL=http://127.0.0.1:9090
    klamm control hold DeletionReplicasStopped --where topic=orders --wait
    klamm control fault --api Produce --topic orders --error NOT_LEADER_OR_FOLLOWER --first 2
    klamm control requests --client-id billing --follow
    """
