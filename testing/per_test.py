"""The clusters of a run of pytest: the one that tests share, those of single tests, and what is done before and after each test.

All clusters of a process use one ZooKeeper, each below a chroot of its own: it starts once, and a cluster of a single test starts in a
fraction of a second.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from klamm.control.json_object import JsonObject
from klamm.testing import fault, hold
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.testing.library import Cluster
from klamm.zk.embedded.server import EmbeddedZooKeeper

JOURNAL = "klamm.journal.dir"
DEFAULT_CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
"""Groups need not wait for more members, and their topics are small."""


def _arguments() -> dict[str, tuple[type[Any], ...]]:
    hints = get_type_hints(Cluster.__init__)
    given = {name: hints[name] for name in inspect.signature(Cluster).parameters if name != "zookeeper"}
    return {name: _classes(hint) for name, hint in given.items()} | {"version": (str,), "own": (bool,)}


def _classes(hint: Any) -> tuple[type[Any], ...]:
    """The classes of the values that an argument of this type may have."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(object if getattr(kind, "_is_protocol", False) else get_origin(kind) or kind for kind in kinds if kind is not NoneType)


ARGUMENTS = _arguments()
"""The arguments of the marker `klamm` with their types: those of `Cluster` but `zookeeper`, which a run has one of, `version` as another
name of `as_version`, and `own`.
"""


def marked(node: Any) -> JsonObject:
    """The arguments of a test's markers; the one that is closest to the test counts. Raises ValueError."""
    types = ARGUMENTS
    found: JsonObject = {}
    for marker in reversed(list(node.iter_markers("klamm"))):
        if marker.args:
            raise ValueError(f"@pytest.mark.klamm takes named arguments: {', '.join(types)}")
        found |= marker.kwargs
    for name, value in found.items():
        if name not in types:
            raise ValueError(f"@pytest.mark.klamm has no argument {name!r}; it has {', '.join(types)}")
        if not isinstance(value, types[name]) or (isinstance(value, bool) and bool not in types[name]):
            raise ValueError(f"@pytest.mark.klamm: {name}={value!r} has a wrong type")
    if not all(isinstance(own, Mapping) for own in found.get("broker_config", {}).values()):
        raise ValueError(f"@pytest.mark.klamm: broker_config={found['broker_config']!r} is not broker id → properties")
    if "version" in found:
        if "as_version" in found:
            raise ValueError("@pytest.mark.klamm: version is as_version; give one of them")
        found["as_version"] = found.pop("version")
    if found.get("own") is False and len(found) > 1:
        raise ValueError("@pytest.mark.klamm: own=False is the shared cluster, which takes no other arguments")
    return found


class Clusters:
    """The clusters of one process of pytest."""

    def __init__(self, brokers: int, config: Iterable[str], journal: str = "", worker: str | None = None) -> None:
        """`config` are lines `name=value`. Raises ValueError."""
        self._brokers = brokers
        self._config = dict(DEFAULT_CONFIG)
        for line in config:
            name, sign, value = line.partition("=")
            if not sign or not name.strip():
                raise ValueError(f"klamm_config: {line!r} is not name=value")
            self._config[name.strip()] = value.strip()
        self._journal = None if not journal else Path(journal) / worker if worker else Path(journal)
        self._numbers = itertools.count(1)
        self._open = ExitStack()
        self._shared: BlockingCluster | None = None
        self._of_shared = ExitStack()
        """Stops the shared cluster."""
        self.is_lent = False
        """Whether fixtures of a wider scope may use the shared cluster, so that it runs until the end."""
        self._journals: dict[str, str | None] = {}
        self._pages: dict[str, str] = {}
        """File name → test."""
        Cluster(brokers, config=self._config)

    @cached_property
    def _zookeeper(self) -> str:
        server = EmbeddedZooKeeper()
        address = server.start()
        self._open.callback(server.stop)
        return address

    @property
    def shared(self) -> BlockingCluster:
        """The cluster that tests share. It starts when it is needed first."""
        if self._shared is None:
            self._zookeeper  # noqa: B018 is started first, so that it stops last
            self._of_shared = self._open.enter_context(ExitStack())
            self._shared = self._of_shared.enter_context(self._cluster("shared", {}))
            self._shared.restore()
        return self._shared

    def replace_shared(self) -> None:
        """The shared cluster is not as it was: the next test gets another one."""
        self._shared = None
        if not self.is_lent:
            self._of_shared.close()

    def own(self, name: str, arguments: JsonObject) -> Cluster:
        """A cluster of a single test, to start. Raises ValueError."""
        return self._cluster(_folder_name(name), arguments)

    def journal_of(self, name: str | None) -> str | None:
        """The folder of the journal of a test's own cluster, or of the shared one; None without journals."""
        return self._journals.get("shared" if name is None else _folder_name(name))

    def page_name(self, name: str) -> str:
        """The name of the file of a test's page. Tests get different ones, also if their names differ in their signs only."""
        folder = _folder_name(name)
        pages = itertools.chain([folder], (f"{folder}-{number}" for number in itertools.count(2)))
        return next(page for page in pages if self._pages.setdefault(page, name) == name)

    def close(self) -> None:
        """Stop everything."""
        self._open.close()

    def _cluster(self, name: str, arguments: JsonObject) -> Cluster:
        config = self._config | arguments.get("config", {})
        if self._journal is not None:
            config = {JOURNAL: str((self._journal / name).absolute())} | config
        given = {name: value for name, value in arguments.items() if name != "own"}
        shape: JsonObject = {"brokers": self._brokers} | given | {"config": config}
        self._journals[name] = config.get(JOURNAL) or None
        Cluster(**shape)  # an error is one line, before anything is started
        return Cluster(zookeeper=f"{self._zookeeper}/cluster-{next(self._numbers)}", **shape)


