"""Kafka's own command line tools, run by their main classes from the fetched jars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from klamm.tests.harness.kafka import java_command

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
}
ADDRESS = "ADDRESS"
ADDRESSED_BY_ARGUMENT = {"kafka-producer-perf-test", "kafka-e2e-latency"}
"""Tools without `--bootstrap-server`: they take the address where an argument has `ADDRESS`."""
_LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")


class Tools:
    """Runs tools against one bootstrap address."""

    def __init__(self, jars: Path, folder: Path, bootstrap: str) -> None:
        self.jars, self.bootstrap = jars, bootstrap
        self.log4j = folder / "tools-log4j.properties"
        self.log4j.write_text(_LOG4J)

    def run(self, tool: str, *arguments: object, stdin: str = "", within_s: float = 90) -> subprocess.CompletedProcess[str]:
        """Run to the end; stdout is the tool's own, stderr holds its log from WARN up."""
        flags = (*_FLAGS, f"-Dlog4j.configuration=file:{self.log4j}")
        address = () if tool in ADDRESSED_BY_ARGUMENT else ("--bootstrap-server", self.bootstrap)
        filled = (str(each).replace(ADDRESS, self.bootstrap) for each in arguments)
        command = java_command(self.jars, CLASSES[tool], *address, *filled, flags=flags)
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=within_s, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"}
        )

    def succeed(self, tool: str, *arguments: object, stdin: str = "", within_s: float = 90) -> str:
        """Run a tool that must end well without a word of warning; its stdout."""
        done = self.run(tool, *arguments, stdin=stdin, within_s=within_s)
        assert (done.returncode, done.stderr) == (0, ""), f"{tool} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def dump_log(jars: Path, folder: Path, segment: Path) -> list[str]:
    """What Kafka's log dump tool prints of a segment file of its metadata log, line by line; it must end well without a warning."""
    tool = Tools(jars, folder, "")
    flags = (*_FLAGS, f"-Dlog4j.configuration=file:{tool.log4j}")
    arguments = ("kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(segment))
    done = subprocess.run(java_command(jars, *arguments, flags=flags), capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{segment}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()
