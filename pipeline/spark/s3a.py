"""What Spark needs to read `s3a://` by itself: jars, and settings that say what the variables of AWS say to everybody else.

Klamm's own commands need neither, because Spark's workers read and write objects with obstore (`lake/store.py`). Queries of Spark's SQL on
a lake in an object store need both. `s3a_jars.json` pins the jars: hadoop-aws of the Hadoop in the newest PySpark that Klamm takes, and
the parts of the AWS SDK that it uses, 13 MB (the SDK's bundle has 686). Another PySpark has another Hadoop, and needs other jars.

obstore and delta-rs read AWS_ENDPOINT_URL, AWS_REGION and credentials from the environment. Only `settings` tells S3A the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from klamm.machine.cache_folder import cache_folder, keep
from klamm.pipeline.spark.cluster import spark_home

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_WITHIN_S = 600
_MARK = "hadoop-aws-"
"""How the name of the jar begins that has S3A."""
_S3A = "spark.hadoop.fs.s3a"
CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""The chain of the AWS SDK: variables, a web identity (a service account of Kubernetes), profiles, the container, the instance."""


class NoJars(Exception):
    """The jars cannot be had; the text is one line."""


def pinned() -> dict[str, str]:
    """Artefact `group:name:version` → SHA-512 of its jar."""
    table: dict[str, str] = json.loads(files("klamm.pipeline.spark").joinpath("s3a_jars.json").read_text())
    return table


def jars(folder: Path | None = None) -> list[Path]:
    """The pinned jars in a folder, by default one of the user's cache; Maven fetches them if one is missing or has other bytes.

    Raises NoJars and OSError.
    """
    folder = cache_folder("s3a") if folder is None else folder
    wanted = {_file_name(artefact): digest for artefact, digest in pinned().items()}
    if any(_digest(folder / name) != digest for name, digest in wanted.items()):
        _fetch(folder, wanted)
    return [folder / name for name in wanted]


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark by which S3A finds the store that obstore and delta-rs find, and asks for credentials as they do."""
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    chosen = {f"{_S3A}.aws.credentials.provider": CHAIN}
    if endpoint:
        is_encrypted = urlsplit(endpoint).scheme != "http"
        chosen |= {f"{_S3A}.endpoint": endpoint, f"{_S3A}.path.style.access": "true"}
        chosen |= {f"{_S3A}.connection.ssl.enabled": str(is_encrypted).lower()}
    if region or endpoint:
        chosen[f"{_S3A}.endpoint.region"] = region or "us-east-1"
    return chosen


def has_s3a(jars: str | None, spark_home: Path) -> bool:
    """Whether a session with these `spark.jars`, or Spark itself, has S3A."""
    return _MARK in (jars or "") or any((spark_home / "jars").glob(f"{_MARK}*.jar"))


def _fetch(folder: Path, wanted: Mapping[str, str]) -> None:
    """Let Maven copy the jars, check them, and keep them."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars("the jars of S3A are fetched with Maven, and there is no mvn on PATH")
    with tempfile.TemporaryDirectory(prefix="klamm-s3a-") as work:
        project, copied = Path(work, "pom.xml"), Path(work, "jars")
        project.write_text(_project(), encoding="utf-8")
        command = [maven, "--batch-mode", "--quiet", "-f", str(project), _COPY, "-DexcludeTransitive=true", f"-DoutputDirectory={copied}"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            raise NoJars(f"Maven did not fetch the jars of S3A within {_WITHIN_S} s") from None
        if done.returncode != 0:
            output = done.stdout + done.stderr
            reason = next((line for line in output.splitlines() if "ERROR" in line), output.strip()[-300:])
            raise NoJars(f"Maven cannot fetch the jars of S3A: {reason}")
        for name, digest in wanted.items():
            if _digest(copied / name) != digest:
                raise NoJars(f"Maven has another {name} than Klamm was tested with: its SHA-512 is {_digest(copied / name)}")
            keep(folder / name, (copied / name).read_bytes())


def _file_name(artefact: str) -> str:
    _, name, version = artefact.split(":")
    return f"{name}-{version}.jar"


def _digest(file: Path) -> str | None:
    return hashlib.sha512(file.read_bytes()).hexdigest() if file.is_file() else None


def _project() -> str:
    """A Maven project that depends on the pinned artefacts."""
    dependency = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
    dependencies = "".join(dependency.format(*artefact.split(":")) for artefact in pinned())
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>klamm</groupId><artifactId>s3a</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
    )


if __name__ == "__main__":  # of the image `pipeline`: from a folder of the source to those of Spark
    for jar in jars(Path(sys.argv[1])):
        shutil.copy(jar, spark_home() / "jars")
