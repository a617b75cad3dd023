"""Topics and configs of the metadata log: which reads and writes have records, as values, without a store."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.metadata_log import logged_topics
from klamm.controller.metadata_log.logged_configs import LoggedConfigs
from klamm.controller.metadata_log.logged_topics import LoggedTopics
from klamm.controller.values import Assignment, ConfigEntity, LeaderAndIsr, StateWrite, StoredTopic, WriteOutcome
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.metadata_records import decode_value

ID = bytes(range(16))
STATE = LeaderAndIsr(1, 3, (1, 2))
OK, LOST = WriteOutcome.OK, WriteOutcome.BAD_VERSION


def topics(partitions: int) -> LoggedTopics:
    """A topic that is in the log; no partition has a state."""
    logged = LoggedTopics()
    assert len(logged.read("t", StoredTopic(ID, {p: Assignment((1, 2)) for p in range(partitions)}))) == 1 + partitions
    return logged


def written(logged: LoggedTopics, partitions: range, outcomes: list[WriteOutcome]) -> list[list[int]]:
    """The partitions that each batch has a record of."""
    writes = [StateWrite("t", p, STATE._replace(partition_epoch=1), 0) for p in partitions]
    return [[index for index, _, _ in part.entries()] for part in logged.states_written(writes, outcomes)]


def test_of_several_states_those_are_logged_whose_write_took_hold() -> None:
    assert written(topics(4), range(4), [OK, LOST, OK, LOST]) == [[0, 2]]
    assert written(topics(2), range(2), [LOST, LOST]) == []


@pytest.mark.parametrize(("partitions", "batches"), [(2, [[0, 1]]), (3, [[0, 1, 2]]), (7, [[0, 1, 2], [3, 4, 5], [6]])])
def test_states_become_batches_of_so_many_records_and_none_is_left_out(
    partitions: int, batches: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_topics, "MOST_RECORDS", 3)
    assert written(topics(partitions), range(partitions), [OK] * partitions) == batches


def test_partitions_that_are_missing_in_a_znode_that_was_read_are_not_gone() -> None:
    logged = topics(3)
    assert logged.read("t", StoredTopic(ID, {0: Assignment((1, 2))})) == []
    assert written(logged, range(3), [OK] * 3) == [[0, 1, 2]]
    assert logged.read("t", StoredTopic(ID, {p: Assignment((1, 2)) for p in range(3)})) == []


def test_a_state_that_is_read_is_logged_if_it_is_another_one_also_if_it_is_gone() -> None:
    logged = topics(1)
    assert len(logged.states_read([TopicPartition("t", 0)], [STATE])) == 1
    assert logged.states_read([TopicPartition("t", 0)], [STATE._replace()]) == []
    assert len(logged.states_read([TopicPartition("t", 0)], [None])) == 1
    assert logged.states_read([TopicPartition("t", 0)], [None]) == []
    assert logged.states_read([TopicPartition("no", 0)], [STATE]) == []


def test_of_the_configs_of_an_entity_only_what_has_changed_is_logged() -> None:
    logged, entity = LoggedConfigs(), ConfigEntity("topics", "t")

    def changed(**properties: str) -> dict[str, str | None]:
        records: list[Any] = [decode_value(value)[0] for value in logged.stored(entity, properties)]
        return {record.name: record.value for record in records}

    assert changed() == {}
    assert changed(a="1", b="2") == {"a": "1", "b": "2"}
    assert changed(a="1", b="2") == {}
    assert changed(a="1", c="3") == {"b": None, "c": "3"}
    assert (changed(), logged.entities()) == ({"a": None, "c": None}, [])
