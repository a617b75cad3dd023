"""The place of a lake: a folder, or an object store with an address such as `s3://bucket/lake`.

What is stored there has a name, relative to the lake, with `/` between its words. Only this module and the lock of a lake (`folder.py`)
know that a lake may be a folder; the log of the tables (`delta_log.py`) gives its address to delta-rs. All other code says what it wants by
name, or gives an address from here to a reader or a writer of Parquet. The journal is the brokers': its folders are known to
`klamm.journal`.

What is put into an object store has its name when the upload is complete; nothing is renamed. Credentials and the endpoint come from the
usual variables, such as those of AWS, here and in delta-rs alike. A store that does not answer is asked again for `PATIENCE`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from klamm.machine.replaced_file import replace_file, replacing, temporary_path
from klamm.pipeline.lake.folder import CHECKPOINTS, Lake, PipelineFailed

if TYPE_CHECKING:
    import pyarrow as pa

PATIENCE = timedelta(seconds=150)
"""How long requests to a store that does not answer, or answers that it is too busy, are repeated."""

DRIVER = f"{CHECKPOINTS}/driver.json"
"""The object that says who the driver of a lake is (`access/lease.py`)."""

IN_USE = timedelta(hours=1)
"""Objects that no log names are not removed for this time: a driver may be about to commit them, or somebody reads an older version."""


class RemoteFile(NamedTuple):
    """An object of a lake, for readers of Parquet."""

    lake: str
    name: str

    def __str__(self) -> str:
        return f"{self.lake}/{self.name}"


Address = Path | RemoteFile
"""Where readers of Parquet find a file (`parquet_files.opened`)."""


class NewFile:
    """A file that grows. It has its name when it is complete."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._unfinished = path, temporary_path(path)
        self.sink: pa.NativeFile = pa.OSFile(str(self._unfinished), "wb")

    def complete(self) -> int:
        """Close the file and name it; returns its size in bytes."""
        size = int(self.sink.tell())
        self.sink.close()
        self._unfinished.replace(self._path)
        return size


