"""`klamm proxy`: a proxy in front of any Kafka cluster that keeps a journal of what clients and brokers say."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import click

from klamm.cli.serving.lifetime import live
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.logs import log_level_option, log_to_stderr
from klamm.cli.shell.output import say
from klamm.cli.shell.stop_signals import StopSignals


class HostPort(click.ParamType[tuple[str, int]]):
    """`HOST:PORT`, with an IPv6 address in brackets."""

    name = "HOST:PORT"

    def convert(self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Host and port."""
        if isinstance(value, tuple):
            return value
        try:
            parts = urlsplit(f"//{value}")
            if parts.hostname and parts.port is not None and value.count("/") == 0:
                return parts.hostname, parts.port
        except ValueError:
            pass
        self.fail(f"{value!r} is not HOST:PORT", param, ctx)


@click.command(short_help="Stand between clients and a Kafka cluster, and keep a journal.")
@click.option("--upstream", type=HostPort(), multiple=True, required=True, help="A broker of the cluster; can be given more than once.")
@click.option(
    "--listen", type=HostPort(), default="127.0.0.1:0", show_default=True,
    help="Where clients find the first broker; port 0 chooses a free one. The other brokers get free ports of this host.",
)
@click.option(
    "--journal", type=click.Path(path_type=Path, file_okay=False), help="Folder for the journals of all brokers. Needs klamm[journal]."
)
@click.option("--run", metavar="NAME", help="Name of the journals' run.  [default: the id of the cluster]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the addresses. A failure is also printed as JSON.")
@log_level_option
def command(
    upstream: tuple[tuple[str, int], ...], listen: tuple[str, int], journal: Path | None, run: str | None, as_json: bool, log_level: str
) -> None:
    """Stand between clients and a Kafka cluster of any kind, and keep a journal of what both say.

    There is a listener for each broker. Addresses in responses are changed to those of the listeners, so clients stay behind the proxy,
    and responses to ApiVersions name no version in which Klamm cannot find them; everything else passes byte for byte. When it is ready,
    the addresses for clients are printed on stdout. `klamm pipeline check`, `klamm report` and `klamm journal` read the journals as those
    of brokers. Secrets are masked in them.

    PLAINTEXT only, with or without SASL: the frames of a TLS connection cannot be read.

    SIGINT or SIGTERM closes all connections and seals the journals.

    \b
    klamm proxy --upstream kafka-1:9092 --listen 127.0.0.1:9092 --journal lake
    klamm pipeline check --quick lake
    """
    log_to_stderr(log_level)
    signals = StopSignals()

    import asyncio

    from klamm.proxy.proxy import Proxy

    proxy = Proxy(upstream, listen, journal, run)

    def ready() -> None:
        say(json.dumps({"bootstrap_servers": proxy.bootstrap}) if as_json else proxy.bootstrap.replace(",", "\n"))

    with extra_needed("journal", lambda: "--journal"):
        asyncio.run(live(proxy, signals, ready))
