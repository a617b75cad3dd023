"""`klamm journal import`: makes journals of a capture of packets."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.journal.options import LAKE
from klamm.cli.shell.output import counted, say
from klamm.protocol.addresses import address_of


class BrokerAddress(click.ParamType[tuple[int | None, str, int]]):
    """`[ID=]HOST:PORT`."""

    name = "[ID=]HOST:PORT"

    def convert(
        self, value: str | tuple[int | None, str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, str, int]:
        """The id, if there is one, host and port."""
        if isinstance(value, tuple):
            return value
        number, equals, address = value.rpartition("=")
        try:
            if equals and not (number.isascii() and number.isdigit() and int(number) < 1 << 31):
                raise ValueError(f"{number!r} is not the id of a broker")
            return int(number) if equals else None, *address_of(address)
        except ValueError:
            self.fail(f"{value!r} is not [ID=]HOST:PORT, such as 1=localhost:9092", param, ctx)


@click.command("import", short_help="Make journals of a capture of packets.")
@click.argument("capture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.option(
    "--broker", "brokers", type=BrokerAddress(), multiple=True, required=True,
    help="A broker in the capture; can be given more than once. Its id is looked for in responses to Metadata unless it is given.",
)
@click.option("--run", metavar="NAME", help="Name of the journals' run.  [default: the name of the file]")
def command(capture: Path, lake: Path, brokers: tuple[tuple[int | None, str, int], ...], run: str | None) -> None:
    """Make the journals of brokers from FILE, a capture of their packets (pcap or pcapng), in the folder LAKE.

    They are those that `klamm proxy` would have written, so `klamm pipeline check`, `klamm report` and `klamm journal` read them. Packets
    may be Ethernet with or without VLAN, Linux cooked, loopback or IP. Duplicates are dropped and the order is restored. What the capture
    lacks is a gap, not a violation: rows are missing there. Connections with TLS cannot be read, and are counted.

    Needs klamm[captures].

    \b
    tcpdump -i any -w kafka.pcap tcp port 9092
    klamm journal import kafka.pcap ./lake --broker 10.0.0.1:9092 --broker 10.0.0.2:9092
    klamm pipeline check --quick ./lake
    """
    from klamm.cli.shell.failures import extra_needed

    with extra_needed("captures", lambda: "klamm journal import"):
        from klamm.journal.captures.importing import Broker, import_capture
    from klamm.configs.tables.public_configs import public_configs
    from klamm.journal.captures.packets import BadCapture
    from klamm.journal.writer import JournalRefused

    try:
        made = import_capture(capture, [Broker(*each) for each in brokers], lake, run or capture.stem or "capture", public_configs())
    except (BadCapture, JournalRefused) as error:
        raise click.ClickException(str(error)) from error
    say(f"{lake}: run {made.run}, {counted(made.connections, 'connection')} of brokers {', '.join(map(str, made.brokers))}")
    if made.guessed:
        chosen = ", ".join(map(str, made.guessed))
        say(f"ids that the capture does not have, and that were chosen: {chosen}; --broker ID=HOST:PORT gives them")
    if made.midway:
        say(f"{counted(made.midway, 'connection')} without a beginning in the capture")
    if made.gaps:
        say(f"{counted(made.gaps, 'gap')}: {made.lost:,} bytes are not in the capture")
    for protocol, count in sorted(made.unread.items()):
        say(f"{counted(count, 'connection')} with {protocol}: not read")
