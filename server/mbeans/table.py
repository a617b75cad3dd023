"""The MBeans of a broker of Apache Kafka 3.9.1 in ZooKeeper mode that Klamm has. `docs/metrics.md` is made from it.

That page, and `tests/server/metrics/absent_mbeans.json`, say of all others why Klamm does not have them. Together they are those of real
brokers (`tests/server/metrics/mbeans.txt`); a test compares them. MBeans of Java itself (`java.lang` and others) are left out.
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