class NewObject:
    """An object that grows in memory. It is put when it is complete."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        import pyarrow as pa

        self._store, self._name = store, name
        self.sink: pa.NativeFile = pa.BufferOutputStream()

    def complete(self) -> int:
        """Put the object; returns its size in bytes."""
        content = self.sink.getvalue()
        self._store.upload(self._name, content.to_pybytes())
        return int(content.size)


class Store:
    """Reads, lists, puts and deletes what is in a lake. What is put is there as a whole, or not at all. Methods raise OSError."""

    def __new__(cls, lake: Lake) -> Store:
        """For a URL such as `s3://bucket/lake` it is an ObjectStore."""
        return super().__new__(ObjectStore if "://" in str(lake) else cls)

    def __init__(self, lake: Lake) -> None:
        self._lake = Path(lake)

    def __str__(self) -> str:
        return str(self._lake)

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    def read(self, name: str) -> bytes | None:
        """The content; None if there is nothing of this name."""
        try:
            return (self._lake / name).read_bytes()
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """Whether there is something of this name, or below it."""
        return (self._lake / name).exists()

    def names(self, below: str, suffix: str = "") -> list[str]:
        """The names below this one that end so, in order."""
        found = ((Path(folder), names) for folder, _, names in os.walk(self._lake / below))
        return sorted(str((folder / name).relative_to(self._lake)) for folder, names in found for name in names if name.endswith(suffix))

    def folders(self, below: str) -> list[str]:
        """The names of the folders that are directly below this one, in order."""
        folder = self._lake / below
        return sorted(f"{below}/{path.name}" for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def size(self, name: str) -> int | None:
        """The number of bytes; None if there is nothing of this name."""
        try:
            return (self._lake / name).stat().st_size
        except FileNotFoundError:
            return None

    def sizes(self, below: str, names: Iterable[str]) -> dict[str, int | None]:
        """The number of bytes of these names, which are below another; None if there is nothing."""
        return {name: self.size(name) for name in names}

    def unused(self, below: str) -> list[str]:
        """The names below this one that no driver may be about to commit. A folder has one driver, who asks."""
        return self.names(below)

    def put(self, name: str, data: bytes) -> None:
        """Store under this name, also in place of what was there."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, flush=False)

    def stamped(self, name: str) -> tuple[bytes, str] | None:
        """The content, and what `swap` has to know of it; None if there is nothing of this name."""
        content = self.read(name)
        return None if content is None else (content, "")

    def swap(self, name: str, data: bytes, stamp: str | None) -> str | None:
        """Store in place of the content with this stamp, or of nothing, and return the new stamp. A folder has one driver."""
        self.put(name, data)
        return ""

    def put_over(self, name: str, data: bytes, stamp: str | None) -> str:
        """As `swap`, by the driver. Raises PipelineFailed if there is something else: another driver has put it."""
        self.assure()
        new = self.swap(name, data, stamp)
        if new is None:
            found = self.stamped(name)
            if found is None or found[0] != data:  # a repeated request may find what it has put
                raise PipelineFailed(f"{self.address(name)} was changed meanwhile: another process of the pipeline works on the lake")
            new = found[1]
        return new

    def put_new(self, name: str, data: bytes) -> bool:
        """Store under this name; False if there is something else already. Of several who try, one succeeds."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(path)
        try:
            temporary.write_bytes(data)
            os.link(temporary, path)
        except FileExistsError:
            return self.read(name) == data
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def end(self, name: str, most: int) -> bytes | None:
        """The last bytes, at most this number; None if there is nothing of this name."""
        try:
            with (self._lake / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
                return file.read()
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Remove what has this name, or is below it, and the folders of runs and their parts that are empty then; nothing may be there."""
        path = self._lake / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        for parent in path.parents:
            is_of_run = parent != self._lake and parent.name.startswith(("run=", "node=", "batch="))
            if not is_of_run or not parent.is_dir() or any(parent.iterdir()):
                return
            parent.rmdir()

    def delete_files(self, names: Iterable[str]) -> None:
        """Remove these files; they may be gone."""
        for name in names:
            self.delete(name)

    def copy(self, name: str, file: Path) -> None:
        """Store a file of this machine under this name."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            shutil.copyfile(file, temporary)

    def create(self, name: str) -> NewFile | NewObject:
        """A new file, for a writer of Parquet."""
        return NewFile(self._lake / name)

    def address(self, name: str) -> Address:
        """Where readers of Parquet find it."""
        return self._lake / name

    def local(self, name: str) -> Path:
        """The same as a file of this machine."""
        return self._lake / name

    def assure(self) -> None:
        """Raise PipelineFailed if this process was the driver of the lake, and is not any more."""

    @property
    def options(self) -> dict[str, str] | None:
        """The options with which delta-rs opens a table."""
        return None


class ObjectStore(Store):
    """A lake in an object store, by obstore. Methods raise PipelineFailed with one line that names the lake."""

    guards: ClassVar[dict[str, Callable[[], None]]] = {}
    """Of the lakes that this process is the driver of: what raises if it is not any more (`access/lease.py`)."""

    patience = PATIENCE
    """How long a request is repeated."""

    def __init__(self, lake: Lake) -> None:
        self._url = str(lake).rstrip("/")

    def __str__(self) -> str:
        return self._url

    def read(self, name: str) -> bytes | None:
        """The content; None if there is no such object."""
        stamped = self.stamped(name)
        return None if stamped is None else stamped[0]

    def stamped(self, name: str) -> tuple[bytes, str] | None:
        """The content, and what `swap` has to know of it; None if there is no such object."""
        import obstore

        with self._opened() as store:
            try:
                found = obstore.get(store, name)
                return bytes(found.bytes()), str(found.meta["e_tag"])
            except FileNotFoundError as problem:
                if _code(problem) == "NoSuchBucket":
                    raise
                return None

    def swap(self, name: str, data: bytes, stamp: str | None) -> str | None:
        """Store in place of the content with this stamp, or of nothing, and return the new stamp; None if there is something else."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._opened() as store:
            try:
                return str(obstore.put(store, name, data, mode="create" if stamp is None else {"e_tag": stamp})["e_tag"])
            except (AlreadyExistsError, PreconditionError):
                return None
            except FileNotFoundError as problem:
                if stamp is None or _code(problem) == "NoSuchBucket":
                    raise
                return None

    def has(self, name: str) -> bool:
        """Whether there is an object of this name, or below it."""
        return any(True for _ in self._listed(name)) or self.size(name) is not None

    def names(self, below: str, suffix: str = "") -> list[str]:
        """The names below this one that end so, in order."""
        return sorted(one["path"] for one in self._listed(below) if one["path"].endswith(suffix))

    def folders(self, below: str) -> list[str]:
        """The first words below this name that have others below them, in order."""
        import obstore

        with self._opened() as store:
            return sorted(obstore.list_with_delimiter(store, below)["common_prefixes"])

    def size(self, name: str) -> int | None:
        """The number of bytes; None if there is nothing of this name."""
        import obstore

        with self._opened() as store:
            try:
                return int(obstore.head(store, name)["size"])
            except FileNotFoundError:
                return None

    def sizes(self, below: str, names: Iterable[str]) -> dict[str, int | None]:
        """The number of bytes of these names, which are below another; None if there is nothing."""
        wanted = set(names)
        return dict.fromkeys(wanted) | {one["path"]: one["size"] for one in self._listed(below) if one["path"] in wanted} if wanted else {}

    def unused(self, below: str) -> list[str]:
        """The names below this one that are older than `IN_USE`. All times are those of the store: the driver has just put its lease."""
        now = self.listed(CHECKPOINTS).get(DRIVER, {}).get("last_modified")
        return [] if now is None else sorted(one["path"] for one in self._listed(below) if now - one["last_modified"] > IN_USE)

    def put(self, name: str, data: bytes) -> None:
        """Store under this name, also in place of what was there."""
        self.assure()
        self.upload(name, data)

    def put_new(self, name: str, data: bytes) -> bool:
        """Store under this name; False if there is something else already."""
        self.assure()
        return self.swap(name, data, None) is not None or self.read(name) == data  # a repeated request may find what it has put

    def upload(self, name: str, data: Any) -> None:
        """Store as one of many who write: under a name that nobody else has, or of which all have the same content."""
        import obstore

        with self._opened() as store:
            obstore.put(store, name, data)

    def delete(self, name: str) -> None:
        """Remove the object of this name and all below it; nothing may be there."""
        self.delete_files([name, *self.names(name)])

    def delete_files(self, names: Iterable[str]) -> None:
        """Remove these objects; they may be gone."""
        import obstore

        self.assure()
        wanted = list(names)
        with self._opened() as store:
            try:
                obstore.delete(store, wanted)
            except FileNotFoundError as problem:
                if _code(problem) == "NoSuchBucket":
                    raise
                for name in wanted:  # other stores than S3 refuse all behind one that is gone
                    with suppress(FileNotFoundError):
                        obstore.delete(store, name)

    def end(self, name: str, most: int) -> bytes | None:
        """The last bytes, at most this number; None if there is no such object."""
        import obstore

        with self._opened() as store:
            try:
                return bytes(obstore.get(store, name, options={"range": {"suffix": most}}).bytes())
            except FileNotFoundError:
                return None

    def copy(self, name: str, file: Path) -> None:
        """Store a file of this machine under this name."""
        self.upload(name, file)

    def create(self, name: str) -> NewObject:
        """A new object, for a writer of Parquet."""
        return NewObject(self, name)

    def address(self, name: str) -> Address:
        """Where readers of Parquet find it."""
        return RemoteFile(self._url, name)

    def local(self, name: str) -> Path:
        """The same as a file of this machine, which has it until the process ends. What has the name does not change."""
        path = local_folder(self._url) / name
        if not path.exists():
            content = self.read(name)
            if content is None:
                raise FileNotFoundError(str(self.address(name)))
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content, flush=False)
        return path

    def listed(self, below: str) -> dict[str, Mapping[str, Any]]:
        """The names below this one, with `size` and `last_modified` of each."""
        return {one["path"]: one for one in self._listed(below)}

    def assure(self) -> None:
        """Raise PipelineFailed if this process was the driver of the lake, and is not any more."""
        guard = self.guards.get(self._url)
        if guard is not None:
            guard()

    @property
    def options(self) -> dict[str, str]:
        """The options with which delta-rs opens a table. Of several commits with the same number one succeeds."""
        own = {"aws_conditional_put": "etag"} if self._url.startswith("s3://") else {}
        return {"allow_http": "true", "retry_timeout": f"{self.patience.seconds}s", **own}

    def _listed(self, below: str) -> Iterator[Mapping[str, Any]]:
        import obstore

        with self._opened() as store:
            for some in obstore.list(store, prefix=below or None):
                yield from some

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from obstore.exceptions import BaseError
        except ModuleNotFoundError as problem:
            raise PipelineFailed(f"{self._url}: a lake in an object store needs obstore: pip install 'klamm[delta]'") from problem
        try:
            variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
            yield _client(self._url, tuple(sorted(variables.items())), self.patience)
        except (BaseError, FileNotFoundError) as problem:
            raise PipelineFailed(f"{self._url}: {why(problem)}") from problem


