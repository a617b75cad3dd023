"""Applications that use a cluster as their users do: Kafka Streams, Connect, MirrorMaker 2, and programs in Go.

The same test is told to three brokers of Klamm, to three of Apache Kafka 3.9.1, and to both kinds in one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from klamm.tests.harness.kafka import java_command
from klamm.tests.harness.members import Members
from klamm.tests.harness.waits import wait_for
from klamm.tests.reference.jars import ARTIFACTS, VERSION, jars
from klamm.zk.embedded.owned_process import OwnedProcess

T = TypeVar("T")
BROKERS = (1, 2, 3)
KINDS = pytest.mark.parametrize("of_klamm", [3, 2, 0], ids=["klamm", "mixed", "kafka"])
"""How many of the three brokers are Klamm's; the others are Apache Kafka's."""
WITHIN_S = 600
"""How long one step of an application may take on a busy machine. A test that passes seldom waits that long."""

_REPLICATED = {
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "default_replication_factor": 2,
}
_APPLICATIONS = f"{VERSION}-applications"
_MODULES = ("kafka-streams", "connect-runtime", "connect-file", "connect-mirror")
ARTIFACTS[_APPLICATIONS] = (*(f"org.apache.kafka:{name}:{VERSION}" for name in _MODULES), "org.slf4j:slf4j-simple:1.7.36")
_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def three_brokers(new_members: Callable[..., Members], of_klamm: int) -> Members:
    """A new cluster of brokers 1 to 3. The first ones are Klamm's, and broker 1 is controller."""
    members = new_members(lambda _: _REPLICATED)
    if of_klamm:
        members.klamm(*BROKERS[:of_klamm])
    members.kafka(*BROKERS[of_klamm:])
    return members


def properties_file(file: Path, settings: Mapping[str, str]) -> str:
    """Write a Java properties file; returns its path."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return str(file)


class Application:
    """A running program, and what it printed. Errors and warnings of its libraries are in the same file."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        output.touch()
        self._process = OwnedProcess(command, output)
        self._output = output

    def text(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def says(self, line: str) -> None:
        """Wait until it has printed this line."""
        self.until(lambda: line in self.text().splitlines(), f"{line!r} printed")

    def until(self, look: Callable[[], T], what: str) -> T:
        """Wait while it runs; the first true value of `look`. Fails with the end of its output."""
        found: T | None = None

        def is_over() -> bool:
            nonlocal found
            ended = self._process.poll() is not None
            found = look()
            return bool(found) or ended

        try:
            wait_for(is_over, what, WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}; {self.text()[-3000:]}") from None
        assert found, f"ended before: {what}; {self.text()[-3000:]}"
        return found

    def ends(self) -> None:
        """Wait for its end. Fails if it had no success."""
        assert self._process.wait(WITHIN_S) == 0, self.text()[-3000:]

    def lines(self) -> list[str]:
        """Wait for its end; the lines of its own, which begin with an asterisk."""
        self.ends()
        return [line for line in self.text().splitlines() if line.startswith("* ")]

    def stop(self) -> None:
        self._process.stop()


@contextmanager
def running(command: Sequence[str], output: Path) -> Iterator[Application]:
    """Start a program; it is killed at the end if it still runs."""
    made = Application(command, output)
    try:
        yield made
    finally:
        made.stop()


def of_java(*arguments: str) -> list[str]:
    """A command for a class of the applications' jars, or for a source file beside this one."""
    first, *others = arguments
    main = str(Path(__file__).with_name(first)) if first.endswith(".java") else first
    return java_command(jars(_APPLICATIONS), main, *others, flags=_FLAGS)
