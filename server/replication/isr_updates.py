"""ISR changes of leaders, sent to the active controller by AlterPartition.

One request is in flight; proposals that come in the meantime go into the next request together. A proposal waits until the controller has
accepted or refused it, or until it is obsolete because its partition has another leader epoch or role. A request that fails as a whole (no
controller known, connection lost, STALE_BROKER_EPOCH, any other top-level error, NOT_CONTROLLER for a partition) is repeated every RETRY_S
seconds without limit. A proposal with a retriable error is repeated too; `Leaders.isr_refused` decides which errors are retriable.
Source: controller 14.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.broker.leaders import Leaders
from klamm.broker.leadership import IsrProposal
from klamm.machine.faults import contained
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode, received_code
from klamm.protocol.nouns import ZERO_UUID, TopicPartition
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.net.controller_requests import ControllerRequests, ControllerUnreachable

log = logging.getLogger(__name__)

RETRY_S = 0.05
LAST_VERSION_WITH_NAMES = 1


class IsrUpdates:
    """Sends proposals to the controller. `requests` negotiates versions; `timeout_s` limits one attempt."""

    def __init__(
        self,
        identity: BrokerIdentity,
        leaders: Leaders,
        requests: ControllerRequests,
        background: BackgroundTasks,
        timeout_s: float,
    ) -> None:
        self._identity = identity
        self._leaders = leaders
        self._requests = requests
        self._background = background
        self._timeout_s = timeout_s
        self._unsent: dict[TopicPartition, IsrProposal] = {}
        self._is_sending = False

    def submit(self, proposal: IsrProposal) -> None:
        """Request a change. It replaces an older proposal for the partition, whose result is ignored."""
        self._unsent[TopicPartition(proposal.partition.topic, proposal.partition.index)] = proposal
        if not self._is_sending:
            self._is_sending = True
            self._background.start(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._unsent:
                is_done = False
                with contained(log, "AlterPartition"):
                    is_done = await self._send_wanted()
                if not is_done:
                    await self._requests.clock.sleep(RETRY_S)
        finally:
            self._is_sending = False

    async def _send_wanted(self) -> bool:
        """Send the proposals that are not obsolete; returns whether none of them must be repeated."""
        for key in [key for key, proposal in self._unsent.items() if not self._leaders.is_wanted(proposal)]:
            del self._unsent[key]
        return not self._unsent or await self._send(list(self._unsent.values()))

    async def _send(self, proposals: Sequence[IsrProposal]) -> bool:
        """Send one request with all proposals; returns whether none of them must be repeated."""
        newest = APIS[ApiKey.ALTER_PARTITION].max_version
        if any(proposal.partition.topic_id == ZERO_UUID for proposal in proposals):
            newest = LAST_VERSION_WITH_NAMES
        broker_id = self._identity.broker_id
        try:
            response, version = await self._requests.send_negotiated(
                ApiKey.ALTER_PARTITION, newest, lambda version: self._request(proposals, version), self._timeout_s
            )
        except ControllerUnreachable as error:
            log.debug("broker %d: AlterPartition: %s", broker_id, error)
            return False
        if response.error_code != ErrorCode.NONE:
            log.warning("broker %d: the controller refuses AlterPartition with error %d; retrying", broker_id, response.error_code)
            return False
        by_name = {
            (topic.topic_name if version < 2 else topic.topic_id, row.partition_index): row
            for topic in response.topics
            for row in topic.partitions
        }
        if any(row.error_code == ErrorCode.NOT_CONTROLLER for row in by_name.values()):
            return False
        unsettled = set(proposals)
        for proposal in proposals:
            with contained(log, f"the result of AlterPartition for {proposal.partition}"):
                if self._settle(proposal, by_name.get(_key(proposal, version))):
                    unsettled.discard(proposal)
        return not unsettled

    def _settle(self, proposal: IsrProposal, row: messages.AlterPartitionResponse.PartitionData | None) -> bool:
        """Report a result to the leader; returns False if the proposal must be sent again."""
        if row is None:
            return False
        if row.error_code == ErrorCode.NONE:
            self._leaders.isr_altered(proposal, row.leader_epoch, row.partition_epoch, tuple(row.isr), row.leader_recovery_state)
        elif self._leaders.isr_refused(proposal, received_code(row.error_code)):
            return False
        key = TopicPartition(proposal.partition.topic, proposal.partition.index)
        if self._unsent.get(key) is proposal:
            del self._unsent[key]
        return True

    def _request(self, proposals: Sequence[IsrProposal], version: int) -> messages.AlterPartitionRequest:
        request = messages.AlterPartitionRequest
        by_topic: dict[str, tuple[bytes, list[messages.AlterPartitionRequest.PartitionData]]] = {}
        for proposal in proposals:
            row = request.PartitionData(
                partition_index=proposal.partition.index, leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch
            )
            if version < 3:
                row = row._replace(new_isr=proposal.isr)
            else:
                row = row._replace(new_isr_with_epochs=[request.BrokerState(broker_id=b, broker_epoch=-1) for b in proposal.isr])
            if version >= 1:
                row = row._replace(leader_recovery_state=proposal.recovery)
            by_topic.setdefault(proposal.partition.topic, (proposal.partition.topic_id, []))[1].append(row)
        topics = [
            request.TopicData(topic_name=name, partitions=rows) if version < 2 else request.TopicData(topic_id=topic_id, partitions=rows)
            for name, (topic_id, rows) in by_topic.items()
        ]
        return request(broker_id=self._identity.broker_id, broker_epoch=self._identity.broker_epoch, topics=topics)


def _key(proposal: IsrProposal, version: int) -> tuple[str | bytes, int]:
    partition = proposal.partition
    return (partition.topic if version < 2 else partition.topic_id), partition.index
