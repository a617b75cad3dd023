"""The addresses of lakes on the command line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from klamm.cli.journal.lake_folder import LakeAddress
from klamm.cli.main import klamm


@pytest.mark.parametrize(("given", "address"), [
    ("lake", Path("lake")), ("s3://b/l", "s3://b/l"), ("S3A://b/run=1/lake //", "s3://b/run=1/lake "), ("s3://b/l/", "s3://b/l"),
    ("s3://b", "s3://b"), ("abfss://account/l", "az://account/l"), ("gs://b/l", "gs://b/l"),
])
def test_an_address_is_a_path_or_a_url_of_the_libraries(given: str, address: Path | str) -> None:
    assert LakeAddress().convert(given, None, None) == address


@pytest.mark.parametrize("given", ["s3://user:topsecret@b/l", "s3://b/l?key=topsecret", "s3://", "s3:///l", "s3://b//l", "s3://b/l#topsecret"])
def test_an_address_with_credentials_or_without_a_bucket_is_refused_without_repeating_it(given: str) -> None:
    with pytest.raises(click.BadParameter, match="s3://BUCKET/LAKE, without user, password") as caught:
        LakeAddress().convert(given, None, None)
    assert "topsecret" not in caught.value.message


@pytest.mark.parametrize("given", ["hdfs://name/lake", "https://b.s3.amazonaws.com/lake"])
def test_an_address_that_no_library_knows_is_refused_with_the_reason(given: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{given}: a folder of this machine is needed"):
        LakeAddress().convert(given, None, None)


def test_a_journal_beside_a_folder_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(klamm, ["pipeline", "check", str(tmp_path), "--journal", str(tmp_path)])
    told = " ".join(result.output.split())
    assert result.exit_code == 2 and "--journal is for a lake in an object store: a folder has its journal" in told
