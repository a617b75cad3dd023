"""`klamm produce`: writes the lines of stdin as records, with the options of kcat where both have them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import KEY_VALUE, Whole
from klamm.cli.tools.commands import Place, connection_options

TIMEOUT_MS = 30_000


@click.command(short_help="Write the lines of stdin as records.")
@click.argument("topic")
@connection_options
@click.option("-K", "--key-delimiter", metavar="TEXT", help="A line is KEY, this text, VALUE. A line without it has no key.")
@click.option("-k", "--key", help="Key of all records that have no key of their own.")
@click.option("-p", "--partition", type=Whole(0), help="Partition of all records. Default: chosen by the key, or at random.")
@click.option(
    "-z", "--compression", type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")), default="none", show_default=True,
    help="Compression of the batches.",
)
@click.option("-H", "--header", "headers", multiple=True, type=KEY_VALUE, help="A header of all records; can be given more than once.")
@click.option("-Z", "--empty-is-null", is_flag=True, help="An empty value is null, which deletes the key in a compacted topic.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end.")
def command(
    topic: str,
    bootstrap_server: str,
    command_config: Path | None,
    key_delimiter: str | None,
    key: str | None,
    partition: int | None,
    compression: str,
    headers: tuple[tuple[str, str], ...],
    empty_is_null: bool,
    as_json: bool,
) -> None:
    """Write each line of stdin as a record to TOPIC, which must exist. The command ends when stdin does and all records are acknowledged.

    Without --json nothing is printed. If a record is not acknowledged, the exit code is 1; earlier ones may have been written.

    \b
    printf 'a\\nb\\n' | klamm produce orders --bootstrap-server localhost:9092
    printf 'k1:v1\\n' | klamm produce orders -K : -z zstd -H source=test --bootstrap-server localhost:9092
    """
    delimiter = None if key_delimiter is None else key_delimiter.encode()
    if delimiter == b"":
        raise click.UsageError("the key delimiter must not be empty")

    from klamm.cli.records.topic_partitions import CLIENT_ID, partitions_of

    partitions_of(Place(bootstrap_server, command_config), topic, partition)

    from klamm.admin import AdminError
    from klamm.admin.records.record_writer import RecordWriter
    from klamm.cli.tools.client import error_text
    from klamm.cli.tools.client_properties import client_settings
    from klamm.cli.tools.failures import ToolFailed

    settings = {"client_id": CLIENT_ID, "request_timeout_ms": TIMEOUT_MS, **client_settings(command_config)}
    client_id, timeout_ms = settings.pop("client_id"), settings.pop("request_timeout_ms")
    security: Any = settings
    extra = [(name, value.encode()) for name, value in headers]
    try:
        with RecordWriter(bootstrap_server, topic, client_id, compression, timeout_ms, security) as writer:
            for line in _lines():
                own, value = _split(line, delimiter)
                fixed = None if key is None else key.encode()
                writer.write(None if empty_is_null and not value else value, fixed if own is None else own, extra, partition)
            writer.finish()
    except AdminError as error:
        raise ToolFailed(f"{topic}: {error_text(error)}") from error
    if as_json:
        say(json.dumps({"topic": topic, "records": writer.written}))


def _lines() -> Iterator[bytes]:
    """The lines of stdin, without their ends."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _split(line: bytes, delimiter: bytes | None) -> tuple[bytes | None, bytes]:
    if delimiter is None or delimiter not in line:
        return None, line
    key, _, value = line.partition(delimiter)
    return key, value
