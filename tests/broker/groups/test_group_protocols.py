"""Which members may be in one group, which protocol they use, and what the leader learns of them."""

from __future__ import annotations

import pytest

from klamm.broker.groups.group import Group
from klamm.broker.groups.log_records import GroupKey, read_group, read_key
from klamm.broker.groups.rebalances import Limits
from klamm.broker.groups.states import STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.tests.broker.groups.group_driver import GROUP, GroupDriver


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"kind": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ("sticky",)}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ("sticky", "range")}, E.MEMBER_ID_REQUIRED),
    ],
)
def test_members_need_a_protocol_in_common(options: dict[str, object], error: E) -> None:
    driver = GroupDriver()
    driver.stable(1)
    assert driver.joined(driver.join("b", **options)).error is error  # type: ignore[arg-type]


def test_the_protocol_that_most_members_prefer_is_chosen_among_those_that_all_know() -> None:
    driver = GroupDriver()
    tickets = [driver.new_member(name, protocols=protocols)[1] for name, protocols in (
        ("a", ("range", "sticky", "own")), ("b", ("sticky", "range")), ("c", ("other", "sticky", "range")),
    )]
    driver.advance(10_000)
    assert {driver.joined(ticket).protocol for ticket in tickets} == {"sticky"}


@pytest.mark.parametrize("options", [{"kind": ""}, {"protocols": ()}])
def test_the_first_member_of_a_group_names_its_type_and_a_protocol(options: dict[str, object]) -> None:
    driver = GroupDriver()
    assert driver.joined(driver.join("a", **options)).error is E.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]


def test_a_group_without_members_takes_another_type() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.leave(a)
    _, ticket = driver.new_member("b", kind="connect", protocols=("sessioned",))
    driver.advance(3_000)
    assert driver.joined(ticket)[3:5] == ("connect", "sessioned")
    assert driver.joined(driver.join("c")).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_of_protocols_with_as_many_votes_the_first_in_the_order_of_apache_kafkas_map_is_chosen() -> None:
    driver = GroupDriver()
    tickets = [driver.new_member(name, protocols=protocols)[1] for name, protocols in (
        ("a", ("range", "roundrobin")), ("b", ("roundrobin", "range")),
    )]
    driver.advance(10_000)
    assert {driver.joined(ticket).protocol for ticket in tickets} == {"roundrobin"}


def test_the_leader_and_the_log_have_what_members_sent_for_the_chosen_protocol() -> None:
    driver = GroupDriver()
    a, first = driver.new_member("a", protocols=("range", "sticky"), metadata={"range": b"r", "sticky": b"s"})
    b, _ = driver.new_member("b", protocols=("sticky",), metadata=b"t")
    driver.advance(10_000)
    assert [(each.member_id, each.metadata) for each in driver.joined(first).members] == [(a, b"s"), (b, b"t")]
    driver.sync(a, 1, protocol="sticky")
    (value,) = [value for key, value, _, _ in driver.log if isinstance(read_key(key), GroupKey)]
    assert value is not None
    assert [each.subscription for each in read_group(value).members] == [b"s", b"t"]


def test_a_move_that_the_table_lacks_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Group(GROUP, 0).move_to(STABLE, 0)


def test_nobody_joins_without_a_protocol_a_rebalance_whose_members_have_all_gone() -> None:
    driver = GroupDriver(Limits(initial_delay_ms=3_000))
    member_id, _ = driver.new_member("a")
    assert driver.leave(member_id) is E.NONE
    assert driver.joined(driver.join("b", protocols=(), version=2)).error is E.INCONSISTENT_GROUP_PROTOCOL
    ticket = driver.join("c", version=2)
    driver.advance(60_000)
    assert driver.joined(ticket).error is E.NONE
