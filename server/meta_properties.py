"""The file `meta.properties` of a log directory: the cluster id and the broker id that it belongs to.

It is read in each directory that the properties name before the broker registers, as Apache Kafka does: a directory of another cluster or
another broker ends the start, and a broker without a configured id takes the stored one. Directories that have none get one. A directory
that is only a default of Kafka (the same for the whole machine) is neither read nor written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

from klamm.broker.log.files.marker_files import META_PROPERTIES, encode_properties
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.properties import PropertiesError, read_properties
from klamm.machine.replaced_file import replace_file
from klamm.server.disks import are_on_disk

log = logging.getLogger(__name__)


class ForeignDirectory(Exception):
    """A log directory belongs to another cluster or broker; the text is one line."""


class Stored(NamedTuple):
    """One directory's file."""

    file: Path
    properties: Mapping[str, str]


def read_stored(config: BrokerConfig) -> list[Stored]:
    """The files of all log directories that have one. Raises ForeignDirectory for one that cannot be read."""
    files = [Path(folder, META_PROPERTIES) for folder in config.log_dirs] if are_on_disk(config) else []
    stored = []
    for file in files:
        try:
            stored.append(Stored(file, read_properties(file)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # a new directory, or one that cannot be used, which is found out when it is
        except (OSError, PropertiesError) as error:
            raise ForeignDirectory(f"{file} cannot be read: {error}") from error
    return stored


def stored_broker_id(stored: list[Stored], cluster_id: str, configured_id: int) -> int:
    """The broker id of these directories, -1 without any. Raises ForeignDirectory when they are not this cluster's and this broker's."""
    broker_id = configured_id
    for file, properties in stored:
        if properties.get("version", "0") != "0":
            raise ForeignDirectory(f"{file} has version {properties['version']}, which is KRaft's; with ZooKeeper it is 0")
        if properties.get("cluster.id", cluster_id) != cluster_id:
            raise ForeignDirectory(f"{file} belongs to cluster {properties['cluster.id']}, but ZooKeeper holds cluster {cluster_id}")
        lacking = [name for name in ("cluster.id", "broker.id") if name not in properties]
        if lacking:
            log.warning("%s has no %s: the directory is taken for this broker's without that check", file, " and no ".join(lacking))
        if "broker.id" not in properties:
            continue
        broker = properties["broker.id"]
        if not broker.isdecimal() or broker_id not in (-1, int(broker)):
            raise ForeignDirectory(f"{file} belongs to broker {broker}, not to broker {broker_id}")
        broker_id = int(broker)
    return broker_id


def write_missing(folders: Iterable[str], cluster_id: str, broker_id: int, now_ms: int) -> None:
    """Say whose these directories are where it is not said. Blocks. What cannot be written is logged: the directory fails later."""
    properties = {"broker.id": str(broker_id), "version": "0", "cluster.id": cluster_id}
    moment = formatdate(now_ms / 1000, usegmt=True)
    for folder in folders:
        file = Path(folder, META_PROPERTIES)
        try:
            if not file.exists():
                if file.parent.is_dir() and any(entry.is_dir() for entry in file.parent.iterdir()):
                    log.warning("%s is missing beside logs: the directory is taken for this broker's without a check", file)
                Path(folder).mkdir(parents=True, exist_ok=True)
                replace_file(str(file), encode_properties(properties, moment), flush=True)
        except OSError as error:
            log.warning("%s cannot be written: %s", file, error)
