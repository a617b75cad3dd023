"""The file `meta.properties` of a log directory: the ids of the cluster and the broker to which the directory belongs.

Like Apache Kafka, a broker reads it in each configured directory before it registers. If a directory belongs to another cluster or broker,
the start fails. A broker without a configured id takes the stored one. Directories without the file get one. Kafka's default directory,
which all brokers of a machine share, is neither read nor written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from klamm.broker.log.files.marker_files import META_PROPERTIES, encode_properties
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.properties import PropertiesError, read_properties
from klamm.machine.replaced_file import replace_file
from klamm.server.lifecycle.disks import are_on_disk

log = logging.getLogger(__name__)


class ForeignDirectory(Exception):
    """A log directory belongs to another cluster or broker. The text is one line for the user."""


class Stored(NamedTuple):
    """The content of one `meta.properties`."""

    file: Path
    properties: Mapping[str, str]


def read_stored(config: BrokerConfig) -> list[Stored]:
    """Read the files of all log directories that have one. Raises ForeignDirectory if one cannot be read."""
    files = [Path(folder, META_PROPERTIES) for folder in config.log_dirs] if are_on_disk(config) else []
    stored = []
    for file in files:
        try:
            stored.append(Stored(file, read_properties(file)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # a new directory, or an unusable one, which fails when it is used
        except (OSError, PropertiesError) as error:
            raise ForeignDirectory(f"cannot read {file}: {error}") from error
    return stored


def stored_broker_id(stored: list[Stored], cluster_id: str, configured_id: int) -> int:
    """The broker id from the configs or these files, -1 if neither has one. Raises ForeignDirectory if a file belongs to another cluster or
    broker.
    """
    broker_id = configured_id
    for file, properties in stored:
        if properties.get("version", "0") != "0":
            raise ForeignDirectory(f"{file} has version {properties['version']}, which is KRaft's; with ZooKeeper it is 0")
        if properties.get("cluster.id", cluster_id) != cluster_id:
            raise ForeignDirectory(f"{file} belongs to cluster {properties['cluster.id']}, but ZooKeeper holds cluster {cluster_id}")
        lacking = [name for name in ("cluster.id", "broker.id") if name not in properties]
        if lacking:
            log.warning("%s has no %s: assuming that the directory is this broker's", file, " and no ".join(lacking))
        if "broker.id" not in properties:
            continue
        broker = properties["broker.id"]
        if not broker.isdecimal() or broker_id not in (-1, int(broker)):
            raise ForeignDirectory(f"{file} belongs to broker {broker}, not to broker {broker_id}")
        broker_id = int(broker)
    return broker_id


def write_missing(folders: Iterable[str], cluster_id: str, broker_id: int, now_ms: int) -> None:
    """Write the file in directories that do not have it. Blocks. An error is only logged, because the directory fails later."""
    from email.utils import formatdate

    properties = {"broker.id": str(broker_id), "version": "0", "cluster.id": cluster_id}
    moment = formatdate(now_ms / 1000, usegmt=True)
    for folder in folders:
        file = Path(folder, META_PROPERTIES)
        try:
            if not file.exists():
                if file.parent.is_dir() and any(entry.is_dir() for entry in file.parent.iterdir()):
                    log.warning("%s is missing, but there are logs: assuming that the directory is this broker's", file)
                Path(folder).mkdir(parents=True, exist_ok=True)
                replace_file(str(file), encode_properties(properties, moment), flush=True)
        except OSError as error:
            log.warning("cannot write %s: %s", file, error)
