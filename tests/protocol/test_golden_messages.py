"""Kafka's own serializer is the judge: every instance of every message, in every version, the bad ones too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from klamm.protocol import json_form, messages
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.tests.protocol import golden
from klamm.tests.protocol.good_messages import GOOD

INSTANCES = 8497


def fault(row: dict[str, Any]) -> str | None:
    """What is wrong with how we treat one instance; None when it is right."""
    name, version, case = row["name"], row["version"], row["case"].partition(":")[0]
    if case in GOOD or case == "unknown_tags":
        return fault_of_good(row)
    if case == "ignored":
        written = messages.encode(json_form.from_json(name, version, row["json"]), version).hex()
        return None if written == row["hex"] else f"written as {written}"
    assert "error" in row
    try:
        if case in ("absent", "null"):
            messages.encode(json_form.from_json(name, version, row["json"]), version)
        else:
            messages.decode(name, version, bytes.fromhex(row["hex"]))
    except LocalProtocolError:
        return None if case in ("absent", "null") else "called our own fault"
    except RemoteProtocolError:
        return None if case not in ("absent", "null") else "called a fault of the peer"
    return "accepted"


def fault_of_good(row: dict[str, Any]) -> str | None:
    name, version, data = row["name"], row["version"], bytes.fromhex(row["hex"])
    wanted = bytes.fromhex(row.get("hex_without", row["hex"]))
    message, end = messages.decode(name, version, data)
    if end != len(data):
        return f"ends at {end} of {len(data)}"
    if json_form.to_json(message, version) != row["json"]:
        return f"read as {json_form.to_json(message, version)}"
    if messages.encode(message, version) != wanted:
        return f"written again as {messages.encode(message, version).hex()}"
    made = json_form.from_json(name, version, row["json"])
    if made != message:
        return f"made as {made}"
    behind, end = messages.decode(name, version, b"\x01\x02\x03" + data + b"\xff\xff", 3)
    return None if (behind, end) == (message, 3 + len(data)) else "depends on what surrounds it"


def test_every_instance_is_right() -> None:
    tried: Counter[str] = Counter()
    wrong = []
    for row in golden.lines("messages.jsonl.gz"):
        tried[row["case"].partition(":")[0]] += 1
        found = fault(row)
        if found is not None:
            wrong.append(f"{row['name']} {row['version']} {row['case']}: {found}")
    print(f"instances tried {tried.total()}, right {tried.total() - len(wrong)}, wrong {len(wrong)}; by case {dict(tried)}")
    assert wrong == []
    assert tried.total() == INSTANCES


@pytest.mark.requirement("R704-17")
def test_every_metadata_record_is_right() -> None:
    rows = list(golden.lines("metadata_records.jsonl.gz"))
    newest = {
        "RegisterBrokerRecord": 3, "UnregisterBrokerRecord": 0, "TopicRecord": 0, "PartitionRecord": 2, "ConfigRecord": 0,
        "PartitionChangeRecord": 2, "FenceBrokerRecord": 0, "UnfenceBrokerRecord": 0, "RemoveTopicRecord": 0,
        "BrokerRegistrationChangeRecord": 2,
    }
    assert {(row["name"], row["version"]) for row in rows} == {(name, v) for name, last in newest.items() for v in range(last + 1)}
    assert [(row["name"], row["version"], row["case"], found) for row in rows if (found := fault(row)) is not None] == []


@pytest.mark.requirement("R704-17")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_recovery_mark_of_a_metadata_record_is_a_tag_that_is_left_out_by_default(version: int) -> None:
    record = messages.PartitionRecord(directories=[])
    recovered, recovering = messages.encode(record, version), messages.encode(record._replace(leader_recovery_state=1), version)
    assert recovering[:-4] == recovered[:-1] and recovering[-4:] == bytes((1, 0, 1, 1)), "one tag: 0, of one byte, as a BOOLEAN true is"
    change = messages.PartitionChangeRecord()
    assert messages.encode(change, version)[-1:] == b"\0"
    for mark in (0, 1):
        assert messages.encode(change._replace(leader_recovery_state=mark), version)[-4:] == bytes((1, 5, 1, mark))


def test_each_api_and_version_was_tried() -> None:
    tried = {(row["name"], row["version"]) for row in golden.lines("messages.jsonl.gz")}
    for api in messages.APIS.values():
        if not api.draft:
            for version in range(api.min_version, api.max_version + 1):
                assert {(f"{api.name}Request", version), (f"{api.name}Response", version)} <= tried
