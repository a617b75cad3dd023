"""Small files: `partition.metadata` and `klamm.move` of a log, `meta.properties` and `.kafka_cleanshutdown` of a log directory.

`partition.metadata` has the topic id of a log. `meta.properties` has the ids of the cluster and the broker to which a directory belongs;
the id of the directory itself is kept if there is one. `.kafka_cleanshutdown` is written last when a broker stops and deleted first when it
starts. If it exists, the logs are complete, and recovery is not necessary. It has the broker epoch before the shutdown.

`klamm.move` is in the old and in the new folder of a log at the end of a move between directories, while both have the name of the log.
Apache Kafka does not have this file. If both have the same id of a move, a start after a crash knows the old folder, and deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from klamm.protocol.nouns import id_of, id_text

PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
MOVE = "klamm.move"
UNKNOWN_EPOCH = -1


class CorruptMarker(ValueError):
    """The file does not have the right format."""


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Encode `partition.metadata` for a topic id of 16 bytes."""
    return f"version: 0\ntopic_id: {id_text(topic_id)}".encode()


def read_partition_metadata(data: bytes) -> bytes:
    """The topic id, 16 bytes, also of a later version, as Apache Kafka reads it. Raises CorruptMarker."""
    try:
        lines = data.decode().splitlines()
        values = dict(line.split(": ", 1) for line in lines if line)
        version, text = int(values["version"]), values["topic_id"].strip()
        topic_id = id_of(text)
    except (KeyError, ValueError) as error:
        raise CorruptMarker(f"not a partition.metadata: {data[:100]!r}") from error
    if version < 0 or not any(topic_id):
        raise CorruptMarker(f"version {version}, topic id {text}")
    return topic_id


def encode_move(unique: str, is_new: bool) -> bytes:
    """Encode `klamm.move` for the new or the old folder of a moving log."""
    return f"version: 0\n{'to here' if is_new else 'from here'}: {unique}\n".encode()


def read_move(data: bytes) -> tuple[str, bool]:
    """(id of the move, whether this is the new folder); ("", False) if the file is not valid, for example incomplete."""
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[0] != b"version: 0" or lines[2]:
        return "", False
    side, colon, unique = lines[1].decode("latin-1").partition(": ")
    return (unique, side == "to here") if colon and unique and side in ("to here", "from here") else ("", False)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Encode `.kafka_cleanshutdown`."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def encode_properties(properties: Mapping[str, str], comment: str) -> bytes:
    """Encode a properties file. `comment` is where Java writes the time."""
    return f"#\n#{comment}\n".encode() + "".join(f"{name}={value}\n" for name, value in properties.items()).encode("latin-1")
