"""Rows of leaders for gold."""

from __future__ import annotations

from klamm.protocol import messages


def leader(leader: int, leader_epoch: int) -> messages.UpdateMetadataRequest:
    Request = messages.UpdateMetadataRequest
    state = Request.UpdateMetadataPartitionState(partition_index=0, leader=leader, leader_epoch=leader_epoch, isr=(1, 2), replicas=(1, 2))
    return Request(controller_epoch=3, topic_states=[Request.UpdateMetadataTopicState(topic_name="t", partition_states=[state])])
