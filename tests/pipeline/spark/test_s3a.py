from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.ship import Shipper
from klamm.pipeline.shipped import waiting
from klamm.pipeline.spark import s3a
from klamm.pipeline.spark.cluster import spark_home
from klamm.pipeline.spark.session import session_settings
from klamm.pipeline.spark.settings import JARS
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.shipping.s3_server import s3_server

S3A = "spark.hadoop.fs.s3a"


def test_spark_has_the_endpoint_and_the_region_of_the_variables_and_no_secret() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu"}
    assert s3a.settings(environ) == {
        f"{S3A}.aws.credentials.provider": s3a.CHAIN, f"{S3A}.endpoint": "http://minio:9000", f"{S3A}.path.style.access": "true",
        f"{S3A}.connection.ssl.enabled": "false", f"{S3A}.endpoint.region": "eu",
    }
    of_s3 = s3a.settings(environ | {"AWS_ENDPOINT_URL_S3": "https://s3.example"})
    assert (of_s3[f"{S3A}.endpoint"], of_s3[f"{S3A}.connection.ssl.enabled"]) == ("https://s3.example", "true")
    assert s3a.settings({}) == {f"{S3A}.aws.credentials.provider": s3a.CHAIN}
    assert s3a.settings({"AWS_DEFAULT_REGION": "eu"})[f"{S3A}.endpoint.region"] == "eu"


def test_only_sessions_that_have_the_jars_have_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from klamm.pipeline.spark.java import java_for_spark

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    java = java_for_spark()
    assert f"{S3A}.endpoint" not in session_settings("local[1]", java, "1g", {})
    assert session_settings("local[1]", java, "1g", {JARS: "/x/hadoop-aws-3.5.0.jar,y.jar"})[f"{S3A}.endpoint"] == "http://minio:9000"


def test_the_jars_are_those_of_the_hadoop_in_this_pyspark() -> None:
    (hadoop,) = (path.stem.rpartition("-")[2] for path in (spark_home() / "jars").glob("hadoop-client-api-*.jar"))
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in s3a.pinned()
    assert {len(digest) for digest in s3a.pinned().values()} == {128}
    assert not any("bundle" in artefact for artefact in s3a.pinned())


def test_a_jar_with_other_bytes_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Maven, and with one that brings other bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(s3a.NoJars, match="there is no mvn on PATH"):
        s3a.jars()
    maven = tmp_path / "mvn"
    maven.write_text(
        "#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) folder=${word#*=};; esac; done\n"
        f"/bin/mkdir -p $folder; for name in {' '.join(s3a._file_name(one) for one in s3a.pinned())}; do echo x > $folder/$name; done\n"
    )
    maven.chmod(0o755)
    with pytest.raises(s3a.NoJars, match="than Klamm was tested with"):
        s3a.jars()
    assert not list(tmp_path.rglob("*.jar"))


QUERY = """
import os, sys
from klamm.pipeline.spark.s3a import jars
from klamm.pipeline.spark.session import open_session

spark = open_session("local[1]", settings={"spark.jars": ",".join(map(str, jars()))}, variables=os.environ)
rows = spark.read.parquet(*(path.replace("s3://", "s3a://") for path in sys.argv[1:]))
print(*rows.selectExpr("count(*)", "sum(seq)").collect()[0])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_itself_reads_a_table_in_an_object_store_with_the_jars_and_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = "s3://bucket/lake"
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
        journal.roll()
        simple_exchange(journal)
    with s3_server() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        Shipper(tmp_path, lake).send()
        commits = Commits(lake)
        commits.add(waiting(lake, commits))
        files = [str(path) for path in delta_log.files(lake, "bronze/frames")]
        assert len(files) == 2
        done = subprocess.run([sys.executable, "-c", QUERY, *files], capture_output=True, text=True, check=False)
    assert done.stdout == "4 10\n", done.stderr
