"""Converts the change of a watch to an event of the controller. Each path reports only the types of changes in the layout (layout 2)."""

from __future__ import annotations

from klamm.controller.events import catalogue as events
from klamm.zk.layout import paths
from klamm.zk.session.connection import Change


def event_of(change: Change, path: str) -> events.WatchEvent | None:
    """The event of a change; None for a type that the path does not report. MISSED is always reported (layout 1.3)."""
    missed = change is Change.MISSED
    parent, _, name = path.rpartition("/")
    match path:
        case paths.CONTROLLER:
            return events.Reelect() if missed or change is Change.DELETED else events.ControllerChange()
        case paths.BROKER_IDS if missed or change is Change.CHILD:
            return events.BrokerChange()
        case paths.TOPICS if missed or change is Change.CHILD:
            return events.TopicChange()
        case paths.DELETE_TOPICS if missed or change is Change.CHILD:
            return events.TopicDeletion()
        case paths.ISR_CHANGE_NOTIFICATION if missed or change is Change.CHILD:
            return events.IsrChangeNotification()
        case paths.LOG_DIR_EVENT_NOTIFICATION if missed or change is Change.CHILD:
            return events.LogDirEventNotification()
        case paths.REASSIGN_PARTITIONS if missed or change is Change.CREATED:
            return events.ZkPartitionReassignment()
        case paths.PREFERRED_REPLICA_ELECTION if missed or change is Change.CREATED:
            return events.PreferredReplicaElection()
    if missed or change is Change.CHANGED:
        if parent == paths.BROKER_IDS:
            return events.BrokerModifications(int(name))
        if parent == paths.TOPICS:
            return events.PartitionModifications(name)
        state = paths.partition_of(path)
        if state is not None:
            return events.PartitionReassignmentIsrChange(*state)
    return None
