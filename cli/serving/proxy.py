"""`klamm proxy`: a proxy in front of any Kafka cluster that keeps a journal of what clients and brokers say, and can be steered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.serving.lifetime import live
from klamm.cli.serving.ship_options import DIRECTORY, ship_options, ship_properties
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.logs import log_level_option, log_to_stderr
from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import HostPort, Whole
from klamm.cli.shell.stop_signals import StopSignals

if TYPE_CHECKING:
    from klamm.proxy.proxy import Proxy

PEM = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="Stand between clients and a Kafka cluster, keep a journal, and steer its requests.")
@click.option("--upstream", type=HostPort(), multiple=True, required=True, help="A broker of the cluster; can be given more than once.")
@click.option(
    "--listen", type=HostPort(lowest_port=0), default="127.0.0.1:0", show_default=True,
    help="Where clients find the first broker; port 0 chooses a free one. The other brokers get free ports of this host.",
)
@click.option(
    "--advertise", metavar="HOST",
    help="The host that responses name. Default: that of --listen; with 0.0.0.0 or [::] the address that the client has connected to.",
)
@click.option("--tls-certificate", type=PEM, help="Clients connect with TLS: the certificate that they see, with its chain.")
@click.option("--tls-key", type=PEM, help="The key of that certificate. Default: it is in the same file.")
@click.option("--tls-client-ca", type=PEM, help="Only clients with a certificate of these authorities.")
@click.option("--upstream-tls", is_flag=True, help="Connect to brokers with TLS; so does each other --upstream- option.")
@click.option("--upstream-ca", type=PEM, help="Authorities whose certificates brokers have. Default: those of the system.")
@click.option("--upstream-certificate", type=PEM, help="Certificate for brokers that request one.")
@click.option("--upstream-key", type=PEM, help="The key of that certificate. Default: it is in the same file.")
@click.option("--upstream-any-name", is_flag=True, help="Do not compare a broker's name with its certificate.")
@click.option("--upstream-unverified", is_flag=True, help="Check no certificates of brokers.")
@click.option("--tls-passthrough", is_flag=True, help="Let TLS pass from clients to brokers. Its frames cannot be read.")
@click.option(
    "--journal", type=click.Path(path_type=Path, file_okay=False), help="Folder for the journals of all brokers. Needs klamm[journal]."
)
@ship_options
@click.option("--run", metavar="NAME", help="Name of the journals' run.  [default: the id of the cluster]")
@click.option(
    "--control-port", type=Whole(0, 65535),
    help="Serve the control API at this port of 127.0.0.1, for faults and the last requests; with 0 at a free port. Needs klamm[control].",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the addresses. A failure is also printed as JSON.")
@log_level_option
def command(
    upstream: tuple[tuple[str, int], ...], listen: tuple[str, int], advertise: str | None, tls_certificate: Path | None,
    tls_key: Path | None, tls_client_ca: Path | None, upstream_tls: bool, upstream_ca: Path | None, upstream_certificate: Path | None,
    upstream_key: Path | None, upstream_any_name: bool, upstream_unverified: bool, tls_passthrough: bool, journal: Path | None,
    ship_to: Path | str | None, keep_local_ns: int | None, run: str | None, control_port: int | None, as_json: bool, log_level: str,
) -> None:
    """Stand between clients and a Kafka cluster of any kind, and keep a journal of what both say.

    There is a listener for each broker. Addresses in responses are changed to those of the listeners, so clients stay behind the proxy,
    and responses to ApiVersions name no version in which Klamm cannot find them; everything else passes byte for byte. When it is ready,
    the addresses for clients are printed on stdout. `klamm pipeline check`, `klamm report` and `klamm journal` read the journals as those
    of brokers. Secrets are masked in them.

    SASL passes through: clients authenticate at the brokers. With TLS the proxy has a certificate of its own for clients
    (--tls-certificate), and connections of its own to brokers (--upstream-tls). If TLS passes through, frames cannot be read: there is no
    journal, and clients leave the proxy as soon as a response has addresses of brokers.

    With --control-port, `klamm control fault` delays, drops, corrupts or refuses requests of your own cluster, and `klamm control
    requests` shows the last ones (docs/proxy.md).

    SIGINT or SIGTERM closes all connections and seals the journals.

    \b
    klamm proxy --upstream kafka-1:9092 --listen 127.0.0.1:9092 --journal lake
    klamm pipeline check --quick lake
    klamm proxy --upstream kafka-1:9093 --upstream-ca ca.pem --tls-certificate proxy.pem --control-port 9090
    """
    log_to_stderr(log_level)
    signals = StopSignals()
    has_broker_tls = any((upstream_tls, upstream_ca, upstream_certificate, upstream_key, upstream_any_name, upstream_unverified))
    if tls_passthrough and (tls_certificate or has_broker_tls or journal is not None or control_port is not None):
        raise click.UsageError("with --tls-passthrough frames cannot be read: there is no journal, no control API, and no TLS of the proxy")
    if run is not None and journal is None:
        raise click.UsageError("--run is the name of a journal's run and needs --journal")
    if tls_certificate is None and (tls_key or tls_client_ca):
        raise click.UsageError("--tls-key and --tls-client-ca need --tls-certificate")
    shipped = ship_properties(journal, ship_to, keep_local_ns)
    if upstream_key and upstream_certificate is None:
        raise click.UsageError("--upstream-key needs --upstream-certificate")
    if upstream_ca and upstream_unverified:
        raise click.UsageError("--upstream-unverified checks nothing, so --upstream-ca has no use with it")

    from klamm.proxy.tls import BrokerTls, ClientTls

    options: dict[str, Any] = {
        "advertised": advertise, "is_blind": tls_passthrough,
        "client_tls": None if tls_certificate is None else ClientTls(tls_certificate, tls_key, tls_client_ca),
        "broker_tls": BrokerTls(upstream_ca, upstream_any_name, upstream_unverified, upstream_certificate, upstream_key)
        if has_broker_tls else None,
    }
    proxy = _made((upstream, listen, journal, run), options, control_port)

    def ready() -> None:
        control = getattr(proxy, "control_url", None)
        shown = {"bootstrap_servers": proxy.bootstrap} | ({} if control is None else {"control": control})
        say(json.dumps(shown) if as_json else proxy.bootstrap.replace(",", "\n"))

    from klamm.cli.serving.shipping import shipping
    from klamm.machine.freed_memory import keep_freed_blocks
    from klamm.server.run import run as run_on_loop

    keep_freed_blocks()  # it passes on blocks of hundreds of kilobytes all the time

    serving = shipping(proxy, {DIRECTORY: journal, **shipped}.get, log_level)
    with extra_needed("journal", lambda: "--journal"):
        run_on_loop(lambda: live(serving, signals, ready))


def _made(arguments: tuple[Any, ...], options: dict[str, Any], control_port: int | None) -> Proxy:
    """The proxy; with a control port one that can be steered."""
    if control_port is None:
        from klamm.proxy.proxy import Proxy

        return Proxy(*arguments, **options)
    with extra_needed("control", lambda: "--control-port"):
        from klamm.control.verbs import http  # noqa: F401 it needs the extra
    from klamm.control.verbs.steered_proxy import SteeredProxy

    return SteeredProxy(*arguments, control_port=control_port, **options)
