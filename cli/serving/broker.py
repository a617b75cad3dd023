"""`klamm broker FILE`: one broker as a process of its own. FILE is a properties file that also starts an Apache Kafka broker.

The file is read and checked before a port is opened. An invalid value is reported in one line on stderr, with exit code 1. Nothing is
written to stdout: to find out when the broker is ready, connect a client to it, as with Apache Kafka.
"""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.serving.lifetime import live
from klamm.cli.shell.logs import log_level_option, log_to_stderr
from klamm.cli.shell.parameters import KEY_VALUE, Whole, api_version_option, as_version_option
from klamm.cli.shell.stop_signals import StopSignals
from klamm.cli.shell.value_completion import complete_configs


@click.command(short_help="Run one broker from a server.properties file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--override", multiple=True, type=KEY_VALUE, shell_complete=complete_configs,
    help="Override a property of FILE; can be given more than once.",
)
@click.option(
    "--metrics-port",
    type=Whole(0, 65535),
    help="Serve metrics for Prometheus at this port of 127.0.0.1; 0 chooses a free one. The log has the address. Needs klamm[metrics].",
)
@as_version_option
@api_version_option
@log_level_option
def command(
    file: Path, override: tuple[tuple[str, str], ...], metrics_port: int | None, as_version: str | None,
    api_versions: tuple[tuple[str, str], ...], log_level: str,
) -> None:
    """Run one broker from FILE, a server.properties of Kafka in ZooKeeper mode.

    The ZooKeeper that `zookeeper.connect` names must be running. Other brokers that use it, of Klamm or of Apache Kafka, form one cluster
    with this broker. Kafka properties that Klamm does not use are accepted and listed once in the log. An unknown property is logged as a
    warning.

    With --as-version the broker offers exactly the APIs and versions of that Apache Kafka, and has its defaults. --api-version narrows or
    hides a single API.

    SIGINT or SIGTERM starts a controlled shutdown (controlled.shutdown.enable). The exit code is then 0, or 130 or 143 if the broker was
    not ready yet. A second signal ends the process at once.

    \b
    klamm broker server.properties
    klamm broker server.properties --override broker.id=2 --override listeners=PLAINTEXT://:9093
    """
    log_to_stderr(log_level)
    signals = StopSignals()

    from klamm.configs.properties import read_properties
    from klamm.machine.interpreter import require_interpreter_lock
    from klamm.server.local.arguments import narrowed_apis

    require_interpreter_lock()
    properties = read_properties(file) | dict(override) | narrowed_apis(as_version, api_versions)
    if metrics_port is not None:
        properties["klamm.metrics.port"] = str(metrics_port)

    from klamm.configs.broker_config import BrokerConfig

    config = BrokerConfig(properties)

    from klamm.cli.serving.shipping import shipping
    from klamm.server.broker_server import BrokerServer
    from klamm.server.run import run

    async def serve() -> None:
        broker = BrokerServer(config)
        await live(shipping(broker, config.get, log_level), signals, lambda: None, broker.failure)

    run(serve)
