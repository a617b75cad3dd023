"""`klamm broker FILE`: one broker as its own process, from the properties file that starts a stock Kafka broker too.

The file is read and judged before anything is opened; a value that cannot be is one line and exit code 1. stdout stays empty: whoever
wants to know when the broker is up asks it, as with a stock one.
"""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.lifetime import StopSignals, live
from klamm.cli.logs import log_level_option, log_to_stderr
from klamm.cli.parameters import KEY_VALUE


@click.command(short_help="Run one broker from a server.properties file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--override", multiple=True, type=KEY_VALUE, help="Put a property of FILE right; may be given again and again.")
@log_level_option
def command(file: Path, override: tuple[tuple[str, str], ...], log_level: str) -> None:
    """Run one broker from FILE, a server.properties of Kafka in ZooKeeper mode.

    The ZooKeeper that `zookeeper.connect` names must be running; other brokers there, Klamm's or stock ones, form one cluster with this.
    Properties of Kafka that mean nothing here are accepted and listed once in the log; unknown ones are warned of.

    SIGINT or SIGTERM moves leadership away first (controlled.shutdown.enable) and exits with 0; a second one exits at once.

    \b
    klamm broker server.properties
    klamm broker server.properties --override broker.id=2 --override listeners=PLAINTEXT://:9093
    """
    log_to_stderr(log_level)
    signals = StopSignals()

    from klamm.configs.properties import read_properties

    properties = read_properties(file) | dict(override)

    from klamm.configs.broker_config import BrokerConfig

    config = BrokerConfig(properties)

    from klamm.server.broker_server import BrokerServer
    from klamm.server.run import run

    async def serve() -> None:
        broker = BrokerServer(config)
        await live(broker, signals, lambda: None, broker.failure)

    run(serve)
