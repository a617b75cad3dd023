"""Everything that a cluster remembers, as values to compare."""

from __future__ import annotations

from typing import Any

from klamm.controller.cluster import Cluster

CACHES = {"_offline_of", "_replica_state_maps", "_see", "reassignments", "registered", "shared"}
"""Fields that say nothing that the others do not, or only of what is held and of what an event has not completed."""


def snapshot(cluster: Cluster) -> dict[str, Any]:
    """Field by field; a field of which this knows nothing is an error."""
    fields: dict[str, Any] = {}
    for name, value in vars(cluster).items():
        public = name.removeprefix("_")
        if name in CACHES or (public != name and public in vars(cluster)):
            continue
        match public:
            case "epoch" | "alive" | "listed":
                fields[public] = value
            case "brokers" | "fenced" | "registrations":
                fields[public] = dict(value)
            case "shutting_down":
                fields[public] = set(value)
            case "deletions":
                fields[public] = [(deletion.topic, deletion.started, deletion.ineligible) for deletion in value]
            case "reassigning" | "not_online":
                fields[public] = {p.key for p in value}
            case "offline_dirs":
                fields[public] = {b: {p.key for p in held} for b, held in value.items()}
            case "topics_by_id":
                fields[public] = {topic_id: topic.name for topic_id, topic in value.items()}
            case "topics":
                fields[public] = {
                    t.name: (t.id, t.queued, {i: (p.assignment, p.info, p.state, p.replica_states) for i, p in t.partitions.items()})
                    for t in value.values()
                }
            case _:
                raise AssertionError(f"what is Cluster.{name}?")
    return fields
