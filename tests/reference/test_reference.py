"""Fetching the real Kafka: where it is looked for, and what is said when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.reference import jars


def test_a_named_folder_takes_the_place_of_the_cache(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-3.9.1.jar").touch()
    assert jars.jars(environ={jars.VARIABLE: str(tmp_path)}) == tmp_path


def test_a_named_folder_without_kafka_is_refused(tmp_path: Path) -> None:
    with pytest.raises(jars.NoJars, match=rf"no Kafka 3\.9\.1 in {tmp_path}"):
        jars.jars(environ={jars.VARIABLE: str(tmp_path)})


def test_without_maven_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.NoJars, match="install mvn"):
        jars.jars(environ={})


def test_what_maven_says_is_said_and_nothing_half_fetched_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] the registry cannot be reached'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(jars.NoJars, match="the registry cannot be reached"):
        jars.jars(environ={})
    assert sorted(p.name for p in (tmp_path / "cache" / "klamm" / "reference").iterdir()) == ["3.9.1.lock"]


def test_what_is_fetched_is_there_whole_and_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "mvn"
    maven.write_text(
        f"#!/bin/sh\necho once >> {tmp_path}/calls\n"
        'for word; do case $word in -DoutputDirectory=*) folder=${word#*=};; esac; done\nmkdir "$folder"\ntouch "$folder/kafka.jar"\n'
    )
    maven.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for _ in range(2):
        folder = jars.jars(environ={})
        assert folder == tmp_path / "cache" / "klamm" / "reference" / "3.9.1"
    assert sorted(p.name for p in folder.iterdir()) == ["kafka.jar", "pom.xml"]
    assert "<artifactId>kafka_2.13</artifactId><version>3.9.1</version>" in (folder / "pom.xml").read_text()
    assert (tmp_path / "calls").read_text() == "once\n"


def test_a_real_brokers_log_is_read_entry_by_entry(tmp_path: Path) -> None:
    broker = KafkaBroker.__new__(KafkaBroker)
    broker.kafka_log = tmp_path / "log"
    broker.kafka_log.write_text(
        "[2026-01-01 00:00:00,000] INFO one (kafka.server.KafkaServer)\n"
        "[2026-01-01 00:00:00,001] ERROR two (of them) (kafka.x.Y)\n"
        "java.io.IOException: gone\n\tat somewhere\n"
        "[2026-01-01 00:00:00,002] WARN [three\nlines\nlong] (state.change.logger)\n"
    )
    one, two, three = broker.lines()
    assert (one.level, one.text, one.logger, one.exception) == ("INFO", "one", "kafka.server.KafkaServer", "")
    assert (two.level, two.text, two.logger, two.exception) == ("ERROR", "two (of them)", "kafka.x.Y", "java.io.IOException")
    assert (three.level, three.text, three.logger) == ("WARN", "[three", "state.change.logger")
    assert broker.errors() == [two]
