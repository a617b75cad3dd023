"""`klamm serve`: a complete cluster, with an embedded ZooKeeper unless --zookeeper is given.

The embedded ZooKeeper is started first, in a thread. While its JVM starts, the packages of the broker are imported. When everything is
ready, stdout gets the addresses, for scripts. Everything else goes to stderr.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.serving.ship_options import ship_options, ship_properties
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.logs import log_level_option, log_to_stderr
from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import (
    ADVERTISED,
    BROKER_KEY_VALUE,
    HOST,
    KEY_VALUE,
    TOPIC,
    USER_PASSWORD,
    Whole,
    api_version_option,
    as_version_option,
    each_once,
)
from klamm.cli.shell.stop_signals import StopSignals, end_with_stdin
from klamm.cli.shell.value_completion import complete_configs
from klamm.machine.interpreter import require_interpreter_lock
from klamm.server.local.arguments import (
    MAX_BROKERS,
    SASL_MECHANISMS,
    Advertised,
    BadArgument,
    SeedTopic,
    check_arguments,
    check_broker_configs,
    narrowed_apis,
)
from klamm.server.local.security_wish import SecurityWish

if TYPE_CHECKING:
    from klamm.server.local.cluster import LocalCluster
    from klamm.server.local.made_security import MadeSecurity
    from klamm.server.local.process_cluster import ProcessCluster
    from klamm.zk.embedded.server import EmbeddedZooKeeper

log = logging.getLogger(__name__)

_OPTIONS = {"topics": "topic", "api_versions": "api-version", "users": "user"}
"""Arguments whose options have another name."""


HELP = """Run a cluster: brokers and a real ZooKeeper.

The cluster is ready when every broker is registered, the controller is elected, and every broker has all brokers and topics in its
metadata. Then the addresses of the brokers are printed on stdout, one per line. With --json it is one line of JSON with
bootstrap_servers, brokers, controller_id, cluster_id and zookeeper.

With --advertised the cluster is for clients of another machine or container, which map the ports of --port to the advertised ones.
Everybody who reaches these ports can use the cluster.

With --metrics-port each broker serves its metrics at http://127.0.0.1:PORT/metrics. --json prints the ports, the log has the addresses.

With --control-port the cluster can be steered over HTTP: phases are held, requests get faults, brokers are stopped and started, the
clock is moved (docs/control.md). --json prints the address as "control", the log has it too.

With --processes each broker runs in its own process, so you can kill one of them. --json prints the process ids. A broker that ended is
not started again, unless you do it with --control-port; without --data-dir its records are lost. When the main process ends, all others
end too.

With --ship-to the segments of the journal also go to a lake in an object store. Brokers do not wait for it: another process sends them,
later if the store fails, and after the brokers have stopped for at most ten seconds more. What remains is named, and sent after the next
start with the same --journal.

With --tls, --sasl or both the brokers are secured, also among themselves. What a client needs is printed below the addresses, and by
--json as "client", with the names of librdkafka: {"security.protocol": "SASL_SSL", "sasl.mechanism": …, "sasl.username": …,
"sasl.password": …, "ssl.ca.location": …}. The files are in the folder security of --data-dir, or in a temporary folder
(docs/tls_and_sasl.md). With --user there are more users, with --acls they may do only what ACLs allow.

With --as-version the brokers offer exactly the APIs and versions of that Apache Kafka, and have its defaults, among them those of
inter.broker.protocol.version and log.message.format.version. --api-version narrows or hides a single API. A request out of the offered
versions closes the connection. From 4.0 on the brokers are those of KRaft to clients, with its features (docs/versions.md).

A failure is reported in one line on stderr. The exit code is then 1, or 2 for a wrong command line. With --json the failure is also a
line on stdout: {"error": "the reason"}.

SIGINT (Ctrl-C) or SIGTERM shuts the brokers down in order, within two seconds. The exit code is then 0, or 130 or 143 if the cluster
was not ready yet. A second signal ends the process at once. If the embedded ZooKeeper ends, or its disk is full, the cluster ends and
prints the reason.

