"""The files of `klamm reassign-partitions`: what may stand in them, and the line that says what may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from klamm.cli.tools.files import BadFile, Move, as_json, read_reassignment, read_topics
from klamm.protocol.nouns import TopicPartition


def written(folder: Path, content: Any) -> Path:
    file = folder / "file.json"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return file


def entry(**changes: Any) -> dict[str, Any]:
    value = {"topic": "t", "partition": 0, "replicas": [1, 2], **changes}
    return {"version": 1, "partitions": [{name: each for name, each in value.items() if each is not ...}]}


def test_entries_keep_their_order_and_the_order_of_their_replicas(tmp_path: Path) -> None:
    content = {
        "partitions": [{"topic": "b", "partition": 1, "replicas": [3, 1], "more": 5}, {"topic": "a", "partition": 0, "replicas": [0]}]
    }
    moves = read_reassignment(written(tmp_path, content))
    assert list(moves.items()) == [
        (TopicPartition("b", 1), Move((3, 1), ("any", "any"))), (TopicPartition("a", 0), Move((0,), ("any",)))
    ]


def test_log_dirs_are_read_for_each_replica(tmp_path: Path) -> None:
    moves = read_reassignment(written(tmp_path, entry(log_dirs=["/data/1", "any"])))
    assert moves[TopicPartition("t", 0)].log_dirs == ("/data/1", "any")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{", "is not JSON: Expecting property name"),
        (b"", "is not JSON: Expecting value"),
        (b"\xff\xfe{", "is not JSON: "),
        (b"[" * 100_000, "is not JSON: "),
        ([1], "is not a JSON object with a list"),
        ({"version": 2, "partitions": []}, "Not supported version field value 2"),
        ({"version": "1", "partitions": []}, 'Not supported version field value "1"'),
        ({"version": True, "partitions": []}, "Not supported version field value true"),
        ({"version": 1}, 'has no list "partitions"'),
        ({"partitions": {"topic": "t"}}, 'has no list "partitions"'),
        ({"partitions": []}, "Partition reassignment list cannot be empty"),
        ({"partitions": ["t-0"]}, "entry 1 of partitions is not an object"),
        (entry(topic=...), 'entry 1 of partitions has no string "topic"'),
        (entry(topic=""), 'entry 1 of partitions has no string "topic"'),
        (entry(topic=5), 'entry 1 of partitions has no string "topic"'),
        (entry(partition=...), "entry 1 of partitions has nothing as partition, which is not a number of 0 or more"),
        (entry(partition="0"), 'entry 1 of partitions has "0" as partition'),
        (entry(partition=-1), "entry 1 of partitions has -1 as partition"),
        (entry(partition=0.5), "entry 1 of partitions has 0.5 as partition"),
        (entry(partition=True), "entry 1 of partitions has true as partition"),
        (entry(partition=2**31), "entry 1 of partitions has 2147483648 as partition"),
        (entry(replicas=...), 'partition t-0 has no list "replicas"'),
        (entry(replicas=1), 'partition t-0 has no list "replicas"'),
        (entry(replicas=[]), "Partition replica list cannot be empty: partition t-0"),
        (entry(replicas=[1, 1]), "partition t-0 contains multiple entries for 1"),
        (entry(replicas=[1, -1]), "partition t-0 has -1 as broker id"),
        (entry(replicas=["1"]), 'partition t-0 has "1" as broker id'),
        (entry(replicas=[None]), "partition t-0 has nothing as broker id"),
        (entry(log_dirs=["any"]), "Size of replicas list [1, 2] is different from size of log dirs list ['any'] for partition t-0"),
        (entry(log_dirs="any"), '"log_dirs" of partition t-0 is not a list of strings'),
        (entry(log_dirs=[1, 2]), '"log_dirs" of partition t-0 is not a list of strings'),
        (entry(log_dirs=["data", "any"]), "partition t-0 has the log directory 'data', which is neither an absolute path nor 'any'"),
        ({"partitions": entry()["partitions"] * 2}, "Partition reassignment contains duplicate topic partitions: t-0"),
    ],
)
def test_a_bad_reassignment_is_one_line_that_names_the_file_and_the_place(tmp_path: Path, content: Any, line: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(BadFile) as bad:
        read_reassignment(file)
    assert str(bad.value).startswith(str(file))
    assert line in str(bad.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"version": 1}, 'has no list "topics"'),
        ({"topics": []}, "List of topics to reassign cannot be empty"),
        ({"topics": [{"topic": "t"}, {"topic": "t"}]}, "List of topics to reassign contains duplicate entries: t"),
        ({"topics": [{"name": "t"}]}, 'entry 1 of topics has no string "topic"'),
        ({"version": 9, "topics": [{"topic": "t"}]}, "Not supported version field value 9"),
    ],
)
def test_a_bad_list_of_topics_is_one_line(tmp_path: Path, content: Any, line: str) -> None:
    with pytest.raises(BadFile, match=line):
        read_topics(written(tmp_path, content))


def test_topics_keep_their_order(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path, {"topics": [{"topic": "b"}, {"topic": "a"}]})) == ["b", "a"]


def test_what_is_printed_can_be_read_again_and_is_what_kafka_prints(tmp_path: Path) -> None:
    replicas = {TopicPartition("t", 10): (1,), TopicPartition("t", 2): (2, 1), TopicPartition("a", 0): (0,)}
    text = as_json(replicas)
    assert text == (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[0],"log_dirs":["any"]},'
        '{"topic":"t","partition":2,"replicas":[2,1],"log_dirs":["any","any"]},{"topic":"t","partition":10,"replicas":[1],"log_dirs":["any"]}]}'
    )
    assert {partition: move.replicas for partition, move in read_reassignment(written(tmp_path, text.encode())).items()} == replicas


def test_text_behind_the_first_value_is_ignored_as_in_kafka(tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text('{"version":1,"topics":[{"topic":"t"}]}\nProposed partition reassignment\n')
    assert read_topics(file) == ["t"]
    file.write_text('1 {"topics":[]}')
    with pytest.raises(BadFile, match="is not JSON: Extra data"):
        read_topics(file)
