"""What controllers and brokers say to each other, with awkward values, written by kafka-clients' serializers: read and written alike."""

from __future__ import annotations

from collections import Counter

from klamm.protocol import json_form, messages
from klamm.tests.golden.recording.serializers import newer
from klamm.tests.protocol import golden

INSTANCES = 2746


def _wrong(file: str, tried: Counter[tuple[str, int]]) -> list[str]:
    wrong = []
    for row in golden.lines(file):
        name, version, data = row["name"], row["version"], bytes.fromhex(row["hex"])
        tried[name, version] += 1
        if name == "TxnOffsetCommitRequest":  # Kafka 4.4 has another name for the field
            row["json"]["generationId"] = row["json"].pop("generationIdOrMemberEpoch")
        made = json_form.from_json(name, version, row["json"])
        read, end = messages.decode(name, version, data)
        if end != len(data):
            wrong.append(f"{name} {version} ends at {end} of {len(data)}: {row['hex']}")
        elif json_form.to_json(read, version) != row["json"]:
            wrong.append(f"{name} {version} read as {json_form.to_json(read, version)}, not {row['json']}")
        elif not messages.encode(made, version) == messages.encode(read, version) == data:
            wrong.append(f"{name} {version} written as {messages.encode(made, version).hex()}, not {row['hex']}")
    print(f"instances tried {tried.total()} of {len(tried)} messages and versions, wrong {len(wrong)}")
    return wrong


def test_every_instance_is_read_and_written_as_by_kafka() -> None:
    tried: Counter[tuple[str, int]] = Counter()
    assert _wrong("serializers.jsonl.gz", tried) == []
    assert tried.total() == INSTANCES
    for name in {name for name, _ in tried}:
        api = next(api for api in messages.APIS.values() if name in (f"{api.name}Request", f"{api.name}Response"))
        assert [version for tried_name, version in tried if tried_name == name] == list(range(api.min_version, api.max_version + 1))


def test_every_version_that_only_kafka_4_has_is_read_and_written_as_by_kafka_4() -> None:
    tried: Counter[tuple[str, int]] = Counter()
    assert _wrong("serializers_kafka4.jsonl.gz", tried) == []
    apis = messages.APIS.values()
    assert tried.keys() == {(f"{api.name}{kind}", version) for api in apis for kind in ("Request", "Response") for version in newer(api)}
