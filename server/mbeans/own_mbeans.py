"""Metrics that Apache Kafka does not have, in the form of MBeans: recoveries after unclean elections (KIP-704)."""

from __future__ import annotations

from klamm.broker.leaders import Leaders
from klamm.server.mbeans.mbean import Kind, MBean, one
from klamm.server.mbeans.readings import BrokerReading

_RECOVERY = "klamm.server:type=LeaderRecovery,name="


def _leaders(reading: BrokerReading) -> Leaders:
    return reading.replicas.leaders


OWN_MBEANS: tuple[MBean, ...] = (
    MBean(_RECOVERY + "RecoveringPartitionCount", Kind.GAUGE, "partitions led here that recover, and are not served meanwhile",
          read=one(lambda reading: sum(replica.is_recovering for replica in reading.led))),
    MBean(_RECOVERY + "CommittedTransactionsPerSec", Kind.METER, "transactions that recoveries have committed: their markers were lost",
          read=one(lambda reading: _leaders(reading).transactions_committed)),
    MBean(_RECOVERY + "AbortedTransactionsPerSec", Kind.METER, "transactions that recoveries have aborted",
          read=one(lambda reading: _leaders(reading).transactions_aborted)),
)
