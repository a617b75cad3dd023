"""Every MBean of a broker of Apache Kafka 3.9.1 in ZooKeeper mode, and what Klamm has of it. `docs/metrics.md` is made from it.

The list was read from real brokers (`tests/server/metrics/mbeans.txt`); a test compares the two. MBeans of Java itself (`java.lang` and
others) are left out.
"""

from __future__ import annotations

from klamm.server.mbeans.controller_mbeans import CONTROLLER_MBEANS
from klamm.server.mbeans.log_mbeans import LOG_MBEANS
from klamm.server.mbeans.mbean import MBean
from klamm.server.mbeans.own_mbeans import OWN_MBEANS
from klamm.server.mbeans.replica_mbeans import REPLICA_MBEANS
from klamm.server.mbeans.request_mbeans import REQUEST_MBEANS
from klamm.server.mbeans.server_mbeans import SERVER_MBEANS

TABLE: tuple[MBean, ...] = (*CONTROLLER_MBEANS, *REPLICA_MBEANS, *LOG_MBEANS, *REQUEST_MBEANS, *SERVER_MBEANS)

SHOWN: tuple[MBean, ...] = (*TABLE, *OWN_MBEANS)
"""Also those that Apache Kafka does not have."""
