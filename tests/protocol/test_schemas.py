from __future__ import annotations

import difflib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import klamm.schemas
from klamm.cli.shell.failures import one_line
from klamm.protocol import messages, schema
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.schema import NoDefinitions, Versions, attribute_name
from klamm.schemas import packing
from klamm.tests.protocol.layouts import FILE, layouts

OURS = sorted(Path(str(klamm.schemas.__file__)).parent.glob("*.json"))


def test_no_message_grew_or_changed() -> None:
    """Breaks when a definition changes, ours or one inside a new kafka-python: look at who makes and reads that message, then record it."""
    recorded = FILE.read_text(encoding="utf-8")
    assert layouts() == recorded, "\n".join(difflib.unified_diff(recorded.splitlines(), layouts().splitlines(), lineterm="", n=1))


def test_ours_are_those_that_kafka_python_lacks_and_the_drafts() -> None:
    names = {path.stem for path in OURS}
    theirs = schema.kafka_folder()
    lacked = {
        api.name + suffix
        for api in messages.APIS.values()
        for suffix in ("Request", "Response")
        if not (theirs / f"{api.name}{suffix}.json").exists()
    }
    assert names - lacked == {
        "ApiVersionsRequest", "DeleteGroupsResponse", "TxnOffsetCommitRequest", "TxnOffsetCommitResponse",
        "BrokerRegistrationChangeRecord", "ConfigRecord", "DescribeLogDirsResponse", "ElectLeadersRequest", "ElectLeadersResponse",
        "FenceBrokerRecord", "GroupMetadataKey", "GroupMetadataValue", "OffsetCommitKey", "OffsetCommitValue",
        "PartitionChangeRecord", "PartitionRecord", "RegisterBrokerRecord", "RemoveTopicRecord", "RequestHeader", "ResponseHeader",
        "TopicRecord", "TransactionLogKey", "TransactionLogValue", "UnfenceBrokerRecord", "UnregisterBrokerRecord",
    }
    assert lacked <= names


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_ours_are_well_formed(path: Path) -> None:
    spec = json.loads(path.read_text(encoding="utf-8"))
    assert spec["name"] == path.stem
    kinds = {
        "Request": "request", "Response": "response", "Record": "metadata", "Header": "header", "Key": "coordinator-key",
        "Value": "coordinator-value",
    }
    assert [spec["type"]] == [kind for suffix, kind in kinds.items() if path.stem.endswith(suffix)]
    allowed = {
        "name",
        "type",
        "versions",
        "nullableVersions",
        "taggedVersions",
        "tag",
        "default",
        "ignorable",
        "entityType",
        "mapKey",
        "fields",
        "flexibleVersions",
    }

    def visit(fields: list[dict[str, Any]]) -> None:
        for field in fields:
            assert set(field) <= allowed, field
            visit(field.get("fields", []))

    visit(spec["fields"])
    for common in spec.get("commonStructs", []):
        visit(common["fields"])
    loaded = schema.load(path.stem)
    assert loaded.root.name == path.stem
    assert not loaded.valid.low > loaded.valid.high


def test_structures_are_reached_from_their_message() -> None:
    for api in messages.APIS.values():
        for suffix in ("Request", "Response"):
            kind = messages.message_type(api.name + suffix)
            for name, struct in kind.schema.structs.items():
                if struct is not kind.schema.root:
                    assert getattr(kind.top, name)._fields == tuple(field.attribute for field in struct.fields)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("TopicId", "topic_id"),
        ("timeoutMs", "timeout_ms"),
        ("isKRaftController", "is_k_raft_controller"),
        ("V0Host", "v0_host"),
        ("Isr", "isr"),
        ("NewIsrWithEpochs", "new_isr_with_epochs"),
        ("SubscribedTopicRegex", "subscribed_topic_regex"),
    ],
)
def test_names_in_python(name: str, wanted: str) -> None:
    assert attribute_name(name) == wanted


@pytest.mark.parametrize(("text", "low", "high"), [("0+", 0, 32767), ("3", 3, 3), ("1-2", 1, 2), ("none", 1, 0), (None, 1, 0)])
def test_version_ranges(text: str | None, low: int, high: int) -> None:
    assert Versions.parse(text) == (low, high)
    assert (low in Versions.parse(text)) == (low <= high)
    assert Versions.parse(text).__contains__("0") is False


def test_later_versions_of_kafka_pythons_files_are_cut_off() -> None:
    newest = {"ProduceRequest": 13, "FetchRequest": 18, "CreateAclsRequest": 3, "MetadataRequest": 13}
    for name, version in newest.items():
        messages.message_type(name).decoder(version)
        with pytest.raises(LocalProtocolError):
            messages.message_type(name).decoder(version + 1)
    for version in range(3):  # newer files no longer count these as valid
        messages.message_type("ProduceRequest").decoder(version)


@pytest.mark.parametrize(
    ("kafka", "missing"), [(False, "it is not installed"), (True, "the installed one has no protocol/schemas/resources")]
)
def test_a_checkout_without_kafkas_definitions_says_so_in_one_line(tmp_path: Path, kafka: bool, missing: str) -> None:
    (tmp_path / "klamm").symlink_to(Path(str(klamm.schemas.__file__)).parents[1])
    if kafka:  # one before 3.0
        (tmp_path / "kafka" / "protocol").mkdir(parents=True)
        (tmp_path / "kafka" / "__init__.py").touch()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from klamm.protocol.messages import FetchRequest"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    line = f"a checkout of Klamm needs the message definitions of kafka-python 3.0 (`make serve` installs it): {missing}"
    assert ran.stderr.splitlines()[-1] == f"klamm.protocol.schema.NoDefinitions: {line}"
    assert one_line(NoDefinitions(line)) == line


def test_packed_definitions_are_kafkas_without_comments_and_descriptions() -> None:
    text = schema.packed()
    assert "//" not in text
    assert '"about"' not in text
    held = packing.unpacked(text)
    assert set(held) == {path.stem for path in schema.kafka_folder().glob("*.json")} - {path.stem for path in OURS}
    for name, definition in held.items():
        every = Versions(0, schema.NO_TOP)
        assert schema.parse(json.loads(definition), every) == schema.load(name, every), name
