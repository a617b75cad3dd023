"""Offsets that clients commit with version 0 are znodes below `/consumers`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from klamm.controller.values import StoreRefused
from klamm.protocol.nouns import TopicPartition
from klamm.tests.harness.tree import Tree
from klamm.tests.zk.labs import SESSION_MS
from klamm.zk.admin import AdminZk
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
async def session(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    one = ZkSession(zookeeper + chroot, SESSION_MS)
    await one.start(SESSION_MS)
    yield one
    await one.stop()


async def test_an_offset_is_decimal_text_below_its_group(session: ZkSession) -> None:
    await AdminZk(session).write_consumer_offsets("g", {T0: 42})
    node = await session.get("/consumers/g/offsets/t/0")
    assert node is not None
    assert node.data == b"42"
    parent = await session.get("/consumers/g/offsets")
    assert parent is not None
    assert not parent.data


async def test_offsets_are_read_in_the_requested_order_and_those_that_are_not_there_are_none(session: ZkSession) -> None:
    admin = AdminZk(session)
    await admin.write_consumer_offsets("g", {T0: 1, U0: 3})
    assert await admin.read_consumer_offsets("g", [U0, T1, T0]) == [3, None, 1]
    assert await admin.read_consumer_offsets("other", [T0]) == [None]
    assert await admin.read_consumer_offsets("g", []) == []


async def test_new_and_old_offsets_are_written_together(session: ZkSession) -> None:
    admin = AdminZk(session)
    await admin.write_consumer_offsets("g", {T0: 1})
    many = {TopicPartition("t", index): index + 10 for index in range(700)}
    await admin.write_consumer_offsets("g", many)
    assert await admin.read_consumer_offsets("g", list(many)) == list(many.values())


async def test_of_two_first_writes_at_once_the_later_one_counts(session: ZkSession) -> None:
    admin = AdminZk(session)
    await asyncio.gather(admin.write_consumer_offsets("g", {T0: 1}), admin.write_consumer_offsets("g", {T0: 2}))
    assert await admin.read_consumer_offsets("g", [T0]) == [2]


async def test_an_offset_that_may_not_be_written_is_an_error_and_is_not_written(session: ZkSession, zookeeper: str, chroot: str) -> None:
    admin = AdminZk(session)
    await admin.write_consumer_offsets("g", {T0: 1})
    tree = Tree(zookeeper, chroot)
    tree.client.set_acls("/consumers/g/offsets/t/0", [make_acl("world", "anyone", read=True)])
    tree.close()
    with pytest.raises(ZkError) as refused:
        await admin.write_consumer_offsets("g", {T0: 2})
    assert refused.value.code == NoAuthError.code
    assert await admin.read_consumer_offsets("g", [T0]) == [1]


async def test_data_that_is_no_number_is_no_offset(session: ZkSession) -> None:
    await session.create("/consumers/g/offsets/t/0", b"x", makepath=True)
    assert await AdminZk(session).read_consumer_offsets("g", [T0]) == [None]


@pytest.mark.parametrize("group_id", ["", ".", "a//b", "\x01"])
async def test_offsets_of_a_group_whose_name_cannot_be_in_a_path_are_refused(session: ZkSession, group_id: str) -> None:
    admin = AdminZk(session)
    with pytest.raises(StoreRefused):
        await admin.write_consumer_offsets(group_id, {T0: 1})
    with pytest.raises(StoreRefused):
        await admin.read_consumer_offsets(group_id, [T0])
