"""What a broker reads of its own registration (`read_registration`)."""

from __future__ import annotations

import pytest

from klamm.controller.values import BrokerRegistration, BrokerState
from klamm.tests.zk.labs import RealLab
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.znodes import encode_controller
from klamm.zk.store.registrations import encode_registration, read_registration

OWN = BrokerRegistration(5, 3, BrokerState.ONLINE, (), is_silent=True)


@pytest.mark.requirement("RREG-24")
async def test_broker_reads_its_own_registration(real: RealLab) -> None:
    session = (await real.seat()).session
    assert await read_registration(session, 5) is None
    await real.put("/cluster/brokers/5", encode_registration(OWN))
    assert await read_registration(session, 5) == OWN
    await session.set("/cluster/brokers/5", b"nonsense")
    with pytest.raises(Unreadable):
        await read_registration(session, 5)


@pytest.mark.requirement("RREG-24")
async def test_a_registration_does_not_count_under_a_controller_that_knows_of_none(real: RealLab) -> None:
    """One of Apache Kafka writes no note before it elects others. Without a controller the registration counts."""
    session = (await real.seat()).session
    await real.put("/cluster/brokers/5", encode_registration(OWN))
    await real.put("/controller", encode_controller(7, 0))
    assert await read_registration(session, 5) is None
    await real.put("/cluster/controllers/7", b"")
    assert await read_registration(session, 5) == OWN
    await session.delete("/controller")
    assert await read_registration(session, 5) == OWN