\b
klamm serve
klamm serve --port 0 --json --topic orders:6:3 --topic latest:6:3:cleanup.policy=compact
klamm serve --data-dir ./data --config auto.leader.rebalance.enable=false
klamm serve --processes --json
klamm serve --journal ./lake
klamm serve --journal ./lake --ship-to s3://bucket/lake --keep-local 12h
klamm serve --metrics-port 9404
klamm serve --broker-config 1:broker.rack=a --broker-config 2:broker.rack=b --broker-config 3:broker.rack=c
klamm serve --port 0 --json --control-port 0
klamm serve --tls --sasl SCRAM-SHA-256 --json
klamm serve --sasl PLAIN --user eve:secret --acls
klamm serve --brokers 1 --advertised localhost:9092
klamm serve --as-version 2.8
klamm serve --as-version 4.4
klamm serve --api-version Produce=0-7 --api-version OffsetDelete=none
"""


@click.command(short_help="Run a cluster: brokers in one process or several, and a ZooKeeper.", help=HELP)
@click.option(
    "--brokers",
    type=Whole(1, MAX_BROKERS),
    default=3,
    show_default=True,
    help="Number of brokers; their ids are 1, 2, 3, …",
)
@click.option("--host", type=HOST, default="127.0.0.1", show_default=True, help="Address to listen on and to advertise.")
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first broker; the other brokers get the next ports. With 0, each broker gets a free port.",
)
@click.option(
    "--advertised", type=ADVERTISED, envvar="KLAMM_ADVERTISED",
    help="Listen on every address; clients connect to the first broker at the first of these, and so on; to brokers that are not listed at "
    "the ports after the last. For containers. Default: the environment variable KLAMM_ADVERTISED, or --host and --port.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT[,…][/CHROOT]",
    help="Use this ZooKeeper. Default: start an embedded ZooKeeper, which needs Java.",
)
@click.option(
    "--metrics-port",
    type=Whole(0, 65535),
    help="Serve metrics for Prometheus at this port of 127.0.0.1; the other brokers get the next ports. "
    "With 0, each broker gets a free port. Needs klamm[metrics].",
)
@click.option(
    "--control-port",
    type=Whole(0, 65535),
    help="Serve the control API and a page with the state of the cluster at this port of 127.0.0.1; with 0 at a free port. "
    "Needs klamm[control].",
)
@click.option(
    "--control-host", type=HOST, default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Address of the control API. Beyond loopback it needs --control-token.",
)
@click.option(
    "--control-token", envvar="KLAMM_CONTROL_TOKEN", metavar="TOKEN",
    help="Requests of the control API must bear this token. Default: the environment variable KLAMM_CONTROL_TOKEN, or no token.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for broker logs and the data of the embedded ZooKeeper. Default: logs in memory (beyond klamm.log.memory.bytes in "
    "temporary files), ZooKeeper in a temporary folder.",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    help="Record every frame and every controller decision in this folder, for `klamm journal` and `klamm pipeline`. Needs klamm[journal].",
)
@ship_options
@click.option(
    "--config", "configs", multiple=True, type=KEY_VALUE, callback=each_once, shell_complete=complete_configs,
    help="Set a property of all brokers; can be given more than once.",
)
@as_version_option
@api_version_option
@click.option(
    "--broker-config", "broker_configs", multiple=True, type=BROKER_KEY_VALUE, callback=each_once,
    help="Set a property of one broker, such as 2:broker.rack=b; can be given more than once.",
)
@click.option(
    "--topic", "topics", multiple=True, type=TOPIC,
    help="Create this topic unless it exists; can be given more than once. NAME alone creates 1 partition with 1 replica; "
    "num.partitions and default.replication.factor are ignored.",
)
@click.option("--tls", is_flag=True, help="Clients and brokers use TLS. Certificates are made, and --json prints where the authority's is.")
@click.option(
    "--sasl", "mechanism", type=click.Choice(SASL_MECHANISMS, case_sensitive=False),
    help="Clients and brokers authenticate with this mechanism. A user is made, and --json prints its password.",
)
@click.option(
    "--user", "users", multiple=True, type=USER_PASSWORD, callback=each_once,
    help="Another user, who authenticates with this password; can be given more than once. Needs --sasl.",
)
@click.option(
    "--acls", is_flag=True,
    help="Brokers decide by ACLs (`klamm acls`): admin may do everything, others what is allowed to them. Needs --sasl.",
)
@click.option(
    "--stop-with-stdin", is_flag=True,
    help="Stop when stdin ends. A program that starts the cluster with a pipe as stdin takes it along, however the program ends.",
)
@click.option("--processes", is_flag=True, help="Run each broker in its own process. Default: all brokers in one process.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the addresses. A failure is also printed as JSON.")
@log_level_option
def command(
    brokers: int,
    host: str,
    port: int,
    advertised: Advertised | None,
    metrics_port: int | None,
    control_port: int | None,
    control_host: str,
    control_token: str | None,
    zookeeper: str | None,
    data_dir: Path | None,
    journal: Path | None,
    ship_to: Path | str | None,
    keep_local_ns: int | None,
    configs: tuple[tuple[str, str], ...],
    broker_configs: tuple[tuple[int, str, str], ...],
    as_version: str | None,
    api_versions: tuple[tuple[str, str], ...],
    topics: tuple[SeedTopic, ...],
    tls: bool,
    mechanism: str | None,
    users: tuple[tuple[str, str], ...],
    acls: bool,
    stop_with_stdin: bool,
    processes: bool,
    as_json: bool,
    log_level: str,
) -> None:
    log_to_stderr(log_level)
    config = ({} if journal is None else _journaled(journal)) | ship_properties(journal, ship_to, keep_local_ns) | dict(configs)
    config |= narrowed_apis(as_version, api_versions)
    _check(brokers, host, (port, metrics_port), config, topics, zookeeper is None)
    _check_advertised(advertised, port, brokers, secured=tls or mechanism is not None)
    own = _own_configs(broker_configs, brokers, config)
    wish = SecurityWish(tls, mechanism, acls, dict(users), host)
    security = _security(wish, data_dir, config)
    control = None if control_port is None else _control_options(control_host, control_port, control_token)
    require_interpreter_lock()
    signals = StopSignals()
    if stop_with_stdin:
        end_with_stdin()
    embedded = None if zookeeper is not None else EarlyZooKeeper(data_dir)

    from klamm.cli.serving.lifetime import ServedCluster, live
    from klamm.cli.serving.shipping import shipping
    from klamm.server.run import run

    shape = {
        "host": host, "port": port, "metrics_port": metrics_port, "config": config, "broker_configs": own, "topics": topics,
        "data_dir": data_dir, "advertised": advertised,
    }
    if control is not None:
        shape |= control
    if security is not None:
        shape["users"] = security.users
    cluster = _cluster(processes, log_level, brokers, zookeeper if embedded is None else embedded.zookeeper, shape)
    served = ServedCluster(cluster, None if embedded is None else embedded.started)
    serving = shipping(served, config.get, log_level)

    def ready() -> None:
        client = {} if security is None else security.client
        say(_as_json(cluster, advertised, client) if as_json else _as_lines(cluster, advertised, client))

    run(lambda: live(serving, signals, ready, served.failure))


def _cluster(
    processes: bool, log_level: str, brokers: int, zookeeper: str | EmbeddedZooKeeper | None, shape: Mapping[str, Any]
) -> LocalCluster | ProcessCluster:
    """The cluster, with all brokers in this process or each in its own."""
    if processes:
        child = [sys.executable, "-m", "klamm.cli.serving.owned_broker", log_level]
        if "control_port" in shape:
            from klamm.control.processes.steered_processes import SteeredProcessCluster

            return SteeredProcessCluster(child, brokers, zookeeper=zookeeper, **shape)

        from klamm.server.local.process_cluster import ProcessCluster

        return ProcessCluster(child, brokers, zookeeper=zookeeper, **shape)

    if "control_port" in shape:
        from klamm.control.verbs.steered_cluster import SteeredCluster

        return SteeredCluster(brokers, zookeeper=zookeeper, **shape)

    from klamm.server.local.cluster import LocalCluster

    return LocalCluster(brokers, zookeeper=zookeeper, **shape)


def _control_options(host: str, port: int, token: str | None) -> dict[str, Any]:
    """The options of the control API. Raises click.UsageError."""
    with extra_needed("control", lambda: "--control-port"):
        from klamm.control.verbs.http import is_loopback
    if token == "":
        raise click.UsageError("--control-token is empty: everybody has this token")
    if token is None and not is_loopback(host):
        raise click.UsageError(f"--control-host {host} needs --control-token: any program that reaches it can steer the cluster")
    return {"control_host": host, "control_port": port, "control_token": token}


def _journaled(lake: Path) -> dict[str, str]:
    """The broker properties for a journal in this lake, with a new run id."""
    import secrets
    from datetime import UTC, datetime

    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    return {"klamm.journal.dir": str(lake.absolute()), "klamm.journal.run": run_id}


def _check(
    brokers: int, host: str, ports: tuple[int, int | None], config: Mapping[str, str], topics: Sequence[SeedTopic], alone: bool
) -> None:
    """Check the options together. `ports` are the first ports for clients and for metrics. `alone`: no other brokers can be in the cluster.

    Raises click.BadParameter.
    """
    try:
        check_arguments(brokers, host, ports[0], config, ports[1])
        if config or topics:
            from klamm.server.local.config_arguments import check_configs

            check_configs(config, topics, brokers if alone else None)
    except BadArgument as bad:
        option = _OPTIONS.get(bad.argument, bad.argument.replace("_", "-"))
        from klamm.cli.shell.suggestions import with_config_suggestion

        raise click.BadParameter(with_config_suggestion(bad.reason), param_hint=f"--{option}") from bad


def _own_configs(given: Sequence[tuple[int, str, str]], brokers: int, config: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """The properties of single brokers by their ids. Raises click.BadParameter."""
    own: dict[int, dict[str, str]] = {}
    for number, key, value in given:
        if key.startswith("klamm.journal.ship."):
            raise click.BadParameter(f"{key} is of all brokers: use --config", param_hint="--broker-config")
        own.setdefault(number, {})[key] = value
    if own:
        from klamm.server.local.config_arguments import check_configs

        try:
            check_broker_configs(own, brokers)
            for properties in own.values():
                check_configs(dict(config) | properties, (), None)
        except BadArgument as bad:
            raise click.BadParameter(bad.reason, param_hint="--broker-config") from bad
    return own


class EarlyZooKeeper:
    """The embedded ZooKeeper; the constructor starts it in a thread."""

    def __init__(self, data_dir: Path | None) -> None:
        from klamm.zk.embedded.server import EmbeddedZooKeeper

        self.zookeeper = EmbeddedZooKeeper(None if data_dir is None else data_dir / "zookeeper")
        self.started: Future[None] = Future()
        self.started.set_running_or_notify_cancel()  # a waiter can be cancelled, but not the start itself, which completes the future
        threading.Thread(target=self._start, name="embedded-zookeeper", daemon=True).start()

    def _start(self) -> None:
        try:
            self.zookeeper.start()
        except BaseException as failure:  # noqa: BLE001 - the future `started` raises it
            self.started.set_exception(failure)
        else:
            self.started.set_result(None)


def _security(wish: SecurityWish, data_dir: Path | None, config: dict[str, str]) -> MadeSecurity | None:
    """Make certificates and users, and add their properties to `config`; None if neither is wanted.

    Raises click.BadParameter, click.UsageError.
    """
    try:
        wish.check(config)
    except BadArgument as bad:
        raise click.BadParameter(bad.reason, param_hint=f"--{_OPTIONS.get(bad.argument, bad.argument)}") from bad
    if not wish.is_any:
        return None
    try:
        made = wish.make(data_dir)
    except (OSError, ValueError) as problem:
        raise click.UsageError(f"the certificates and users cannot be written: {problem}") from problem
    config |= made.config
    return made


def _check_advertised(advertised: Advertised | None, port: int, brokers: int, *, secured: bool) -> None:
    """Raises click.UsageError."""
    if advertised is None:
        return
    if secured:
        raise click.UsageError("--advertised cannot be used with --tls and --sasl; run `klamm broker` with the listeners that you want")
    if port == 0:
        raise click.UsageError("--advertised needs a --port that is not 0")
    if advertised.of(brokers)[1] > 65535:
        host, last = advertised.listed[-1]
        raise click.UsageError(f"--advertised {host}:{last} leaves no ports for {brokers} brokers")


def _client_addresses(cluster: LocalCluster | ProcessCluster, advertised: Advertised | None) -> list[tuple[int, str, int]]:
    """(id, host, port) of every broker, as clients know it."""
    if advertised is None:
        return list(cluster.addresses)
    return [(number, *advertised.of(number)) for number, _, _ in cluster.addresses]


def _bootstrap_servers(addresses: Sequence[tuple[int, str, int]]) -> list[str]:
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for _, host, port in addresses]


def _as_lines(cluster: LocalCluster | ProcessCluster, advertised: Advertised | None, client: Mapping[str, str]) -> str:
    servers = _bootstrap_servers(_client_addresses(cluster, advertised))
    return "\n".join((*servers, *(f"{name}={value}" for name, value in client.items())))


def _as_json(cluster: LocalCluster | ProcessCluster, advertised: Advertised | None, client: Mapping[str, str]) -> str:
    control: str | None = getattr(cluster, "control_url", None)
    pids: Mapping[int, int] = cluster.pids
    metrics_ports: Mapping[int, int] = cluster.metrics_ports
    addresses = _client_addresses(cluster, advertised)
    return json.dumps(
        {
            "bootstrap_servers": ",".join(_bootstrap_servers(addresses)),
            "brokers": [
                {"id": number, "host": host, "port": port}
                | ({"pid": pids[number]} if number in pids else {})
                | ({"metrics_port": metrics_ports[number]} if number in metrics_ports else {})
                for number, host, port in addresses
            ],
            "controller_id": cluster.controller_id,
            "cluster_id": cluster.cluster_id,
            "zookeeper": cluster.zookeeper,
        }
        | ({} if control is None else {"control": control})
        | ({"client": client} if client else {})
    )
