"""A producer of chaos knows how many producer ids and epochs it has written under."""

from __future__ import annotations

import json

import pytest

from klamm.chaos.clients.producers import epochs_of


@pytest.mark.parametrize(
    ("eos", "count"),
    [
        ({"producer_id": -1, "producer_epoch": -1, "epoch_cnt": 0}, 0),
        ({"producer_id": 7, "producer_epoch": 0, "epoch_cnt": 1}, 1),
        ({"producer_id": 7, "producer_epoch": 1, "epoch_cnt": 1}, 2),
        ({"producer_id": 8, "producer_epoch": 0, "epoch_cnt": 2}, 2),
    ],
    ids=["none yet", "the first", "the epoch is raised", "another producer id"],
)
def test_epochs_are_counted_from_what_librdkafka_says(eos: dict[str, int], count: int) -> None:
    assert epochs_of(json.dumps({"eos": eos})) == count
    assert epochs_of("{}") == 0
