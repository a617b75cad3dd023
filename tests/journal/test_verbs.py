"""`klamm journal tail`, `export` and `verify` on journals of every kind."""

from __future__ import annotations

import base64
import builtins
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from klamm.journal import reading
from klamm.journal.columns import Flag
from klamm.journal.segments import LOCK
from klamm.machine.extras import install_command
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.cli.running import Running, call, run
from klamm.tests.harness.read_only import read_only
from klamm.tests.journal.writing import TinyJournal, simple_exchange

TOPIC_ID = bytes(range(1, 17))


def tail(lake: Path, *arguments: object) -> list[str]:
    said = call("journal", "tail", lake, *arguments)
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout.splitlines()


def seqs(lines: list[str]) -> list[int]:
    return [int(line.split("seq ")[1].split()[0]) for line in lines]


def write(lake: Path) -> None:
    """Rows 1 to 9 of broker 1, 1 and 2 of broker 2."""
    with TinyJournal(lake) as journal:
        simple_exchange(journal)
        topic = messages.CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        creation = messages.CreateTopicsRequest(topics=[topic])
        asked = journal.request(2, ApiKey.CREATE_TOPICS, 7, creation, client_id="admin", client_sw="x/1")
        result = messages.CreateTopicsResponse.CreatableTopicResult(
            name="orders", topic_id=TOPIC_ID, error_code=ErrorCode.TOPIC_ALREADY_EXISTS
        )
        journal.response(2, asked, messages.CreateTopicsResponse(topics=[result]))
        journal.event("partition_state", topic="orders", partition=0, output={"leader": 1}, leader_epoch=3)
        journal.raw(3, 0, b"\0\0\0\5hello")
        journal.event("timer", input={"name": "x"})
        fetched = messages.FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[])
        journal.request(4, ApiKey.FETCH, 13, messages.FetchRequest(topics=[fetched]))
        journal.request(4, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    with TinyJournal(lake, node=2) as journal:
        simple_exchange(journal)


def test_tail_prints_each_frame_decoded_in_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    lines = tail(tmp_path, "--node", 1)
    assert seqs(lines) == [1, 2, 3, 4, 6, 8, 9]
    assert lines[2].startswith("2023-11-14T22:13:20.002000Z  broker 1  seq 3  request in    CreateTopics v7  correlation id 2  ")
    assert "client admin  software x/1" in lines[2]
    assert '"name":"orders"' in lines[2]
    assert "1.000 ms  errors TOPIC_ALREADY_EXISTS  {" in lines[3]
    assert "truncated: the header is cut short  0000000568656c6c6f" in lines[4]


def test_tail_prints_events_where_they_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path)
    lines = tail(tmp_path, "--node", 1, "--events")
    assert seqs(lines) == list(range(1, 10))
    assert lines[4].endswith('partition_state  topic orders  partition 0  leader_epoch 3  output {"leader": 1}')


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--api", "metadata"), [1, 1, 2, 2, 9]), (("--api", "3", "--api", "CreateTopics", "--node", "1"), [1, 2, 3, 4, 9]),
        (("--client", "adm*"), [3, 4]), (("--client", "x/?"), [3]), (("--node", "2"), [1, 2]),
        (("--topic", "orders"), [3, 4, 8]), (("--topic", "orders", "--events"), [3, 4, 5, 8]), (("--topic", "order"), []),
        (("-n", "3", "--node", "1"), [6, 8, 9]), (("-n", "0"), []), (("--api", "999"), []),
    ],
)
def test_tail_prints_only_the_rows_that_are_chosen(tmp_path: Path, filters: tuple[str, ...], found: list[int]) -> None:
    write(tmp_path)
    assert seqs(tail(tmp_path, *filters)) == found


