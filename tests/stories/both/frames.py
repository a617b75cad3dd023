"""What a fake broker was told, partition by partition.

A controller may send more or fewer partitions in one request, so frames are taken apart: for every partition the states it was told, in
their order, and what says the same as the line before it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.tests.harness.fake_broker import LISR, SR, UMR, Frame

TOLD = (LISR, UMR, SR)


def numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "none"


def told(frames: Sequence[Frame], topics: Sequence[str]) -> str:
    """States of the partitions of these topics."""
    lines: dict[tuple[str, int], list[str]] = {}
    for frame in frames:
        if frame.api not in TOLD:
            continue
        for partition, state in _states(frame).items():
            if partition[0] in topics:
                sender = f"{frame.body.controller_id}/{frame.body.controller_epoch}"
                line = f"{partition[0]}-{partition[1]} {frame.api} v{frame.version} by {sender}: {state}"
                of_partition = lines.setdefault(partition, [])
                if not of_partition or of_partition[-1] != line:
                    of_partition.append(line)
    return "\n".join(line for partition in sorted(lines) for line in lines[partition]) or "nothing"


def _states(frame: Frame) -> dict[tuple[str, int], str]:
    if frame.api == SR:
        return _stops(frame)
    return {partition: _state(frame, state) for partition, state in frame.partitions().items()}


def _state(frame: Frame, state: Any) -> str:
    text = f"leader {state.leader} le {state.leader_epoch} isr {numbers(state.isr)} ce {state.controller_epoch}"
    pe = getattr(state, "partition_epoch", None)
    pe = getattr(state, "zk_version", None) if pe is None else pe
    text += f" pe {pe} replicas {numbers(state.replicas)}"
    if frame.api == UMR:
        return text + (f" offline {numbers(state.offline_replicas)}" if state.offline_replicas else "")
    if state.adding_replicas or state.removing_replicas:
        text += f" adding {numbers(state.adding_replicas)} removing {numbers(state.removing_replicas)}"
    return text + (" recovering" if state.leader_recovery_state else "") + (" new" if state.is_new else "")


def _stops(frame: Frame) -> dict[tuple[str, int], str]:
    found = {}
    if frame.version >= 3:
        for topic in frame.body.topic_states:
            for state in topic.partition_states:
                found[topic.topic_name, state.partition_index] = f"le {state.leader_epoch}{' delete' if state.delete_partition else ''}"
    else:
        for partition in frame.partitions():
            found[partition] = "delete" if frame.body.delete_partitions else "stop"
    return found


def live(frames: Sequence[Frame], start: int, ports: dict[int, int]) -> str:
    """Brokers that UpdateMetadata listed from frame `start` on, as they change; a port is shown where it is not the broker's own."""
    lines: list[str] = []
    before = 0
    for number, frame in enumerate(frames):
        if frame.api != UMR:
            continue
        if number < start:
            before = 1
            lines.clear()
        brokers = []
        for broker in sorted(frame.body.live_brokers, key=lambda each: each.id):
            port = broker.endpoints[0].port if broker.endpoints else broker.v0_port
            moved = f":{port}" if ports.get(broker.id, port) != port else ""
            brokers.append(f"{broker.id}{moved}{f'@{broker.rack}' if broker.rack else ''}")
        line = f"by {frame.body.controller_id}/{frame.body.controller_epoch}: {','.join(brokers) or 'none'}"
        if not lines or lines[-1] != line:
            lines.append(line)
    return "\n".join(lines[before:]) or "nothing"
