"""A broker that registers with the controller looks for it, and keeps what it found (RREG-9)."""

from __future__ import annotations

import pytest

from klamm.controller.values import StoreLost
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.request_registration.controller_finder import ControllerFinder
from klamm.zk.find_controller import ElectedController

OWN = (Endpoint("CLIENTS", "own", 1, 0), Endpoint("BROKERS", "own", 2, 0))
THEIRS = (Endpoint("BROKERS", "their", 4, 0), Endpoint("CLIENTS", "their", 3, 0))


class ZooKeeper:
    """What `/controller` and the registrations say, and how often they were read."""

    def __init__(self, found: ElectedController | None) -> None:
        self.found: ElectedController | Exception | None = found
        self.reads = 0
        self.elected = -1
        """What the watch of `/controller` has shown."""

    async def read(self) -> ElectedController | None:
        self.reads += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def finder(zookeeper: ZooKeeper, taken_part: list[str] | None = None) -> ControllerFinder:
    """Of broker 5. `taken_part` gets an entry when the broker takes part in the election."""
    noted = [] if taken_part is None else taken_part
    return ControllerFinder(
        BrokerIdentity(5, "c"), "BROKERS", zookeeper.read, lambda: OWN, SYSTEM_CLOCK,
        lambda: noted.append("takes part"), lambda: zookeeper.elected,
    )


@pytest.mark.requirement("RREG-9")
async def test_controller_is_looked_up_once_and_again_when_it_was_forgotten() -> None:
    zookeeper = ZooKeeper(ElectedController(7, THEIRS))
    one = finder(zookeeper)
    assert [await one.look() for _ in range(3)] == [THEIRS[0]] * 3
    assert (zookeeper.reads, one.controller_id) == (1, 7)
    zookeeper.found = ElectedController(5, ())
    one.forget()
    assert one.endpoint is None
    assert await one.look() == OWN[1], "this broker is the controller: it knows where it listens before it is registered"
    assert zookeeper.reads == 2


@pytest.mark.requirement("RREG-9")
async def test_controller_is_looked_up_again_when_the_watch_shows_another_one_and_kept_while_zookeeper_cannot_be_read() -> None:
    zookeeper = ZooKeeper(ElectedController(7, THEIRS))
    one = finder(zookeeper)
    zookeeper.elected = 7
    assert [await one.look() for _ in range(2)] == [THEIRS[0]] * 2 and zookeeper.reads == 1
    zookeeper.found, zookeeper.elected = StoreLost("gone"), 5
    assert await one.look() == THEIRS[0]
    zookeeper.found = ElectedController(5, ())
    assert await one.look() == OWN[1]
    zookeeper.elected = -1
    assert await one.look() == OWN[1] and zookeeper.reads == 3


@pytest.mark.requirement("RREG-9")
@pytest.mark.parametrize("found", [None, ElectedController(7, ()), ElectedController(7, THEIRS[1:]), StoreLost("gone")])
async def test_controller_that_cannot_be_found_is_looked_for_each_time(found: ElectedController | Exception | None) -> None:
    zookeeper = ZooKeeper(None)
    zookeeper.found = found
    one = finder(zookeeper)
    assert [await one.look() for _ in range(2)] == [None, None]
    assert zookeeper.reads == 2
    zookeeper.found = ElectedController(7, THEIRS)
    assert await one.look() == THEIRS[0]


async def test_controller_without_an_endpoint_for_the_listener_is_named() -> None:
    zookeeper = ZooKeeper(ElectedController(7, (*THEIRS[1:], Endpoint("ADMIN", "their", 5, 0))))
    one = finder(zookeeper)
    assert await one.look() is None
    assert one.lacks == "controller 7 has no endpoint for listener BROKERS, only for ADMIN, CLIENTS"
    zookeeper.found = ElectedController(7, ())  # its registration cannot be read
    assert (await one.look(), one.lacks) == (None, "")
    zookeeper.found = ElectedController(7, THEIRS)
    assert (await one.look(), one.lacks) == (THEIRS[0], "")


async def test_broker_takes_part_in_the_election_when_there_is_no_controller_or_it_is_registered() -> None:
    taken_part: list[str] = []
    zookeeper = ZooKeeper(ElectedController(7, THEIRS))
    one = finder(zookeeper, taken_part)
    await one.look()
    assert taken_part == []
    one.forget()
    zookeeper.found = None
    assert await one.look() is None
    one.take_part()
    assert taken_part == ["takes part"]
    registered = finder(zookeeper, taken_part)
    registered.take_part()
    assert len(taken_part) == 2


@pytest.mark.parametrize("registered", [(), OWN, OWN[:1]])
async def test_own_id_is_left_from_a_former_life_where_no_other_endpoint_is_registered(registered: tuple[Endpoint, ...]) -> None:
    taken_part: list[str] = []
    one = finder(ZooKeeper(ElectedController(5, registered)), taken_part)
    assert await one.look() == OWN[1]
    assert taken_part == ["takes part"]


@pytest.mark.requirement("RREG-3")
async def test_other_broker_with_the_own_id_is_tried_before_its_place_as_controller_is_taken() -> None:
    taken_part: list[str] = []
    one = finder(ZooKeeper(ElectedController(5, THEIRS)), taken_part)
    for _ in range(3):
        assert await one.look() == THEIRS[0]
        one.id_in_use()
        one.forget()
    assert taken_part == []
    assert await one.look() == THEIRS[0]
    one.forget()  # it does not respond
    assert await one.look() == OWN[1]
    assert taken_part == ["takes part"]