def test_tail_bounds_a_body_unless_it_is_asked_for_all(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        topics = [messages.MetadataRequest.MetadataRequestTopic(name=f"topic-{number}") for number in range(1000)]
        journal.request(1, ApiKey.METADATA, 9, messages.MetadataRequest(topics=topics))
    (short,), (full,) = tail(tmp_path), tail(tmp_path, "--full")
    assert len(short) < 600
    assert short.endswith(" characters)")
    assert "topic-999" in full


def test_names_with_control_characters_are_printed_as_escapes(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "r") as journal:
        journal.request(1, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None), client_id="a\x1b[2J\nb", peer="p\u202e")
        journal.event("k\n", topic="t\x07", input='{"a": "\x1b"}')
    frame, event = tail(tmp_path, "--events")
    assert "client a\\x1b[2J\\nb" in frame
    assert "\\u202e" in frame
    assert "k\\n  topic t\\x07" in event


@pytest.mark.parametrize("command", ["tail", "export", "verify"])
@pytest.mark.parametrize(("folder", "reason"), [("missing", "no such folder"), ("empty", "not a lake: it has no folder `journal`")])
def test_a_folder_that_is_no_lake_is_one_line(tmp_path: Path, command: str, folder: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    said = call("journal", command, tmp_path / folder)
    assert said.returncode == 1
    assert reason in said.stderr
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["tail", "export", "verify"])
def test_a_run_or_a_broker_that_is_not_there_is_one_line_with_those_that_are(tmp_path: Path, command: str) -> None:
    for run_id, node in (("a", 1), ("a", 2), ("b", 3)):
        with TinyJournal(tmp_path, run_id, node) as journal:
            journal.event("timer")
    for chosen, reason in (
        (("--run", "nope"), "no such run: nope; runs: a, b"),
        (("--node", 77), "no journal of broker 77; brokers: 1, 2, 3"),
        (("--run", "b", "--node", 1), "no journal of broker 1 in b; brokers: 3"),
    ):
        said = call("journal", command, tmp_path, *chosen)
        assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm: {reason}\n")


@pytest.mark.parametrize("command", ["journal tail", "journal export", "journal verify", "pipeline run", "pipeline check"])
def test_a_file_is_not_a_lake(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    said = call(*command.split(), tmp_path / "file")
    assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm: {tmp_path / 'file'}: not a folder\n")


def test_an_output_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    write(tmp_path)
    said = call("journal", "export", tmp_path, "-o", "/proc/rows.jsonl")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("klamm: /proc/rows.jsonl: ") and said.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["tail", "export", "verify"])
