"""Makes `serializers.jsonl.gz`: `python -m klamm.tests.golden.recording.serializers`.

`Serializers.java` beside this file does the work, with the classes of the real Kafka's jars. The same file comes out every time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from klamm.tests.golden.recording.journal import write_lines
from klamm.tests.harness.kafka import java_command
from klamm.tests.reference.jars import jars

TARGET = Path(__file__).resolve().parents[1] / "serializers.jsonl.gz"
COUNT = 40
"""Instances of a message in one version; the same one twice counts once."""

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


def main() -> None:
    source = str(Path(__file__).with_name("Serializers.java"))
    kinds = [f"{name}{kind}" for name in NAMES for kind in ("Request", "Response")]
    command = java_command(jars(), source, str(COUNT), *kinds)
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    print(write_lines(TARGET, made.splitlines()))


if __name__ == "__main__":
    main()
