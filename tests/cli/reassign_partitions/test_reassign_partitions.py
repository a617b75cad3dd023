"""`klamm reassign-partitions` on running clusters, of Klamm and (slow) of Apache Kafka 3.9.1."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from klamm.tests.cli.members import Moves, ToolMembers
from klamm.tests.cli.running import KLAMM, WITHIN_S
from klamm.tests.harness.kafka import START_S, all_know, wait_for


@pytest.mark.requirement("R179-34")
def test_a_replication_factor_is_changed_and_rolled_back_with_what_was_printed(members: ToolMembers) -> None:
    topic = members.topic([0])
    printed = members.succeed("--execute", "--reassignment-json-file", members.file({(topic, 0): [0, 1]}))
    assert f"Successfully started partition reassignment for {topic}-0" in printed
    members.settled(topic, [0, 1])
    before = next(line for line in printed.splitlines() if line.startswith("{"))
    back = members.file({}, "back.json")
    back.write_text(before)
    members.succeed("--execute", "--reassignment-json-file", back)
    members.settled(topic, [0])


@pytest.mark.requirement("R179-34")
@pytest.mark.requirement("R179-38")
def test_an_assignment_is_proposed_executed_and_verified(members: ToolMembers) -> None:
    topic = members.topic([0], [0], [0])
    topics = members.file({}, "topics.json")
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    printed = members.succeed("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2").splitlines()
    assert printed[0] == "Current partition replica assignment"
    assert printed[3] == "Proposed partition reassignment configuration"
    proposed = members.file({}, "proposed.json")
    proposed.write_text(printed[4])
    targets = {entry["partition"]: entry["replicas"] for entry in json.loads(printed[4])["partitions"]}
    assert sorted(targets) == [0, 1, 2] and {broker for (broker,) in targets.values()} == {1, 2}
    assert members.replicas(topic) == ([0], [], []), "a proposal changes nothing"
    heading = "Status of partition reassignment:"
    assert members.succeed("--verify", "--reassignment-json-file", proposed, "--preserve-throttles").splitlines() == [
        heading,
        *(
            f"There is no active reassignment of partition {topic}-{n}, but replica set is 0 rather than {targets[n][0]}."
            for n in sorted(targets)
        ),
    ]
    members.succeed("--execute", "--reassignment-json-file", proposed)
    for partition, replicas in targets.items():
        members.settled(topic, replicas, partition)
    assert members.succeed("--verify", "--reassignment-json-file", proposed, "--preserve-throttles").splitlines() == [
        heading,
        *(f"Reassignment of partition {topic}-{n} is completed." for n in sorted(targets)),
    ]


@pytest.mark.requirement("R179-34")
@pytest.mark.requirement("R179-37")
def test_a_throttled_move_is_shown_refused_a_second_time_and_goes_faster_when_its_throttle_is_changed(members: ToolMembers) -> None:
    topic = members.topic([0])
    members.fill(topic, 60)
    file = members.file({(topic, 0): [1]})
    started = members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "2000").splitlines()
    assert "The inter-broker throttle limit was set to 2000 B/s" in started
    assert members.removes_throttles == (members.kind == "klamm")
    assert any(line.startswith("Warning: You must run --verify") for line in started) != members.removes_throttles
    assert members.lists(topic) == ("0:0", "0:1")
    assert members.rates() == [("2000", "2000"), ("2000", "2000"), (None, None)]
    assert members.succeed("--list").splitlines() == [
        "Current partition reassignments:",
        f"{topic}-0: replicas: 1,0. adding: 1. removing: 0.",
    ]
    assert members.succeed("--verify", "--reassignment-json-file", file).splitlines()[1:] == [
        f"Reassignment of partition {topic}-0 is still in progress."
    ]
    second = members.tool("--execute", "--reassignment-json-file", file)
    assert (second.returncode, second.stdout) == (1, "") and "Use --additional" in second.stderr
    changed = members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "90000000")
    assert changed.splitlines() == [
        "The inter-broker throttle limit was set to 90000000 B/s",
        f"Successfully changed the throttle of partition reassignment for {topic}-0",
    ]
    members.settled(topic, [1])
    if not members.removes_throttles:
        assert not members.unthrottled(topic)
        cleared = members.succeed("--verify", "--reassignment-json-file", file).splitlines()
        assert cleared[-2:] == ["Clearing broker-level throttles on brokers 0,1,2", f"Clearing topic-level throttles on topic {topic}"]
    wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")


@pytest.mark.requirement("R179-5")
@pytest.mark.parametrize("way", ["bootstrap-server", "zookeeper"])
def test_a_throttle_below_1_kilobyte_per_second_is_a_warning_and_one_of_0_is_refused(members: ToolMembers, way: str) -> None:
    topic = members.topic([0])
    file = members.file({(topic, 0): [0, 1]})
    execute = ("--execute", "--reassignment-json-file", file, "--throttle")
    if way == "bootstrap-server" and members.removes_throttles:
        refused = members.tool(*execute, "0", way=way)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == "klamm: --throttle 0: the controller refuses a rate with which nothing moves; -1 means no throttle\n"
        assert members.replicas(topic) == ([0], [], []) and members.unthrottled(topic)
    done = members.tool(*execute, "500", way=way)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "Warning: The throttle is 500 B/s, less than 1 KB/s; the reassignment may never end."
    members.settled(topic, [0, 1])  # the topic is empty
    members.tool("--verify", "--reassignment-json-file", file, way=way)


@pytest.mark.requirement("R179-31")
@pytest.mark.requirement("R179-33")
def test_progress_shows_the_lag_of_a_throttled_move_and_watch_ends_when_it_has_ended(members: ToolMembers) -> None:
    topic = members.topic([0])
    members.fill(topic, 60)
    file = members.file({(topic, 0): [0, 2], (topic, 7): [1], ("no-such-topic", 0): [1], (topic, 8): [9]})
    moved = members.file({(topic, 0): [0, 2]}, "moved.json")
    members.succeed("--execute", "--reassignment-json-file", moved, "--throttle", "4000")

    def cells_of_progress() -> list[list[str]] | None:
        """Where the new replica is there."""
        cells = [row.split(maxsplit=3) for row in members.succeed("--progress", "--reassignment-json-file", file).splitlines()]
        return None if cells[3][3] == "Broker does not host this partition" else cells

    cells = wait_for(cells_of_progress, "the new replica is there")
    assert cells[0] == ["Topic", "Partition", "Broker", "Status"] and set("".join(cells[1])) == {"-"}
    assert cells[2] == [topic, "0", "0", "In sync"]
    assert cells[3][:3] == [topic, "0", "2"]
    if members.kind == "klamm":
        assert re.fullmatch(r"Behind: [1-9][0-9]* messages behind", cells[3][3])
    assert cells[4:] == [[topic, "7", "1", "Unknown partition"], ["no-such-topic", "0", "1", "Unknown topic"],
                         [topic, "8", "9", "Unknown partition"]]
    watching = subprocess.Popen(
        [KLAMM, "reassign-partitions", "--bootstrap-server", members.bootstrap, "--progress", "--watch", "--reassignment-json-file", moved],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert watching.stdout is not None
    first = watching.stdout.readline()
    assert "1 of 2 replicas in sync" in first and "left" in first
    members.succeed("--execute", "--reassignment-json-file", moved, "--throttle", "90000000")
    printed, complaints = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, complaints) == (0, "")
    assert printed.splitlines()[-1].split(maxsplit=3) == [topic, "0", "2", "In sync"]
    members.settled(topic, [0, 2])
    members.tool("--verify", "--reassignment-json-file", moved)


def test_ctrl_c_ends_a_watch_without_a_traceback(members: ToolMembers) -> None:
    topic = members.topic([0])
    members.fill(topic, 60)
    file = members.file({(topic, 0): [1]}, "watched.json")
    members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "1024")
    watching = subprocess.Popen(
        [KLAMM, "reassign-partitions", "--bootstrap-server", members.bootstrap, "--progress", "--watch", "--reassignment-json-file", file],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, complaints = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, complaints.strip()) == (130, "klamm: interrupted")
    members.succeed("--cancel", "--reassignment-json-file", file)
    members.settled(topic, [0])


def test_a_reassignment_that_only_adds_a_replica_is_cancelled(members: ToolMembers) -> None:
    topic, other = members.topic([0]), members.topic([1])
    members.fill(topic, 40)
    file = members.file({(topic, 0): [0, 1], (other, 0): [1]})
    members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "1024")
    assert members.succeed("--cancel", "--reassignment-json-file", file).splitlines() == [
        f"Successfully cancelled partition reassignment for: {topic}-0",
        "None of the specified partition moves are active.",
        *(
            ["The controller removes the inter-broker throttle when the last reassignment ends."]
            if members.removes_throttles
            else ["Clearing broker-level throttles on brokers 0,1,2", f"Clearing topic-level throttles on topics {topic},{other}"]
        ),
    ]
    members.settled(topic, [0])
    wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")
    assert members.succeed("--list") == "No partition reassignments found.\n"
    again = members.succeed("--cancel", "--reassignment-json-file", file, "--preserve-throttles").splitlines()
    assert again == ["None of the specified partition reassignments are active.", "None of the specified partition moves are active."]


@pytest.mark.requirement("R179-24")
def test_a_cancelled_reassignment_leaves_the_throttle_to_another_one_where_the_controller_removes_throttles(members: ToolMembers) -> None:
    staying, cancelled = members.topic([0]), members.topic([1])
    members.fill(staying, 60)
    for topic, target in (staying, 1), (cancelled, 2):
        members.fill(topic, 60)
        moves = members.file({(topic, 0): [target]}, f"{topic}.json")
        members.succeed("--execute", "--reassignment-json-file", moves, "--additional", "--throttle", "1024")
    members.succeed("--cancel", "--reassignment-json-file", members.file({(cancelled, 0): [2]}))
    members.settled(cancelled, [1])
    assert members.replicas(staying) == ([1, 0], [1], [0]), "it still runs"
    if members.removes_throttles:
        assert members.rates() == [("1024", "1024")] * 3
        assert members.lists(staying) == ("0:0", "0:1")
    else:
        assert members.rates() == [(None, None)] * 3, "as Kafka's tool does"
    members.succeed("--cancel", "--reassignment-json-file", members.file({(staying, 0): [1]}))
    members.settled(staying, [0])
    wait_for(lambda: (members.unthrottled(staying) and members.unthrottled(cancelled)) or None, "no throttle is left")


@pytest.mark.requirement("R179-37")
def test_a_new_rate_is_also_that_of_a_source_that_is_dead_where_the_controller_removes_throttles(members: ToolMembers) -> None:
    dead = next(n for n in (1, 2) if n != members.tree.controller())
    target = 3 - dead
    topic = members.topic([0, dead])
    members.fill(topic, 60)
    members.brokers[dead].stop()
    wait_for(lambda: sorted(members.brokers[0].known()[0]) == [0, target] or None, "the broker is gone")
    file = members.file({(topic, 0): [0, target]})
    try:
        rates_of_dead = []
        for rate in ("2000", "1024"):
            members.succeed("--execute", "--reassignment-json-file", file, "--throttle", rate)
            rates_of_dead.append(members.rates()[dead])
            assert [members.rates()[n] for n in (0, target)] == [(rate, rate)] * 2
            assert members.lists(topic) == (f"0:0,0:{dead}", f"0:{target}")
        by_controller = [("2000", "2000"), ("1024", "1024")]
        assert rates_of_dead == (by_controller if members.removes_throttles else [(None, None)] * 2)
        members.succeed("--cancel", "--reassignment-json-file", file)
        members.settled(topic, [0, dead])
        wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")
    finally:
        members.brokers[dead].start()
        all_know(members.brokers, START_S)


def test_additional_starts_more_and_replaces_a_running_one(members: ToolMembers) -> None:
    topic, other = members.topic([0]), members.topic([1])
    members.fill(topic, 40)
    members.succeed("--execute", "--reassignment-json-file", members.file({(topic, 0): [1]}), "--throttle", "1024")
    second = members.file({(topic, 0): [2], (other, 0): [0]}, "second.json")
    members.succeed("--execute", "--reassignment-json-file", second, "--additional", "--throttle", "70000000")
    members.settled(other, [0])
    members.settled(topic, [2])
    members.tool("--verify", "--reassignment-json-file", second)
    wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")


@pytest.mark.requirement("R179-28")
def test_zookeeper_warns_on_stderr_and_moves_by_the_znode_with_throttles_that_verify_removes(members: ToolMembers) -> None:
    topic = members.topic([0])
    file = members.file({(topic, 0): [1]})
    done = members.tool("--execute", "--reassignment-json-file", file, "--throttle", "5000000", way="zookeeper")
    assert done.returncode == 0
    assert "deprecated" in done.stderr and "--bootstrap-server" in done.stderr and done.stderr.count("\n") == 1
    assert "deprecated" not in done.stdout
    assert f"Successfully started partition reassignment for {topic}-0" in done.stdout
    members.settled(topic, [1])
    assert members.lists(topic) == ("0:0", "0:1")
    assert members.rates() == [("5000000", "5000000"), ("5000000", "5000000"), (None, None)]
    wait_for(lambda: members.tree.exists("/admin/reassign_partitions") is None or None, "the znode is gone")
    verified = members.tool("--verify", "--reassignment-json-file", file, way="zookeeper")
    assert f"Reassignment of partition {topic}-0 is completed." in verified.stdout
    assert members.unthrottled(topic)


@pytest.mark.requirement("R179-39")
def test_both_ways_print_the_same(members: ToolMembers) -> None:
    topic = members.topic([0], [1])
    file = members.file({(topic, 0): [0], (topic, 1): [2], (topic, 4): [1], ("no-such-topic", 0): [1]})
    for arguments in (["--list"], ["--verify", "--reassignment-json-file", file], ["--execute", "--reassignment-json-file", file]):
        by_brokers, by_zookeeper = members.tool(*arguments), members.tool(*arguments, way="zookeeper")
        assert (by_brokers.returncode, by_brokers.stdout) == (by_zookeeper.returncode, by_zookeeper.stdout), arguments
        assert by_zookeeper.stderr.endswith(by_brokers.stderr)
    for way in ("bootstrap-server", "zookeeper"):
        same = members.file({(topic, 0): [0]}, "same.json")
        assert members.tool("--execute", "--reassignment-json-file", same, way=way).stdout.splitlines()[-1] == (
            f"Successfully started partition reassignment for {topic}-0"
        )
        wait_for(lambda: members.succeed("--list").startswith("No partition") or None, "nothing is in progress")


@pytest.mark.parametrize(
    ("moves", "line"),
    [
        (lambda topic: {(topic, 0): [995]}, "Unknown broker id 995 in the replicas of partition {topic}-0"),
        (lambda topic: {(topic, 10): [0]}, "Unknown partition {topic}-10"),
        (lambda topic: {("no-such-topic", 0): [0]}, "Unknown topic no-such-topic of partition no-such-topic-0"),
    ],
)
@pytest.mark.parametrize("way", ["bootstrap-server", "zookeeper"])
def test_a_plan_that_cannot_be_executed_is_one_line_and_changes_nothing(
    members: ToolMembers, way: str, moves: Callable[[str], Moves], line: str
) -> None:
    topic = members.topic([0])
    good = {(topic, 0): [1]} if (topic, 0) not in moves(topic) else {}
    done = members.tool("--execute", "--reassignment-json-file", members.file({**good, **moves(topic)}), "--throttle", "5", way=way)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"klamm: {line.format(topic=topic)}"
    assert members.replicas(topic) == ([0], [], []) and members.unthrottled(topic)
