"""Spark on other machines, or in several processes of this one: the code that is sent to workers, and the commands of Spark's servers.

Workers import Klamm from a zip of its modules, which each session sends them. The packages that Klamm depends on must be installed on the
workers, and the lake must have the same path there. A wheel cannot replace the zip, because Spark ignores wheels.

    python -m klamm.pipeline.spark.cluster master HOST PORT              a master of Spark's own cluster manager
    python -m klamm.pipeline.spark.cluster worker spark://HOST:PORT …    a worker of it, with Spark's own options
    python -m klamm.pipeline.spark.cluster wait HOST PORT COMMAND …      COMMAND, once a master listens there (at most 60 s)
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from klamm.machine.cache_folder import cache_folder, keep
from klamm.machine.java import Java
from klamm.pipeline.spark.java import java_for_spark, java_home
from klamm.pipeline.spark.settings import Kind, When, chosen
from klamm.pipeline.spark.user_settings import is_secret, write_secrets
from klamm.protocol import schema

LEFT_OUT = {"benchmarks", "build", "dist", "docs", "tests"}
USAGE = """usage: python -m klamm.pipeline.spark.cluster master HOST PORT | worker URL [OPTIONS OF SPARK] | wait HOST PORT COMMAND
"""
START_S = 60.0
"""How long a master may take to start."""
RETRY_S = 0.2
_WHEN = (1980, 1, 1, 0, 0, 0)
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@cache
def code_zip() -> Path:
    """A zip of Klamm's modules and data as they are installed here. Its folder is named after a digest of its content."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in _code():
            archive.writestr(zipfile.ZipInfo(name, _WHEN), content)
    data = held.getvalue()
    target = cache_folder("spark") / f"code-{hashlib.sha256(data).hexdigest()[:16]}" / "klamm.zip"
    if not target.exists():
        keep(target, data)
    return target


def code_digest() -> str:
    """A digest that changes with any module of Klamm."""
    digest = hashlib.sha256()
    for name, content in _code():
        digest.update(f"{name}\n".encode() + content)
    return digest.hexdigest()


def own_archive() -> Path | None:
    """The zip from which this process imports Klamm, as workers do and programs of spark-submit; None if it is installed as files."""
    spec = find_spec("klamm")
    archive = None if spec is None else getattr(spec.loader, "archive", None)
    return None if archive is None else Path(archive)


def _code() -> Iterator[tuple[str, bytes]]:
    """Names and contents of the modules and data that workers need."""
    archive = own_archive()
    if archive is not None:
        with zipfile.ZipFile(archive) as packed:
            yield from ((name, packed.read(name)) for name in packed.namelist())
        return
    root = _folder("klamm")
    for folder, folders, names in os.walk(root):
        within = Path(folder).relative_to(root).parts
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__" and (within or name not in LEFT_OUT))
        for name in sorted(names):
            if name.endswith(".py") or (name.endswith(".json") and within[:1] == ("schemas",)):
                yield "/".join(("klamm", *within, name)), (Path(folder) / name).read_bytes()
    yield f"klamm/schemas/{schema.PACKED}", schema.packed().encode()


def spark_home() -> Path:
    """The folder of PySpark."""
    return _folder("pyspark")


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.origin).parent


def environment(java: Java, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process of Spark: `environ` with this Java, this Spark and this Python."""
    facts = {"java_home": str(java_home(java)), "spark_home": str(spark_home()), "python": sys.executable}
    return {**environ, **chosen(Kind.VARIABLE, {When.PROCESSES}, facts)}


def master_command(host: str, port: int, web_port: int = 0) -> list[str]:
    """Starts a master in the foreground."""
    return [str(spark_home() / "bin" / "spark-class"), _MASTER, "--host", host, "--port", str(port), "--webui-port", str(web_port)]


def worker_command(master: str, *options: str) -> list[str]:
    """Starts a worker in the foreground; `options` are Spark's own (-c CORES, -m MEMORY, -d FOLDER, --host, --webui-port)."""
    return [str(spark_home() / "bin" / "spark-class"), _WORKER, *options, master]


def submit_command(settings: Mapping[str, str], folder: Path, *arguments: str) -> list[str]:
    """Starts spark-submit with these settings. Secret ones are written to `folder`, which has to be there until it has started."""
    open_ones = {key: value for key, value in settings.items() if not is_secret(key)}
    conf = [word for key, value in open_ones.items() for word in ("--conf", f"{key}={value}")]
    if len(open_ones) < len(settings):
        file = folder / "secret.properties"
        write_secrets({key: value for key, value in settings.items() if key not in open_ones}, file)
        conf += ["--properties-file", str(file), "--load-spark-defaults"]
    return [str(spark_home() / "bin" / "spark-submit"), *conf, *arguments]


def connect_command(settings: Mapping[str, str], folder: Path, host: str, port: int, master: str) -> list[str]:
    """Starts a Spark Connect server in the foreground. `folder` is for secrets, as of `submit_command`."""
    bound = chosen(Kind.SPARK, {When.SERVER}, {"host": host, "port": str(port)})
    return submit_command({**settings, **bound}, folder, "--class", _CONNECT, "--master", master)


def wait_for_master(host: str, port: int, within_s: float = START_S) -> None:
    """Return when something listens there. Raises OSError, of the last attempt, if nothing does in time."""
    until = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection((host, port), within_s).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
        else:
            return


def main(words: Sequence[str]) -> int:
    """Run a master or a worker until it ends, or a command when there is a master."""
    if len(words) >= 4 and words[0] == "wait":
        try:
            wait_for_master(words[1], int(words[2]))
        except OSError as problem:
            sys.stderr.write(f"no Spark master at {words[1]}:{words[2]}: {problem.strerror or problem}\n")
            return 1
        os.execvp(words[3], list(words[3:]))
    if len(words) == 3 and words[0] == "master":
        command = master_command(words[1], int(words[2]))
    elif len(words) >= 2 and words[0] == "worker":
        command = worker_command(words[1], *words[2:])
    else:
        sys.stderr.write(USAGE)
        return 2
    os.execvpe(command[0], command, environment(java_for_spark()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
