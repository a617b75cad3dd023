"""The groups and transactional ids of the coordinators in one process: methods of `BrokerControl`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from klamm.broker.groups.group import Group
from klamm.broker.transactions.transaction import Transaction
from klamm.control import views
from klamm.control.bodies import MemberBody
from klamm.control.json_object import JsonObject
from klamm.control.own_brokers import OwnBrokers
from klamm.control.refusal import Refused
from klamm.server.broker_server import BrokerServer

__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")


class Coordinators:
    """The groups and transactional ids of the coordinators among the running brokers."""

    def __init__(self, cluster: OwnBrokers) -> None:
        self._cluster = cluster

    async def groups(self) -> list[JsonObject]:
        """All groups that the coordinators among the running brokers have."""
        return [views.group(broker.id, group) for broker, group in self._groups()]

    async def group(self, name: str) -> JsonObject:
        """A group."""
        broker, group = self._group(name)
        return views.group(broker.id, group)

    async def expire_members(self, name: str, body: MemberBody) -> JsonObject:
        """Let the session of a member, or of all members, time out now: their group removes them and rebalances."""
        broker, group = self._group(name)
        members = [each for each in group.members if body.member in (None, each)]
        if not members:
            raise Refused(f"group {name!r} has no member {body.member!r}" if body.member else f"group {name!r} has no members", 404)
        broker.services.groups.end_sessions(name, members)
        return {"expired": members}

    async def rebalance(self, name: str) -> JsonObject:
        """Let a group rebalance now."""
        broker, group = self._group(name)
        broker.services.groups.begin_rebalance(name)
        return views.group(broker.id, group)

    def _group(self, name: str) -> tuple[BrokerServer, Group]:
        return _first(((broker, each) for broker, each in self._groups() if each.group_id == name), f"group {name!r}")

    def _groups(self) -> Iterator[tuple[BrokerServer, Group]]:
        return ((broker, group) for broker in self._started() for group in broker.services.groups.groups())

    async def transactions(self) -> list[JsonObject]:
        """All transactional ids that the coordinators among the running brokers have."""
        return [views.transaction(broker.id, each) for broker, each in self._transactions()]

    async def transaction(self, name: str) -> JsonObject:
        """A transactional id."""
        broker, transaction = self._transaction(name)
        return views.transaction(broker.id, transaction)

    async def expire_transaction(self, name: str) -> JsonObject:
        """Let the time-out of the open transaction of an id be over now: its coordinator aborts it and fences the producer."""
        broker, transaction = self._transaction(name)
        before = transaction.state.text
        if not broker.services.transactions.time_out(name):
            raise Refused(f"transactional id {name!r} is {before}: it has no transaction that can be aborted now", 409)
        return views.transaction(broker.id, transaction)

    def _transaction(self, name: str) -> tuple[BrokerServer, Transaction]:
        found = ((broker, each) for broker, each in self._transactions() if each.transactional_id == name)
        return _first(found, f"transactional id {name!r}")

    def _transactions(self) -> Iterator[tuple[BrokerServer, Transaction]]:
        return ((broker, each) for broker in self._started() for each in broker.services.transactions.transactions())

    def _started(self) -> Iterator[BrokerServer]:
        return (broker for broker in self._cluster.brokers if broker.started)


def _first(found: Iterator[tuple[BrokerServer, T]], what: str) -> tuple[BrokerServer, T]:
    """The first that was found, with its coordinator. Raises Refused."""
    first = next(found, None)
    if first is None:
        raise Refused(f"no running broker has {what}", 404)
    return first
