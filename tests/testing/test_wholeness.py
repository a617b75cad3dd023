"""What a cluster lacks, by the reports of its brokers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from klamm.control.refusal import Refused
from klamm.control.wholeness import Report, missing, until_whole
from klamm.protocol.nouns import TopicPartition
from klamm.server.local.changed_configs import Announced

LAST = Announced(7, {3: 4, 4: -1})
WHOLE = {
    1: Report(1, 10, 1, [], 7, {3: 4, 4: -1}, {1: 10, 2: 20}),
    2: Report(2, 20, 1, [], 9, None),
}


def changed(broker: int, **values: Any) -> dict[int, Report]:
    return WHOLE | {broker: msgspec.structs.replace(WHOLE[broker], **values)}


def test_a_whole_cluster_lacks_nothing() -> None:
    assert missing(WHOLE, [1, 2], LAST) == []


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ({1: WHOLE[1]}, "broker 2 does not respond"),
        (changed(1, registered=None), "there is no controller"),
        (changed(2, registered={1: 10, 2: 20}), "there is more than one controller"),
        (changed(2, epoch=21), "the controller does not know the present registration of all brokers"),
        (changed(2, controller=2), "broker 2 shows controller 2"),
        (changed(1, configs=6), "broker 1 has not processed the last changes of configs and ACLs"),
        (changed(1, acls={3: 3, 4: -1}), "broker 1 has not processed the last changes of configs and ACLs"),
        (changed(2, lacks=["broker 2 loads groups"]), "broker 2 loads groups"),
    ],
)
def test_each_thing_that_is_missing_is_named(reports: dict[int, Report], text: str) -> None:
    assert text in missing(reports, [1, 2], LAST)


async def test_preferred_leaders_are_elected_until_they_lead_and_not_before_the_rest_is_whole() -> None:
    partition = TopicPartition("t", 0)
    looks = [changed(2, lacks=["x"]), changed(1, displaced=[partition]), changed(1, displaced=[partition]), WHOLE]
    elected = []

    async def look() -> dict[int, Report]:
        return looks.pop(0)

    async def elect(controller: int, partitions: Any) -> None:
        elected.append((controller, [*partitions], len(looks)))

    await until_whole([1, 2], LAST, look, elect)
    assert elected == [(1, [partition], 2), (1, [partition], 1)]


async def test_what_is_missing_at_the_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.control.wholeness.WHOLE_S", 0.02)

    async def look() -> dict[int, Report]:
        return changed(2, lacks=["a", "b", "c"], controller=None)

    async def elect(controller: int, partitions: Any) -> None:
        raise AssertionError("nothing is to be elected")

    with pytest.raises(Refused, match=r"not whole within 0\.02 s: broker 2 shows controller None; a; b; and 1 more"):
        await until_whole([1, 2], LAST, look, elect)