VARIABLES = ("AWS_", "GOOGLE_", "AZURE_")
"""How the names of the variables begin that say who asks a store, and where it is."""


@lru_cache(maxsize=16)
def _client(url: str, _variables: tuple[tuple[str, str], ...], patience: timedelta) -> Any:
    from obstore.store import from_url

    return from_url(url, client_options={"allow_http": True}, retry_config={"max_retries": 1000, "retry_timeout": patience})


def local_folder(lake: Lake) -> Path:
    """The folder of a lake on this machine: itself, or one for copies of what is in an object store, until the process ends."""
    return lake if isinstance(lake, Path) else _copies(lake)


@cache
def _copies(_lake: str) -> Path:
    _remove_copies_of_dead_processes()
    unlocked = Path(tempfile.mkdtemp(prefix="klamm-new-"))
    fcntl.flock(os.open(unlocked, os.O_RDONLY), fcntl.LOCK_EX)  # until this process ends, however it does
    folder = unlocked.rename(unlocked.with_name(COPIES + unlocked.name.removeprefix("klamm-new-")))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


COPIES = "klamm-lake-"
"""How the names of folders begin that have copies of objects."""


def _remove_copies_of_dead_processes() -> None:
    """Remove what killed processes left in the temporary folder. A folder in use is locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{COPIES}*"):
        with suppress(OSError):  # it is somebody else's, in use, or gone
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


_REASONS = {
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "these credentials may not do this",
    "InvalidAccessKeyId": "the store does not know the access key: look at AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key is wrong: look at AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the credentials have expired",
    "InvalidToken": "the session token is wrong: look at AWS_SESSION_TOKEN",
    "SlowDown": "the store is too busy",
    "ServiceUnavailable": "the store is too busy",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
}
"""Code of S3 → what it means."""

_METADATA_SERVICE = "169.254.169.254"


def why(problem: Exception) -> str:
    """Why a request failed, in one line without credentials: what the code of the store means, or the first line about it."""
    code, text = _code(problem), " ".join(str(problem).partition("Debug source")[0].split())
    if _METADATA_SERVICE in text:
        return "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    what = re.search(r"Error performing ([A-Z]+)", text)
    if code is not None:
        return f"{_REASONS.get(code, 'the store refuses')} ({code}{'' if what is None else f' for {what[1]}'})"
    shown = re.sub(r"\?[^ ]*", "", re.sub(r"https?://(\S+@)?|\x1b\[[0-9;]*m", "", text))
    asked = re.search(r"after ([0-9]+) retries.*?error sending request", shown)
    if asked is not None:
        return f"the store does not answer; it was asked {1 + int(asked[1])} times"
    return shown if len(shown) <= 300 else f"{shown[:300]}…"


def _code(problem: Exception) -> str | None:
    found = re.search(r"<Code>(\w+)</Code>", str(problem))
    return None if found is None else found[1]
