"""Makes `serializers.jsonl.gz` and `serializers_kafka4.jsonl.gz`: `python -m klamm.tests.golden.recording.serializers`.

`Serializers.java` beside this file does the work, with the classes of the real Kafka's jars. The same file comes out every time.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from klamm.protocol.apis import APIS, Api, Draft
from klamm.tests.golden.recording.journal import write_lines
from klamm.tests.harness.kafka import java_command
from klamm.tests.reference.jars import VERSION, jars

FOLDER = Path(__file__).resolve().parents[1]
COUNT, COUNT_OF_KAFKA_4 = 40, 6
"""Instances of a message in one version; the same one twice counts once."""

KAFKA_4 = "4.4.0"

NAMES = (
    "LeaderAndIsr",
    "UpdateMetadata",
    "StopReplica",
    "ControlledShutdown",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "AlterPartition",
    "AllocateProducerIds",
)


def newer(api: Api) -> range:
    """The versions that Klamm has and 3.9 does not."""
    return range(api.min_version if api.draft is Draft.KAFKA_4 else api.max_version + 1, api.last_version + 1)


def written(version: str, count: int, names: Iterable[str]) -> list[str]:
    """Lines of JSON, one for each instance, as this version of Kafka serializes them."""
    source = str(Path(__file__).with_name("Serializers.java"))
    kinds = [f"{name}{kind}" for name in names for kind in ("Request", "Response")]
    command = java_command(jars(version), source, str(count), *kinds)
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()


def main() -> None:
    print(write_lines(FOLDER / "serializers.jsonl.gz", written(VERSION, COUNT, NAMES)))
    later = {f"{api.name}{kind}": newer(api) for api in APIS.values() for kind in ("Request", "Response") if newer(api)}
    lines = written(KAFKA_4, COUNT_OF_KAFKA_4, dict.fromkeys(api.name for api in APIS.values() if newer(api)))
    of_later = [line for line in lines if (row := json.loads(line))["version"] in later[row["name"]]]
    print(write_lines(FOLDER / "serializers_kafka4.jsonl.gz", of_later))


if __name__ == "__main__":
    main()
