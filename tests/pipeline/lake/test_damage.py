"""What cannot be read is named with its file and what makes it again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from klamm.cli.journal.verb import command as journal
from klamm.cli.pipeline.report import command as report
from klamm.cli.pipeline.verb import command as pipeline
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.damage import damage_named, damaged_parts, refuse_missing
from klamm.pipeline.lake.folder import FROM_JOURNAL, PipelineFailed, spark_failures
from klamm.pipeline.lake.parquet_files import WRITTEN, opened
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import GOLD, RULE_STATS, VERDICTS, Table
from klamm.tests.pipeline.lakes_by_hand import add


def part(lake: Path, table: str, run: str = "r", rows: int = 3) -> Path:
    """A part with so many rows in a table; its file."""
    return lake / add(lake, table, run, "0", pa.table({"seq": list(range(rows))})).path


def test_whole_parts_are_not_damaged(tmp_path: Path) -> None:
    for table in ("bronze/frames", "silver/messages", "gold/latency"):
        part(tmp_path, table)
    assert list(damaged_parts(tmp_path)) == []


@pytest.mark.parametrize(
    ("table", "remedy"),
    [("bronze/frames", FROM_JOURNAL), ("silver/messages", "from bronze"), ("gold/latency", "from silver")],
)
def test_a_damaged_part_is_named_with_what_makes_it_again(tmp_path: Path, table: str, remedy: str) -> None:
    files = {each: part(tmp_path, each) for each in ("bronze/frames", "silver/messages", "gold/latency")}
    files[table].write_bytes(files[table].read_bytes()[:-9])
    (line,) = damaged_parts(tmp_path)
    assert line.startswith(f"{files[table]} is damaged (") and line.endswith(remedy)


def test_a_part_without_its_file_is_missing_and_one_with_fewer_rows_damaged(tmp_path: Path) -> None:
    part(tmp_path, "bronze/frames", "purged").unlink()
    delta_log.drop(tmp_path, "bronze/frames", delta_log.entries(tmp_path, "bronze/frames"))
    purged, short = (part(tmp_path, "silver/messages", run) for run in ("purged", "short"))
    purged.unlink()
    pq.write_table(pa.table({"seq": [1]}), short)
    of_purged, of_short = damaged_parts(tmp_path)
    assert of_purged.startswith(f"{purged} is missing; ")
    assert of_purged.endswith(FROM_JOURNAL), "bronze has these rows no more"
    assert of_short.startswith(f"{short} is damaged: 1 of 3 rows are there; ")


def test_a_reader_whose_file_was_replaced_and_removed_meanwhile_is_not_told_to_remove_the_table(tmp_path: Path) -> None:
    gone = part(tmp_path, "silver/messages")
    delta_log.name_version(tmp_path)
    with delta_log.one_version(tmp_path):
        (entry,) = delta_log.entries(tmp_path, "silver/messages")
        part(tmp_path, "silver/messages")
        delta_log.name_version(tmp_path)
        gone.unlink()
        with pytest.raises(PipelineFailed, match=r"is missing; another process has replaced it meanwhile: repeat the command"):
            refuse_missing(tmp_path, [entry.table])


def test_a_failure_in_a_lake_without_damage_stays_as_it_is(tmp_path: Path) -> None:
    file = part(tmp_path, "silver/messages")
    with pytest.raises(KeyError), damage_named(tmp_path):
        raise KeyError("a bug")
    file.write_bytes(b"PAR1")
    with pytest.raises(PipelineFailed, match="is damaged"), damage_named(tmp_path):
        pq.ParquetFile(file)
    with pytest.raises(PipelineFailed, match=r"^no such run$"), damage_named(tmp_path):
        raise PipelineFailed("no such run")


def test_a_jvm_that_ends_is_one_line_and_no_reason_to_read_all_tables(tmp_path: Path) -> None:
    part(tmp_path, "silver/messages").unlink()
    with pytest.raises(PipelineFailed, match="Spark's JVM ended while it worked"), spark_failures(), damage_named(tmp_path):
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("table", ["bronze/frames", "silver/api_errors", *(table.path for table in GOLD)])
def test_a_report_of_a_table_that_lost_a_part_names_it(tmp_path: Path, table: str) -> None:
    for each in {"bronze/frames", table}:
        part(tmp_path, each)
    (gone,) = delta_log.files(tmp_path, table)
    Path(str(gone)).unlink()
    result = CliRunner().invoke(report, [str(tmp_path), "--output", str(tmp_path / "report.html")])
    assert isinstance(result.exception, PipelineFailed)
    assert f"{gone} is missing; {'move' if table == 'bronze/frames' else 'remove'}" in str(result.exception)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("table", [table for table in GOLD if table not in (VERDICTS, RULE_STATS)])
def test_check_names_a_part_of_gold_that_is_gone(tmp_path: Path, table: Table) -> None:
    part(tmp_path, "silver/messages")
    gone = part(tmp_path, table.path)
    gone.unlink()
    result = CliRunner().invoke(pipeline, ["check", str(tmp_path)])
    assert isinstance(result.exception, PipelineFailed)
    assert f"{gone} is missing; " in str(result.exception)


@pytest.mark.parametrize("arguments", [["compact"], ["publish", "target"], ["retain", "--keep", "1d"], ["tables"]], ids=" ".join)
def test_every_command_names_a_part_of_gold_that_is_gone(tmp_path: Path, arguments: list[str]) -> None:
    gone = part(tmp_path, "gold/latency")
    gone.unlink()
    result = CliRunner().invoke(pipeline, [arguments[0], str(tmp_path), *arguments[1:]])
    assert isinstance(result.exception, PipelineFailed)
    assert f"{gone} is missing; " in str(result.exception)


def test_a_run_whose_part_is_gone_can_be_removed(tmp_path: Path) -> None:
    part(tmp_path, "gold/latency").unlink()
    result = CliRunner().invoke(pipeline, ["retain", str(tmp_path), "--run", "r"])
    assert result.exit_code == 0, result.exception
    assert delta_log.entries(tmp_path, "gold/latency") == []


def test_a_flipped_bit_is_never_another_value(tmp_path: Path) -> None:
    """In rows written in both ways; a bit of the end of a file may make it another file, which is an error too."""
    file = tmp_path / "rows.parquet"
    rows = pa.table({"run_id": ["r"] * 50, "seq": list(range(50)), "text": [f"text {number % 7}" for number in range(50)]})
    groups = RowGroups(Store(tmp_path), file.name)
    groups.add(rows.to_batches()[0])
    groups.close()
    draw = Random(5)
    for written in (file.read_bytes(), written_whole(rows, file)):
        pages = len(written) - 8 - int.from_bytes(written[-8:-4], "little")
        for _ in range(150):
            changed = bytearray(written)
            place = draw.randrange(8 * pages)
            changed[place // 8] ^= 1 << place % 8
            file.write_bytes(changed)
            try:
                read = opened(file).read()
            except (OSError, pa.ArrowException):
                continue
            assert read.select(rows.column_names).to_pylist() == rows.to_pylist(), place


def written_whole(rows: pa.Table, file: Path) -> bytes:
    pq.write_table(rows, file, **WRITTEN)
    return file.read_bytes()


def test_a_report_of_a_damaged_table_names_it(tmp_path: Path) -> None:
    part(tmp_path, "bronze/frames").write_bytes(b"no Parquet")
    (tmp_path / "journal").mkdir()
    result = CliRunner().invoke(report, [str(tmp_path), "-o", str(tmp_path / "x.html")])
    assert isinstance(result.exception, PipelineFailed | SystemExit)
    assert ".parquet is damaged" in f"{result.output} {result.exception}"


def test_commands_of_the_journal_refuse_the_address_of_an_object_store_with_the_reason() -> None:
    result = CliRunner().invoke(journal, ["verify", "s3a://bucket/lake"])
    assert result.exit_code == 2
    assert "s3a://bucket/lake: a folder of this machine is needed" in " ".join(result.output.split())
