"""A broker without a network whose leaders recover after unclean elections: the test is its controller."""

from __future__ import annotations

from klamm.broker.leadership import IsrProposal
from klamm.broker.partition import HostedPartition
from klamm.broker.recovery import LeaderRecovery, RecoveryGate, RecoveryProcess, RecoveryWork, no_work
from klamm.protocol.nouns import TopicPartition
from klamm.tests.server.groups.coordinating_broker import CoordinatingBroker


class Recoveries:
    """Those of one broker. `proposals` are the ISRs that it has proposed; nothing is confirmed until `confirm`."""

    def __init__(self, broker: CoordinatingBroker, mode: str = "instant", work: RecoveryWork = no_work) -> None:
        self.broker = broker
        self.gate = RecoveryGate()
        self.proposals: list[IsrProposal] = []
        self.process = RecoveryProcess(mode, broker.clock, self.gate, work)
        recovery = LeaderRecovery(1, broker.replicas.leaders, self.process, broker.background.start)
        broker.replicas.states.recover = recovery.begin
        broker.replicas.leaders.isr_updates = self

    def submit(self, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)

    def replica(self, partition: TopicPartition) -> HostedPartition:
        replica = self.broker.replicas.get(*partition)
        assert replica is not None
        return replica

    async def confirm(self) -> None:
        """As `accept`, and all that follows happens."""
        self.accept()
        await self.broker.settle()

    def accept(self) -> None:
        """The controller accepts the only proposal."""
        (proposal,) = self.proposals
        self.proposals.clear()
        epochs = proposal.leader_epoch, proposal.partition_epoch + 1
        self.broker.replicas.leaders.isr_altered(proposal, *epochs, proposal.isr, proposal.recovery)