def _folder_name(name: str) -> str:
    """The name of a test as that of a folder."""
    return re.sub(r"\W+", "-", name)[-80:].strip("-")


class PerTest:
    """The cluster of one test."""

    def __init__(self, clusters: Clusters, arguments: JsonObject, name: str) -> None:
        """Raises ValueError for arguments of the marker that are not valid."""
        self._clusters = clusters
        self._open = ExitStack()
        self._is_own = bool(arguments.get("own") or arguments.keys() - {"own"})
        self._node = name
        self._name = name if self._is_own else None
        if self._is_own:
            self.cluster = self._open.enter_context(clusters.own(name, arguments))
        else:
            self.cluster = clusters.shared.again()

    def missed(self) -> list[str]:
        """What is to be said of faults that hit nothing, and of holds that were not reached."""
        said = [*map(fault.missed, self.cluster.faults), *map(hold.missed, self.cluster.holds)]
        return [text for text in said if text is not None]

    def text(self) -> str:
        """Requests of clients and changes of the cluster in the order of time, faults and holds with their counts, the present state."""
        try:
            lines = self.cluster.transcript()
            parts = ["requests of clients and events (*) during the test; > marks the first error:", *(lines or ["  none"])]
            parts += [f"  {each.text}" for each in self.cluster.faults] + [f"  {each.text}" for each in self.cluster.holds]
            parts += ["the cluster now:", *(f"  {line}" for line in self.cluster.describe().splitlines())]
        except Exception as error:  # noqa: BLE001 the report of a failure must not fail
            return f"nothing can be said about the cluster: {error!r}"
        return "\n".join(parts)

    def verdicts(self) -> str:
        """What the conformance rules say of the cluster's journal, up to now. A shared cluster has one journal for all its tests."""

        def judged(folder: Path) -> str:
            from klamm.pipeline.quick.verdict_text import verdict_lines

            return "\n".join(verdict_lines(folder))

        return self._of_journal(judged, "quick", "judged")

    def report(self) -> str:
        """The path of a page about the cluster's journal, up to now, which is written beside the journals' folders."""

        def written(folder: Path) -> str:
            from klamm.pipeline.report.write import report

            path = folder.with_name(f"{self._clusters.page_name(self._node)}.html")
            path.write_text(report(folder).page, encoding="utf-8")
            return str(path)

        return self._of_journal(written, "report", "reported")

    def _of_journal(self, said: Callable[[Path], str], extra: str, done: str) -> str:
        folder = self._clusters.journal_of(self._name)
        if folder is None:
            return "there is no journal: --klamm-journal DIR"
        try:
            return said(Path(folder))
        except ModuleNotFoundError as missing:
            return f"{missing}: install klamm[{extra}]"
        except Exception as error:  # noqa: BLE001 the report of a failure must not fail
            return f"the journal cannot be {done}: {error}"

    def end(self) -> None:
        """After the test."""
        if self._is_own:
            self._open.close()
            return
        try:
            added = self.cluster.restore()
        except BaseException:
            self._clusters.replace_shared()
            raise
        if added:
            self._clusters.replace_shared()
