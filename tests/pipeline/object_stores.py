"""S3 servers of tests: moto's and versitygw, what lakes there have, and a proxy that cuts connections or answers that the store is too
busy."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pyarrow as pa
from botocore.config import Config

from klamm.machine.cache_folder import cache_folder
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.tables import GOLD, SILVER

KEY, SECRET = "key", "secret"
BUCKET = "bucket"
VERSITYGW = "v1.8.0"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@contextmanager
def moto() -> Iterator[str]:
    """The URL of moto's server."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:[0-9]+", line)))
            threading.Thread(target=server.stderr.read, daemon=True).start()  # it logs each request
            urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
            yield url
        finally:
            server.kill()


def _program() -> str:
    """versitygw, which Go builds in the user's cache where there is none; VERSITYGW names another one."""
    found = os.environ.get("VERSITYGW") or shutil.which("versitygw")
    if found is not None:
        return found
    built = cache_folder("versitygw") / VERSITYGW / "versitygw"
    if not built.exists():
        assert shutil.which("go") is not None, "this test needs Go: install it"
        place = {"GOBIN": str(built.parent), "GOFLAGS": "-buildvcs=false"}
        subprocess.run(["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}"], env=os.environ | place, check=True)
    return str(built)


@contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    """The URL of versitygw."""
    program = _program()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.mkdir()
    variables = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    command = [program, "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            s3(f"http://127.0.0.1:{port}").create_bucket(Bucket=BUCKET)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def s3(url: str) -> Any:
    """A client of a server, which may be about to start."""
    patient = Config(retries={"max_attempts": 12, "mode": "standard"})
    names = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=url, config=patient, **names)


def use(url: str, set_variable: Callable[[str, str], None]) -> None:
    """Let the environment name the server and its credentials, as a user's would."""
    credentials = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "REGION": "us-east-1"}
    for name, value in {**credentials, "ENDPOINT_URL": url}.items():
        set_variable(f"AWS_{name}", value)


def ship(folder: Path, lake: str, server: str) -> None:
    """Put the journal of a folder into the store."""
    client = s3(server)
    for path in folder.glob("journal/run=*/node=*/*"):
        if not path.name.startswith("."):
            client.upload_file(str(path), BUCKET, f"{lake.removeprefix(f's3://{BUCKET}/')}/{path.relative_to(folder)}")


def content(lake: Lake) -> dict[str, Any]:
    """Table → the number of its rows and the sum of their hashes."""
    found = {}
    for table in (*SILVER, *GOLD):
        files = delta_log.files(lake, table.path)
        if files:
            rows = pa.concat_tables([opened(file).read().replace_schema_metadata(None) for file in files], promote_options="default")
            rows = rows.select(list(table.names))
            found[table.path] = duckdb.sql("SELECT count(*), sum(hash(x::VARCHAR)::HUGEINT) FROM (SELECT * FROM rows) x").fetchall()[0]
    return found


class StoreProxy:
    """Passes connections to a server, counts its requests, and can be away or too busy."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.refused = 0
        """Connections that were cut, or told that the store is too busy."""
        self.is_away = self.is_busy = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def away(self) -> None:
        """Cut all connections, and the new ones until `back`."""
        self.is_away = True
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def back(self) -> None:
        """Serve again."""
        self.is_away = self.is_busy = False

    def close(self) -> None:
        """Listen no more."""
        self.away()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_away or self.is_busy:
                    self.refused += 1
                    threading.Thread(target=self._refuse, args=(client,), daemon=True).start()
                    continue
                server = socket.create_connection(self._server)
                self._open |= {client, server}
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _refuse(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if self.is_busy:
                client.recv(1 << 16)
                client.sendall(BUSY)

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.discard(one)
        one.close()