def test_without_arrow_the_way_out_is_one_line(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journal").mkdir()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow" or name.startswith("klamm.journal.")]:
        monkeypatch.delitem(sys.modules, name)
    importing = builtins.__import__

    def without_arrow(name: str, *rest: Any, **names: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return importing(name, *rest, **names)

    monkeypatch.setattr(builtins, "__import__", without_arrow)
    said = call("journal", command, tmp_path)
    assert (said.returncode, said.stderr) == (1, f"klamm: klamm journal {command} needs pyarrow: {install_command('journal')}\n")


def test_the_commands_import_neither_spark_nor_what_comes_with_it(tmp_path: Path) -> None:
    write(tmp_path)
    code = (
        "import sys\nfrom klamm.cli.main import klamm\n"
        f"for words in (['tail'], ['export'], ['verify']): klamm.main(['journal', *words, {str(tmp_path)!r}], standalone_mode=False)\n"
        "print([name for name in ('pyspark', 'orjson', 'altair') if name in sys.modules], file=sys.stderr)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == "[]\n"


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        for _ in range(2000):
            simple_exchange(journal)
    for command in ("tail", "export"):
        running = Running(tmp_path, "journal", command, tmp_path)
        running.line()
        assert running.process.stdout is not None
        running.process.stdout.close()
        assert (running.ended(), running.stderr) == (0, "")


def test_follow_prints_rows_as_they_are_written_until_ctrl_c(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path)
    for _ in range(8):
        simple_exchange(journal)
    journal.batch()
    running = Running(tmp_path, "journal", "tail", tmp_path, "--follow", "--events")
    assert seqs([running.line() for _ in range(10)]) == list(range(7, 17))
    journal.event("timer")
    journal.roll()
    assert seqs([running.line()]) == [17]
    simple_exchange(journal)
    journal.batch()
    assert seqs([running.line(), running.line()]) == [18, 19]
    running.signal(signal.SIGINT)
    assert (running.rest(), running.ended()) == ("", 0)
    assert "Traceback" not in running.stderr


def test_export_writes_every_row_with_what_its_frame_says(tmp_path: Path) -> None:
    write(tmp_path)
    target = tmp_path / "rows.jsonl"
    said = call("journal", "export", tmp_path, "--node", 1, "-o", target)
    assert (said.returncode, said.stdout) == (0, f"{target}: 9 rows\n")
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(row["table"], row["seq"]) for row in rows] == [("events" if seq in (5, 7) else "frames", seq) for seq in range(1, 10)]
    assert rows[2]["body"]["topics"][0]["name"] == "orders"
    assert base64.b64decode(rows[5]["frame"]) == b"\0\0\0\5hello"
    assert (rows[5]["body"], rows[5]["error"]) == (None, "truncated: the header is cut short")
    assert call("journal", "export", tmp_path, "--node", 1).stdout == target.read_text()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_export_to_parquet_has_the_columns_of_the_journal_and_the_body(tmp_path: Path) -> None:
    write(tmp_path)
    said = call("journal", "export", tmp_path, "--format", "parquet", "-o", tmp_path / "rows", "--node", 1)
    assert (said.returncode, said.stderr) == (0, "")
    frames = pq.read_table(tmp_path / "rows" / "frames.parquet").to_pylist()
    assert [row["seq"] for row in frames] == [1, 2, 3, 4, 6, 8, 9]
    assert json.loads(frames[2]["body"])["topics"][0]["name"] == "orders"
    assert frames[4]["error"] == "truncated: the header is cut short"
    assert [row["seq"] for row in pq.read_table(tmp_path / "rows" / "events.parquet").to_pylist()] == [5, 7]
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["events.parquet", "frames.parquet"]


def test_export_to_parquet_without_a_folder_and_to_a_full_disk_are_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    assert "-o FOLDER" in call("journal", "export", tmp_path, "--format", "parquet").stderr
    said = run("journal", "export", tmp_path, "-o", tmp_path / "missing" / "rows.jsonl")
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert "No such file or directory" in said.stderr


def test_verify_proves_a_whole_journal(tmp_path: Path) -> None:
    write(tmp_path)
    said = call("journal", "verify", tmp_path)
    assert said.returncode == 0
    assert said.stdout.splitlines() == [
        "run r broker 1: gapless; 9 rows = 7 frames + 2 events, 1 process; 2023-11-14T22:13:20.000000Z to 2023-11-14T22:13:20.008000Z",
        "run r broker 2: gapless; 2 rows = 2 frames + 0 events, 1 process; 2023-11-14T22:13:20.000000Z to 2023-11-14T22:13:20.001000Z",
    ]


def test_verify_names_each_gap_and_exits_with_1(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, seq=2) as journal:
        simple_exchange(journal)
        journal.skip(5)
        journal.event("timer")
        journal.roll()
        journal.skip(1)
        journal.event("timer")
    said = call("journal", "verify", tmp_path)
    assert said.returncode == 3
    assert said.stdout.splitlines()[1:] == [
        "  seq 1 missing, in process 1",
        "  seq 4 to 8 (5 rows) missing, in process 1",
        "  seq 10 missing, in process 1",
    ]
    as_json = call("journal", "verify", tmp_path, "--json")
    assert as_json.returncode == 3
    found = json.loads(as_json.stdout)
    assert (found["gapless"], len(found["journals"][0]["problems"]), found["journals"][0]["rows"]) == (False, 3, 4)


def test_verify_finds_a_segment_that_is_missing(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        for _ in range(3):
            simple_exchange(journal)
            journal.roll()
    reading.segments(tmp_path)[1].path.unlink()
    assert "  seq 3 to 4 (2 rows) missing, in process 1" in call("journal", "verify", tmp_path).stdout.splitlines()


def test_verify_finds_rows_twice_wrong_processes_wrong_names_and_foreign_rows(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
        journal.event("timer", seq=2)
        journal.event("timer", seq=3, process=3, run_id="other")
        name = journal.folder / "frames-00000000000000000001.arrows"
    name.rename(name.with_name("frames-00000000000000000000.arrows"))
    said = call("journal", "verify", tmp_path)
    assert said.returncode == 3
    for line in (
        "frames-00000000000000000000.arrows begins with seq 1", "is not above seq 2", "seq 3: process 3 after process 1",
        "has rows of broker 1 of run other",
    ):
        assert line in said.stdout


def test_verify_tells_of_torn_ends_foreign_files_and_clocks_that_went_back_and_passes(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path)
    simple_exchange(journal)
    journal.now_ns -= 10**10
    simple_exchange(journal)
    journal.batch()
    journal.kill()
    (journal.folder / LOCK).touch()
    (journal.folder / "notes\n.txt").touch()
    (tmp_path / "journal" / "run=r" / "node=x").mkdir()
    (tmp_path / "journal" / "run=r" / "node=x" / "frames-00000000000000000001.arrows").touch()
    with TinyJournal(tmp_path, process=2, seq=5) as journal:
        simple_exchange(journal)
    said = call("journal", "verify", tmp_path)
    lines = said.stdout.splitlines()
    assert "broker 1: " in lines[0]
    assert any("the clock went back by 9.9" in line for line in lines)
    assert any("is damaged, its whole batches were read" in line for line in lines)
    assert "foreign file: journal/run=r/node=1/notes\\n.txt" in lines
    assert "foreign file: journal/run=r/node=x/frames-00000000000000000001.arrows" in lines


@pytest.mark.parametrize("step", [41, pytest.param(11, marks=pytest.mark.slow)])
def test_every_length_of_a_torn_segment_is_read_and_verified_without_a_fault(tmp_path: Path, step: int) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
        journal.batch()
        simple_exchange(journal)
    path = journal.last()
    data = path.read_bytes()
    counts = set()
    for length in (*range(0, len(data), step), len(data) - 8):
        path.write_bytes(data[:length])
        said = call("journal", "tail", tmp_path)
        counts.add(len(said.stdout.splitlines()))
        assert said.returncode == 0
        assert said.stderr.count(": the end is damaged, read up to the last complete batch: ") == 1
        verified = call("journal", "verify", tmp_path)
        assert verified.returncode == 0
    assert counts == {0, 2, 4}


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_in_a_journal_are_never_a_fault(tmp_path: Path, seed: int) -> None:
    import random

    chance = random.Random(seed)
    with TinyJournal(tmp_path) as journal:
        for _ in range(20):
            simple_exchange(journal)
            journal.raw(chance.randrange(5), chance.randrange(4), chance.randbytes(chance.randrange(60)), flags=chance.choice([0, *Flag]))
            journal.event("k", input="not JSON")
    path = journal.last(chance.choice(["frames", "events"]))
    data = bytearray(path.read_bytes())
    for _ in range(chance.randrange(5)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    (journal.folder / "frames-00000000000000009999.arrows").write_bytes(chance.randbytes(200))
    for arguments in (["tail", "--events"], ["tail", "-n", 5, "--topic", "t"], ["export"], ["verify"], ["verify", "--json"]):
        said = call("journal", arguments[0], tmp_path, *arguments[1:])
        assert said.returncode in (0, 1, 3)


def test_a_journal_of_an_older_column_set_is_read(tmp_path: Path) -> None:
    import pyarrow as pa

    write(tmp_path)
    for segment in reading.segments(tmp_path):
        table = pa.Table.from_batches(list(reading.open_segment(segment.path))).drop_columns(
            ["latency_ns", "flags", "run_id"] if segment.table == "frames" else ["topic_id", "run_id"]
        )
        older = tmp_path / "older"
        schema = table.schema.with_metadata({"run_id": segment.run})
        with pa.OSFile(str(older), "wb") as file, pa.ipc.new_stream(file, schema) as out:
            out.write_table(table)
        older.replace(segment.path)
    assert seqs(tail(tmp_path, "--events", "--node", 1)) == list(range(1, 10))
    assert call("journal", "verify", tmp_path).returncode == 0
    assert call("journal", "export", tmp_path).stdout.count("\n") == 11


def test_a_lake_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    folder = tmp_path / "journal" / "run=r" / "node=1"
    with read_only(folder, tmp_path):
        assert len(tail(tmp_path)) == 9
        assert call("journal", "verify", tmp_path).returncode == 0
