"""What fixtures of rules about controllers write: requests of a controller with their responses, as the receiver or the sender
journals them.

    broker = Channel(run.journal(), controller=9)          # the journal of broker 1, which controller 9 sends requests to
    broker.lead(State(leader_epoch=1, partition_epoch=1))  # LeaderAndIsr, taken
    broker.update(State(), error=11)                       # UpdateMetadata, refused
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from klamm.journal.columns import Direction
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey

ID = bytes(range(16))
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
OTHER_ID = bytes(range(16, 32))
NO_ID = bytes(16)


class State(NamedTuple):
    """A partition as a controller's request has it."""

    leader: int = 1
    leader_epoch: int = 0
    isr: Sequence[int] = (1, 2)
    partition_epoch: int = 0
    replicas: Sequence[int] = (1, 2)
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()
    offline: Sequence[int] = ()
    is_new: bool = False
    recovery: int = 0
    topic: str = "t"
    partition: int = 0
    topic_id: bytes = ID

    def next(self, **changes: Any) -> State:
        """The state after one more election."""
        return self._replace(leader_epoch=self.leader_epoch + 1, partition_epoch=self.partition_epoch + 1)._replace(**changes)


class Channel:
    """A controller's connection to a broker. `error` of its methods is the top-level code of the response; None: no response came."""

    def __init__(
        self, journal: Any, conn: int = 1, *, controller: int = 9, epoch: int = 1, broker_epoch: int = 10, to: int | None = None,
        batch: int | None = None, live: Sequence[int] = (1, 2, 9), **columns: Any,
    ) -> None:
        """With `to` the journal is the controller's own, and `to` the receiver; else it is the receiver's."""
        self.journal, self.conn, self.controller, self.epoch, self.broker_epoch = journal, conn, controller, epoch, broker_epoch
        self.to, self.batch, self.live, self.columns = to, batch, live, columns

    def lead(
        self, *states: State, error: int | None = 0, refused: int = 0, version: int = 7, leaders: Sequence[int] | None = None,
        **columns: Any,
    ) -> int:
        """LeaderAndIsr; its seq. `refused` is the code of every partition, `leaders` are the live ones if not those of `live`."""
        form = messages.LeaderAndIsrRequest
        each = [
            form.LeaderAndIsrPartitionState(
                topic_name=s.topic, partition_index=s.partition, controller_epoch=self.epoch, leader=s.leader, leader_epoch=s.leader_epoch,
                isr=tuple(s.isr), partition_epoch=s.partition_epoch, replicas=tuple(s.replicas), adding_replicas=tuple(s.adding),
                removing_replicas=tuple(s.removing), is_new=s.is_new, leader_recovery_state=s.recovery if version >= 6 else 0,
            ) for s in states
        ]
        topics = [
            form.LeaderAndIsrTopicState(topic_name=s.topic, topic_id=s.topic_id, partition_states=[one])
            for s, one in zip(states, each, strict=True)
        ]
        leaders = sorted({s.leader for s in states} & set(self.live)) if leaders is None else leaders
        request = form(
            controller_id=self.controller, controller_epoch=self.epoch, broker_epoch=self.broker_epoch, topic_states=topics,
            live_leaders=[form.LeaderAndIsrLiveLeader(broker_id=b, host_name="h", port=9092) for b in leaders],
        )
        return self._send(ApiKey.LEADER_AND_ISR, version, request, self._led(states, error, refused, version), columns)

    def _led(self, states: Sequence[State], error: int | None, refused: int, version: int) -> Any:
        if error is None:
            return None
        form = messages.LeaderAndIsrResponse
        errors = [form.LeaderAndIsrPartitionError(topic_name=s.topic, partition_index=s.partition, error_code=refused) for s in states]
        if version < 5:
            return form(error_code=error, partition_errors=errors)
        topics = [form.LeaderAndIsrTopicError(topic_id=s.topic_id, partition_errors=[one]) for s, one in zip(states, errors, strict=True)]
        return form(error_code=error, topics=topics)

    def update(self, *states: State, error: int | None = 0, version: int = 8, live: Sequence[int] | None = None, **columns: Any) -> int:
        """UpdateMetadata; its seq."""
        form = messages.UpdateMetadataRequest
        topics = [
            form.UpdateMetadataTopicState(topic_name=s.topic, topic_id=s.topic_id, partition_states=[
                form.UpdateMetadataPartitionState(
                    topic_name=s.topic, partition_index=s.partition, controller_epoch=self.epoch, leader=s.leader,
                    leader_epoch=s.leader_epoch, isr=tuple(s.isr), zk_version=s.partition_epoch, replicas=tuple(s.replicas),
                    offline_replicas=tuple(s.offline),
                )])
            for s in states
        ]
        brokers = [
            form.UpdateMetadataBroker(id=b, rack=None, endpoints=[
                form.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT", security_protocol=0)])
            for b in (self.live if live is None else live)
        ]
        request = form(
            controller_id=self.controller, controller_epoch=self.epoch, broker_epoch=self.broker_epoch, topic_states=topics,
            live_brokers=brokers,
        )
        response = None if error is None else messages.UpdateMetadataResponse(error_code=error)
        return self._send(ApiKey.UPDATE_METADATA, version, request, response, columns)

    def stop(self, *states: State, error: int | None = 0, delete: bool = False, **columns: Any) -> int:
        """StopReplica; its seq."""
        form = messages.StopReplicaRequest
        topics = [
            form.StopReplicaTopicState(topic_name=s.topic, partition_states=[
                form.StopReplicaPartitionState(partition_index=s.partition, leader_epoch=s.leader_epoch, delete_partition=delete)])
            for s in states
        ]
        request = form(controller_id=self.controller, controller_epoch=self.epoch, broker_epoch=self.broker_epoch, topic_states=topics)
        form_back = messages.StopReplicaResponse
        errors = [form_back.StopReplicaPartitionError(topic_name=s.topic, partition_index=s.partition, error_code=0) for s in states]
        response = None if error is None else form_back(error_code=error, partition_errors=[] if error else errors)
        return self._send(ApiKey.STOP_REPLICA, 4, request, response, columns)

    def both(self, state: State, **columns: Any) -> int:
        """LeaderAndIsr and UpdateMetadata with one state; the seq of the first."""
        seq = self.lead(state, **columns)
        self.update(state, **columns)
        return seq

    def _send(self, key: int, version: int, request: Any, response: Any, columns: dict[str, Any]) -> int:
        columns = {**self.columns, **columns}
        if self.to is not None:
            columns = {"dir": Direction.REQUEST_OUT, "peer_id": self.to, "cause": self.batch, "client_id": str(self.controller), **columns}
        else:
            columns = {"client_id": str(self.controller), **columns}
        seq = int(self.journal.request(self.conn, key, version, request, **columns))
        if response is not None:
            self.journal.response(self.conn, seq, response, **{k: v for k, v in columns.items() if k in ("peer_id", "process", "kind")})
        return seq


def alter(
    journal: Any, state: State, *, conn: int = 50, error: int = 0, answered: bool = True, version: int = 3, result: State | None = None,
    broker_id: int | None = None,
) -> int:
    """AlterPartition as a controller gets it: `state` is what the leader knows, with the new ISR. The seq of the response, or of the
    request where there is none. `result` is the state in the response; by default what was asked for, one partition epoch later."""
    form = messages.AlterPartitionRequest
    isr = {"new_isr": tuple(state.isr)} if version < 3 else {
        "new_isr_with_epochs": [form.BrokerState(broker_id=b, broker_epoch=-1) for b in state.isr]}
    topic = {"topic_name": state.topic} if version < 2 else {"topic_id": state.topic_id}
    request = form(broker_id=state.leader if broker_id is None else broker_id, broker_epoch=10, topics=[form.TopicData(**topic, partitions=[
        form.PartitionData(partition_index=state.partition, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch,
                           leader_recovery_state=state.recovery, **isr)])])
    asked = int(journal.request(conn, ApiKey.ALTER_PARTITION, version, request, client_id=str(state.leader)))
    if not answered:
        return asked
    back = messages.AlterPartitionResponse
    if result is None:
        result = State(0, 0, (), 0) if error else state._replace(partition_epoch=state.partition_epoch + 1)
    response = back(error_code=0, topics=[back.TopicData(**topic, partitions=[
        back.PartitionData(partition_index=state.partition, error_code=error, leader_id=result.leader, leader_epoch=result.leader_epoch,
                           isr=tuple(result.isr), leader_recovery_state=result.recovery,
                           partition_epoch=result.partition_epoch)])])
    return int(journal.response(conn, asked, response))


def written(journal: Any, version: int, expected: int | None, *, op: str = "set", outcome: str = "OK", **columns: Any) -> int:
    """A write of a partition's state; its seq."""
    row = {"topic": "t", "partition": 0, "topic_id": ID_TEXT, "leader_epoch": version, "partition_epoch": version, **columns}
    leader = row.pop("leader", 1)
    path = f"/brokers/topics/{row['topic']}/partitions/{row['partition']}/state"
    return int(journal.event(
        "zk_write",
        input={"op": op, "path": path, "version": expected, "leader": leader, "isr": [leader], "recovery": 0, "controller_epoch": 1},
        output={"outcome": outcome, "version": version}, controller_epoch=1, **row,
    ))


def handled(journal: Any, name: str, **columns: Any) -> int:
    """An event that the controller takes from its queue; its seq."""
    return int(journal.event(
        "controller_event", input={"number": 1, "name": name, "text": name, "cause": {"name": "WatchFired"}},
        **{"controller_epoch": 1, **columns},
    ))


def batch(journal: Any, cause: int, *, ibp: str = "3.9-IV0") -> int:
    """One send of a controller; its seq."""
    return int(journal.event("batch", output={"requests": [], "ibp": ibp}, controller_epoch=1, cause=cause))


def elected(journal: Any, epoch: int = 1, brokers: Sequence[tuple[int, int]] = ((1, 10), (2, 10))) -> int:
    """A controller election of this broker, and (id, epoch) of the brokers that it knows then; the seq of the event."""
    event = handled(journal, "Startup", controller_epoch=epoch)
    journal.event("controller_elected", broker=1, controller_epoch=epoch, cause=event)
    for broker, broker_epoch in brokers:
        up(journal, broker, broker_epoch, event, controller_epoch=epoch)
    return event


def up(journal: Any, broker: int, epoch: int, cause: int, *, kind: str = "broker_up", controller_epoch: int = 1) -> int:
    """A broker counts as registered from now on; the row's seq."""
    return int(journal.event(
        kind, broker=broker, controller_epoch=controller_epoch, cause=cause,
        output={"id": broker, "epoch": epoch, "endpoints": [], "rack": None},
    ))
