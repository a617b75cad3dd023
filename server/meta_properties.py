"""The file `meta.properties` that Apache Kafka writes into its log directories: the cluster id and the broker id that they belong to.

Klamm keeps nothing in log directories, so it never writes this file. It reads the file in each directory that the properties name, as
Apache Kafka does before it registers: a directory of another cluster or another broker ends the start, and a broker without a configured
id takes the stored one. A directory that is only a default of Kafka (the same for the whole machine) is not read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.properties import PropertiesError, read_properties

log = logging.getLogger(__name__)


class ForeignDirectory(Exception):
    """A log directory belongs to another cluster or broker; the text is one line."""


class Stored(NamedTuple):
    """One directory's file."""

    file: Path
    properties: Mapping[str, str]


def read_stored(config: BrokerConfig) -> list[Stored]:
    """The files of all log directories that have one. Raises ForeignDirectory for one that cannot be read."""
    named = {"log.dir", "log.dirs"} & config.static.keys()
    files = [Path(folder, "meta.properties") for folder in config.log_dirs] if named else []
    stored = []
    for file in files:
        try:
            stored.append(Stored(file, read_properties(file)))
        except FileNotFoundError:
            continue
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
        if "broker.id" not in properties:
            continue
        broker = properties["broker.id"]
        if not broker.isdecimal() or broker_id not in (-1, int(broker)):
            raise ForeignDirectory(f"{file} belongs to broker {broker}, not to broker {broker_id}")
        broker_id = int(broker)
    return broker_id
