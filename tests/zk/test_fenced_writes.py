"""Writes behind the fence: how they are cut into multis, what is repeated when some are bad, which error counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from klamm.controller.values import ControllerMoved, StoreLost, WriteOutcome
from klamm.zk.session.batches import BATCH_BYTES, BATCH_OPERATIONS
from klamm.zk.session.requests import BAD_VERSION, NO_NODE, NODE_EXISTS, NOT_EMPTY, MultiFailed, TooLarge
from klamm.zk.store.fenced_writes import Entry, settle, settle_delete, together, write_entries

CODES = {b"version": BAD_VERSION, b"missing": NO_NODE, b"exists": NODE_EXISTS, b"full": NOT_EMPTY}


class Server:
    """Takes multis; an operation that is one of CODES is bad, one of `huge` makes the multi too large."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.done: list[bytes] = []

    async def send(self, operations: Sequence[bytes]) -> None:
        self.sent.append(list(operations))
        await asyncio.sleep(0)
        if b"huge" in operations:
            raise TooLarge
        for index, operation in enumerate(operations):
            if operation in CODES:
                raise MultiFailed(index, CODES[operation])
        self.done += operations


def entries(*operations: Sequence[bytes]) -> list[Entry]:
    return [Entry(list(of_one)) for of_one in operations]


async def test_outcomes_come_in_the_order_of_the_entries() -> None:
    server = Server()
    written = entries([b"a"], [b"b", b"missing"], [b"c"], [b"version", b"d"], [b"exists"], [b"full"], [b"e"])
    assert await write_entries(server.send, written, settle) == [
        WriteOutcome.OK,
        WriteOutcome.NO_NODE,
        WriteOutcome.OK,
        WriteOutcome.BAD_VERSION,
        WriteOutcome.NODE_EXISTS,
        WriteOutcome.FAILED,
        WriteOutcome.OK,
    ]
    assert sorted(server.done) == [b"a", b"c", b"e"]


async def test_deleting_what_is_not_there_is_fine() -> None:
    assert await write_entries(Server().send, entries([b"missing"], [b"a"], [b"full"]), settle_delete) == [
        WriteOutcome.OK,
        WriteOutcome.OK,
        WriteOutcome.FAILED,
    ]


async def test_one_bad_entry_costs_one_repeat() -> None:
    server = Server()
    await write_entries(server.send, entries([b"a"], [b"missing"], [b"c"]), settle)
    assert server.sent == [[b"a", b"missing", b"c"], [b"a", b"c"]]


async def test_what_stood_before_the_second_bad_entry_goes_by_itself_and_the_rest_in_halves() -> None:
    server = Server()
    await write_entries(server.send, entries([b"missing"], [b"a"], [b"version"], [b"b"], [b"c"], [b"d"]), settle)
    assert server.sent[2:] == [[b"a"], [b"b", b"c"], [b"d"]]


async def test_many_bad_entries_cost_few_repeats() -> None:
    """Half of them are bad: one after the other would take 64 repeats in a row."""
    server = Server()
    outcomes = await write_entries(server.send, entries(*([b"missing"] if n % 2 else [b"%d" % n] for n in range(128))), settle)
    assert outcomes == [WriteOutcome.NO_NODE if n % 2 else WriteOutcome.OK for n in range(128)]
    assert len(set(server.done)) == len(server.done) == 64
    assert sum(map(len, server.sent)) < 128 * 10


async def test_cut_by_the_number_of_operations() -> None:
    """Those of an entry stay together."""
    server = Server()
    await write_entries(server.send, entries(*([b"a", b"b", b"c"] for _ in range(400))), settle)
    assert [len(operations) for operations in server.sent] == [999, 201]
    server = Server()
    await write_entries(server.send, entries(*([b"a"] for _ in range(BATCH_OPERATIONS + 1))), settle)
    assert [len(operations) for operations in server.sent] == [BATCH_OPERATIONS, 1]
    server = Server()
    await write_entries(server.send, entries([b"a"] * (BATCH_OPERATIONS + 1), [b"b"]), settle)
    assert [len(operations) for operations in server.sent] == [BATCH_OPERATIONS + 1, 1], "what is too large by itself goes by itself"


async def test_cut_by_size() -> None:
    server = Server()
    third = bytes(BATCH_BYTES // 3)
    await write_entries(server.send, entries(*([third] for _ in range(7))), settle)
    assert [len(operations) for operations in server.sent] == [3, 3, 1]


async def test_nothing_to_write_sends_nothing() -> None:
    server = Server()
    assert await write_entries(server.send, [], settle) == []
    assert server.sent == []


async def test_what_is_too_large_fails_alone() -> None:
    server = Server()
    outcomes = await write_entries(server.send, entries([b"a"], [b"huge"], [b"missing"], [b"b"]), settle)
    assert outcomes == [WriteOutcome.OK, WriteOutcome.FAILED, WriteOutcome.NO_NODE, WriteOutcome.OK]
    assert sorted(server.done) == [b"a", b"b"]
    assert await write_entries(Server().send, entries([b"a"], [b"huge"]), settle) == [WriteOutcome.OK, WriteOutcome.FAILED]


async def test_a_bad_entry_that_was_made_right_is_sent_again() -> None:
    async def repair(_: Sequence[Entry], entry: Entry, operation: int, __: MultiFailed) -> None:
        entry.operations = [b"repaired" if n == operation else o for n, o in enumerate(entry.operations)]

    server = Server()
    written = entries([b"a", b"missing"], [b"version"], [b"exists"], [b"b"])
    assert await write_entries(server.send, written, repair) == [WriteOutcome.OK] * 4
    assert sorted(server.done) == [b"a", b"b", b"repaired", b"repaired", b"repaired"]


# several at a time


async def fail(problem: Exception, turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    raise problem


@pytest.mark.parametrize("turns", [(0, 5), (5, 0)])
async def test_a_lost_office_counts_more_than_other_errors(turns: tuple[int, int]) -> None:
    """A controller that is deposed resigns; one that lost a write tries again."""
    with pytest.raises(ControllerMoved):
        await together([fail(StoreLost("gone"), turns[0]), fail(ControllerMoved("another"), turns[1])])


async def test_else_the_first_error_counts() -> None:
    with pytest.raises(StoreLost, match="first"):
        await together([fail(StoreLost("first"), 5), fail(StoreLost("second"), 0)])


async def test_all_are_over_when_the_first_error_is_raised() -> None:
    """What is still on its way could be written after whoever asked has gone on."""
    done: list[int] = []

    async def late() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append(1)

    with pytest.raises(StoreLost):
        await together([fail(StoreLost("x"), 0), late()])
    assert done == [1]


async def test_results_come_in_the_order_of_the_steps() -> None:
    begun: list[int] = []

    async def step(n: int) -> int:
        begun.append(n)
        for _ in range(10 - n):
            await asyncio.sleep(0)
        return n

    assert await together(step(n) for n in range(5)) == [0, 1, 2, 3, 4]
    assert begun == [0, 1, 2, 3, 4]
    assert await together([]) == []
