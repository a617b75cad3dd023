"""Changes drawn from a seed, put into journals of clusters that did everything right: wrong ones, and ones that any cluster may make.

    python -m klamm.tests.pipeline.injected.drawn_changes [SEED] [--spark]      # prints what was found, missed and falsely accused

Nothing here is made for a rule: a kind says which message is changed and how, and the seed says in which frame. The journals are those of
`recording.py`. A wrong change is found if any rule names a violation in its run; which one does not matter.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from klamm.journal.columns import Flag
from klamm.journal.reading import segments
from klamm.pipeline.lake.bronze import convert
from klamm.pipeline.lake.spark_views import views
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.silver import Source, build_silver
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    RESPONSE_OUT,
    Edits,
    Row,
    RunWriter,
    TrueRun,
    body_of,
    inserted,
    judged_quickly,
    moved,
    neutral,
    place,
    true_run,
    with_body,
)
from klamm.tests.pipeline.injected.recording import STORIES

TIMES = 3
"""Changes of each kind."""

Things = Callable[[TrueRun, Row, Any], Sequence[Any]]
"""Run, frame and its message → what can be changed in it."""


class ChangeKind(NamedTuple):
    """A kind of change."""

    name: str
    make: Callable[[TrueRun, Random], Edits]
    """Raises LookupError if the run has no place for it."""


WRONG: list[ChangeKind] = []
ALLOWED: list[ChangeKind] = []


def change(
    kinds: list[ChangeKind], name: str, key: int, direction: int, things: Things, how: Callable[[Any, Any, Random], Any], *,
    copies: bool = True,
) -> None:
    """A kind that changes one message: `how` gets a thing, the message and the draw, and may return bytes in place of the message. Without
    `copies` the frame stays as it was in the journal of its other end."""

    def make(world: TrueRun, draw: Random) -> Edits:
        rows = world.frames(key, direction)
        draw.shuffle(rows)
        for row in rows:
            body = body_of(row)
            found = things(world, row, body)
            if found:
                other = how(draw.choice(found), body, draw)
                changed = body if other is None else other
                return {place(each): with_body(each, changed) for each in (world.copies(row) if copies else [row])}
        raise LookupError(name)

    kinds.append(ChangeKind(name, make))


def kind(kinds: list[ChangeKind], name: str) -> Callable[[Callable[[TrueRun, Random], Edits]], None]:
    """A kind that changes rows."""

    def register(make: Callable[[TrueRun, Random], Edits]) -> None:
        kinds.append(ChangeKind(name, make))

    return register


def put(**values: Any) -> Callable[[Any, Any, Random], None]:
    """Give the thing these values; a function gets the value before."""

    def apply(thing: Any, _: Any, __: Random) -> None:
        for name, value in values.items():
            setattr(thing, name, value(getattr(thing, name)) if callable(value) else value)

    return apply


def of_clients(row: Row) -> bool:
    return row["kind"] == "accepted" and row["peer_id"] is None


def client_answers(world: TrueRun) -> list[Row]:
    return [row for row in world.rows.values() if row.get("dir") == RESPONSE_OUT and of_clients(row) and row["flags"] == 0]


def behind(world: TrueRun, row: Row) -> list[Row]:
    """Later answers on the connection of an answer."""
    place_of = ("node_id", "process", "conn_id", "dir")
    return [r for r in world.rows.values() if all(r.get(name) == row[name] for name in place_of) and r["seq"] > row["seq"]]


NOT_SEEN = {
    "Fetch: the high watermark falls": "if the answer has no records of the partition: L-02 reads the high watermarks beside records",
    "Fetch: the last stable offset is above the high watermark": "no rule compares the offsets of one answer",
    "Fetch: the log starts above its high watermark": "no rule compares the offsets of one answer",
    "WriteTxnMarkers: the opposite marker": "if the producer ended transactions both ways in this epoch, and the marker is in a partition "
    "of offsets: it does not show which transaction it is of",
}
"""Kinds of wrong changes that may be missed, and why."""


def bodies(world: TrueRun, row: Row, body: Any) -> list[Any]:
    return [body]


def of_any_client(world: TrueRun, row: Row, body: Any) -> list[Any]:
    return [body] if of_clients(row) else []


# What is around messages.


@kind(WRONG, "an answer has another correlation id")
def _(world: TrueRun, draw: Random) -> Edits:
    row = draw.choice(client_answers(world))
    number = row["correlation_id"] + draw.randint(1, 9)
    frame = row["frame"][:4] + number.to_bytes(4, "big") + row["frame"][8:]
    return {place(row): {**row, "correlation_id": number, "frame": frame, "cause_seq": None, "flags": row["flags"] | Flag.UNMATCHED}}


def resized(world: TrueRun, draw: Random, how: Callable[[bytes], bytes]) -> Edits:
    row = draw.choice([row for row in client_answers(world) if len(row["frame"]) > 24])
    rest = how(row["frame"][4:])
    return {place(row): {**row, "frame": len(rest).to_bytes(4, "big") + rest}}


kind(WRONG, "an answer has bytes over")(lambda world, draw: resized(world, draw, lambda rest: rest + draw.randbytes(draw.randint(1, 4))))
kind(WRONG, "an answer ends early")(lambda world, draw: resized(world, draw, lambda rest: rest[: -draw.randint(1, 4)]))


@kind(WRONG, "an answer is lost, and later ones are there")
def _(world: TrueRun, draw: Random) -> Edits:
    row = draw.choice([row for row in client_answers(world) if behind(world, row)])
    return {place(row): neutral(row)}


@kind(WRONG, "an answer leaves twice")
def _(world: TrueRun, draw: Random) -> Edits:
    row = draw.choice(client_answers(world))
    return {(row["node_id"], row["seq"] + 0.5): {**row, "seq": row["seq"] + 0.5}}


@kind(WRONG, "an answer leaves behind the answer to a later request")
def _(world: TrueRun, draw: Random) -> Edits:
    row = draw.choice([row for row in client_answers(world) if behind(world, row)])
    later = behind(world, row)[0]
    return {place(row): neutral(row), (row["node_id"], later["seq"] + 0.5): moved(row, {**later, "seq": later["seq"] + 0.5})}


# What brokers say of the cluster.


def shown(world: TrueRun, row: Row, body: Any) -> list[Any]:
    """The partitions of Metadata that have a leader."""
    if not of_clients(row):
        return []
    topics = [topic for topic in body.topics if topic.error_code == 0]
    return [one for topic in topics for one in topic.partitions if one.error_code == 0 and len(one.isr_nodes) > 1]


def shown_topics(world: TrueRun, row: Row, body: Any) -> list[Any]:
    return [topic for topic in body.topics if of_clients(row) and topic.error_code == 0 and len(topic.partitions) > 1]


def without_one(things: list[Any], draw: Random) -> None:
    del things[draw.randrange(len(things))]


def metadata(name: str, things: Things, how: Callable[[Any, Any, Random], Any]) -> None:
    change(WRONG, f"Metadata: {name}", Api.METADATA, RESPONSE_OUT, things, how)


def other_leader(one: Any, _: Any, draw: Random) -> None:
    one.leader_id = draw.choice([each for each in one.replica_nodes if each != one.leader_id])


metadata("another leader", shown, other_leader)
metadata("an older leader epoch", lambda *a: [one for one in shown(*a) if one.leader_epoch > 0], put(leader_epoch=lambda epoch: epoch - 1))
metadata("a leader epoch that nobody told", shown, put(leader_epoch=lambda epoch: epoch + 1))
metadata("a member of the ISR is missing", shown, put(isr_nodes=lambda isr: isr[:-1]))
metadata("replicas in another order", shown, put(replica_nodes=lambda nodes: nodes[::-1]))
metadata("a partition is missing", shown_topics, lambda topic, _, draw: without_one(topic.partitions, draw))
metadata("another topic id", lambda world, row, body: shown_topics(world, row, body) if row["api_version"] >= 10 else [],
         lambda topic, _, draw: setattr(topic, "topic_id", draw.randbytes(16)))
metadata("another port", of_any_client, lambda body, _, draw: setattr(draw.choice(body.brokers), "port", draw.randint(1, 999)))
metadata("another host", of_any_client, lambda body, _, draw: setattr(draw.choice(body.brokers), "host", "elsewhere"))
metadata("a live broker is missing", lambda *a: [body for body in of_any_client(*a) if len(body.brokers) > 1],
         lambda body, _, draw: without_one(body.brokers, draw))
metadata("another controller", of_any_client, put(controller_id=lambda node: 2 if node == 1 else 1))
metadata("another cluster id", of_any_client, put(cluster_id="another-cluster"))

for port, words in ((0, "a broker that does not exist"), (1, "another port")):
    change(
        WRONG, f"FindCoordinator: {words}", Api.FIND_COORDINATOR, RESPONSE_OUT,
        lambda world, row, body: [one for one in ([body] if row["api_version"] < 4 else body.coordinators) if one.error_code == 0],
        put(port=lambda port: port + 1) if port else put(node_id=77),
    )


# What controllers say.


def states(body: Any) -> list[Any]:
    return [state for topic in body.topic_states for state in topic.partition_states if state.leader >= 0]


def told(condition: Callable[[Any], bool] = lambda state: True) -> Things:
    return lambda world, row, body: list(filter(condition, states(body)))


def lead_elsewhere(state: Any, _: Any, draw: Random) -> None:
    state.leader = draw.choice([each for each in state.isr if each != state.leader])


for key, api in ((Api.LEADER_AND_ISR, "LeaderAndIsr"), (Api.UPDATE_METADATA, "UpdateMetadata")):
    for name, condition, how in (
        ("an older leader epoch", lambda state: state.leader_epoch > 0, put(leader_epoch=lambda epoch: epoch - 1)),
        ("a stranger in the ISR", lambda state: True, put(isr=lambda isr: [*isr, 77])),
        ("another leader of the ISR", lambda state: len(state.isr) > 1, lead_elsewhere),
        ("the leader is not in the ISR", lambda state: len(state.isr) > 1, lambda state, *_: state.isr.remove(state.leader)),
    ):
        change(WRONG, f"{api}: {name}", key, REQUEST_IN, told(condition), how)
change(WRONG, "UpdateMetadata: a live broker is missing", Api.UPDATE_METADATA, REQUEST_IN,
       lambda world, row, body: [body] if len(body.live_brokers) > 1 else [], lambda body, _, draw: without_one(body.live_brokers, draw))
change(WRONG, "UpdateMetadata: one byte arrives otherwise", Api.UPDATE_METADATA, REQUEST_IN, bodies,
       lambda body, _, draw: setattr(draw.choice(body.live_brokers).endpoints[0], "port", draw.randint(1, 999)), copies=False)
change(WRONG, "LeaderAndIsr: a broker epoch that is too low", Api.LEADER_AND_ISR, REQUEST_IN, bodies, put(broker_epoch=1))
change(WRONG, "AlterPartition: another ISR is answered", Api.ALTER_PARTITION, RESPONSE_OUT,
       lambda world, row, body: [one for topic in body.topics for one in topic.partitions if one.error_code == 0],
       put(isr=lambda isr: [*isr, 77]))


def event(kinds: list[ChangeKind], name: str, of: str, wanted: Callable[[Row], bool], how: Callable[[Any, Any, Random], None]) -> None:
    """An event, changed: `how` gets its input and its output."""

    def make(world: TrueRun, draw: Random) -> Edits:
        found = [row for row in world.events(of) if wanted(row)]
        if not found:
            raise LookupError(name)
        row = dict(draw.choice(found))
        given, output = (None if row[each] is None else json.loads(row[each]) for each in ("input", "output"))
        how(given, output, draw)
        row["input"], row["output"] = (None if each is None else json.dumps(each) for each in (given, output))
        return {place(row): row}

    kinds.append(ChangeKind(name, make))


event(WRONG, "a decision: another leader epoch", "decision", lambda row: bool(json.loads(row["output"] or "{}").get("write")),
      lambda given, output, draw: output["write"].update(leader_epoch=output["write"]["leader_epoch"] + 1))
event(WRONG, "a write of a state: a version that skips some", "zk_write",
      lambda row: row["partition"] is not None and json.loads(row["input"])["op"] == "set" and '"OK"' in row["output"].replace(" ", ""),
      lambda given, output, draw: output.update(version=output["version"] + draw.randint(1, 9)))


# Records, groups and transactions.


def produced(world: TrueRun, row: Row, body: Any) -> list[Any]:
    return [one for topic in body.responses for one in topic.partition_responses if one.error_code == 0 and one.base_offset > 0]


change(WRONG, "Produce: an offset that another batch has", Api.PRODUCE, RESPONSE_OUT, produced, put(base_offset=0))
change(WRONG, "Produce: another partition is answered", Api.PRODUCE, RESPONSE_OUT,
       lambda world, row, body: [one for topic in body.responses for one in topic.partition_responses], put(index=99))


def read(world: TrueRun, row: Row, body: Any) -> list[Any]:
    return [one for topic in body.responses for one in topic.partitions if one.error_code == 0 and one.high_watermark > 0]


def read_before(world: TrueRun, row: Row, body: Any) -> list[Any]:
    """Partitions that an answer of this broker showed with the same high watermark before the request came."""
    earlier = Counter[tuple[bytes, int]]()
    for other in world.frames(Api.FETCH, RESPONSE_OUT):
        if (other["node_id"], other["process"]) == (row["node_id"], row["process"]) and other["seq"] < row["cause_seq"]:
            for topic in body_of(other).responses:
                for one in topic.partitions:
                    if one.error_code == 0:
                        earlier[topic.topic_id, one.partition_index] = max(earlier[topic.topic_id, one.partition_index], one.high_watermark)
    return [
        one for topic in body.responses for one in topic.partitions
        if one.error_code == 0 and one.high_watermark > 0 and earlier[topic.topic_id, one.partition_index] == one.high_watermark
    ]


change(WRONG, "Fetch: the high watermark falls", Api.FETCH, RESPONSE_OUT, read_before, put(high_watermark=lambda end: end - 1))
change(WRONG, "Fetch: the last stable offset is above the high watermark", Api.FETCH, RESPONSE_OUT, read,
       lambda one, _, draw: setattr(one, "last_stable_offset", one.high_watermark + draw.randint(1, 9)))
change(WRONG, "Fetch: the log starts above its high watermark", Api.FETCH, RESPONSE_OUT, read,
       lambda one, _, draw: setattr(one, "log_start_offset", one.high_watermark + draw.randint(1, 9)))
change(WRONG, "Fetch: an aborted transaction is not named", Api.FETCH, RESPONSE_OUT,
       lambda world, row, body: [
           one for topic in body.responses for one in topic.partitions if of_clients(row) and one.aborted_transactions
       ], put(aborted_transactions=[]))
change(WRONG, "OffsetFetch: another offset than was committed", Api.OFFSET_FETCH, RESPONSE_OUT,
       lambda world, row, body: [
           one for group in body.groups for topic in group.topics for one in topic.partitions if one.committed_offset >= 0
       ], put(committed_offset=lambda offset: offset + 1000))
change(WRONG, "OffsetCommit: a generation to come is accepted", Api.OFFSET_COMMIT, REQUEST_IN,
       lambda world, row, body: [body] if body.generation_id_or_member_epoch > 0 else [],
       put(generation_id_or_member_epoch=lambda number: number + 1))
change(WRONG, "JoinGroup: the generation jumps", Api.JOIN_GROUP, RESPONSE_OUT,
       lambda world, row, body: [body] if body.error_code == 0 and body.generation_id > 1 else [], put(generation_id=lambda n: n + 5))
change(WRONG, "SyncGroup: another assignment", Api.SYNC_GROUP, RESPONSE_OUT,
       lambda world, row, body: [body] if body.error_code == 0 and body.assignment else [],
       lambda body, _, draw: setattr(body, "assignment", body.assignment + draw.randbytes(3)))
change(WRONG, "WriteTxnMarkers: the opposite marker", Api.WRITE_TXN_MARKERS, REQUEST_IN, lambda world, row, body: body.markers,
       put(transaction_result=lambda is_commit: not is_commit))


# What any cluster may do.


def allowed(name: str, key: int, direction: int, things: Things, how: Callable[[Any, Any, Random], Any]) -> None:
    change(ALLOWED, name, key, direction, things, how)


for key, api in ((Api.METADATA, "Metadata"), (Api.FIND_COORDINATOR, "FindCoordinator"), (Api.PRODUCE, "Produce"), (Api.FETCH, "Fetch")):
    allowed(f"{api}: a throttle time below what a client notices", key, RESPONSE_OUT, of_any_client,
            lambda body, _, draw: setattr(body, "throttle_time_ms", draw.randint(1, 15)))
allowed("Metadata: brokers in another order", Api.METADATA, RESPONSE_OUT, of_any_client, lambda body, _, draw: draw.shuffle(body.brokers))
allowed("Metadata: topics in another order", Api.METADATA, RESPONSE_OUT, of_any_client, lambda body, _, draw: draw.shuffle(body.topics))
allowed("Metadata: partitions in another order", Api.METADATA, RESPONSE_OUT, shown_topics,
        lambda topic, _, draw: draw.shuffle(topic.partitions))
allowed("UpdateMetadata: brokers in another order", Api.UPDATE_METADATA, REQUEST_IN, bodies,
        lambda body, _, draw: draw.shuffle(body.live_brokers))
allowed("UpdateMetadata: topics in another order", Api.UPDATE_METADATA, REQUEST_IN, bodies,
        lambda body, _, draw: draw.shuffle(body.topic_states))
allowed("Produce: the broker's time of append", Api.PRODUCE, RESPONSE_OUT, produced, put(log_append_time_ms=1_700_000_000_000))
allowed("Fetch: partitions in another order", Api.FETCH, RESPONSE_OUT, bodies, lambda body, _, draw: draw.shuffle(body.responses))
allowed("Fetch: another limit of bytes", Api.FETCH, REQUEST_IN, bodies,
        lambda body, _, draw: setattr(body, "max_bytes", draw.randint(1, 9_999)))
allowed("Heartbeat: a rebalance is in progress", Api.HEARTBEAT, RESPONSE_OUT, bodies, put(error_code=27))
allowed("JoinGroup: other timeouts", Api.JOIN_GROUP, REQUEST_IN, bodies, put(session_timeout_ms=30_000, rebalance_timeout_ms=60_000))
allowed("OffsetCommit: metadata of the client", Api.OFFSET_COMMIT, REQUEST_IN,
        lambda world, row, body: [one for topic in body.topics for one in topic.partitions], put(committed_metadata="note"))
allowed("ListOffsets: the leader epoch is not known", Api.LIST_OFFSETS, RESPONSE_OUT,
        lambda world, row, body: [one for topic in body.topics for one in topic.partitions], put(leader_epoch=-1))
allowed("InitProducerId: another timeout", Api.INIT_PRODUCER_ID, REQUEST_IN, bodies, put(transaction_timeout_ms=12_345))
allowed("FindCoordinator: no coordinator is available yet", Api.FIND_COORDINATOR, RESPONSE_OUT,
        lambda world, row, body: [body] if row["api_version"] < 4 and body.error_code == 0 else [],
        put(error_code=15, node_id=-1, host="", port=-1))


@kind(ALLOWED, "Metadata is asked for once more")
def _(world: TrueRun, draw: Random) -> Edits:
    request = draw.choice([row for row in world.frames(Api.METADATA, REQUEST_IN) if of_clients(row)])
    answer = world.answer(request)
    return inserted(world, request, answer["seq"] + 0.1, answer, conn_id=90_000)


@kind(ALLOWED, "an answer leaves behind a frame of another connection")
def _(world: TrueRun, draw: Random) -> Edits:
    answers = client_answers(world)
    draw.shuffle(answers)
    for row in answers:
        after = world.rows.get((row["node_id"], row["seq"] + 1))
        if after is not None and "frame" in after and after["conn_id"] != row["conn_id"] and after["cause_seq"] != row["seq"]:
            return {place(row): neutral(row), (row["node_id"], after["seq"] + 0.5): moved(row, {**after, "seq": after["seq"] + 0.5})}
    raise LookupError


class DrawnChange(NamedTuple):
    """A change that was put into a run of its own."""

    kind: str
    story: str
    is_wrong: bool
    edits: Edits


def drawn(seed: int, times: int = TIMES) -> Iterator[DrawnChange]:
    """Changes of all kinds, each time in another frame, in either story that has a place for it."""
    draw = Random(seed)
    for kinds in (WRONG, ALLOWED):
        for one in kinds:
            for _ in range(times):
                for story in draw.sample(list(STORIES), len(STORIES)):
                    try:
                        edits = one.make(true_run(story), draw)
                    except LookupError:
                        continue
                    yield DrawnChange(one.name, story, kinds is WRONG, edits)
                    break
                else:
                    raise LookupError(one.name)


def write(lake: Path, changes: Iterable[DrawnChange]) -> dict[str, DrawnChange]:
    """Write a run for each change; returns the changes by run."""
    writers = {story: RunWriter(true_run(story)) for story in STORIES}
    runs = {f"{number:03d}": one for number, one in enumerate(changes)}
    for run, one in runs.items():
        writers[one.story].write(lake, run, one.edits)
    return runs


class DrawnOutcome(NamedTuple):
    """What the rules said of a change."""

    change: DrawnChange
    accused: list[str]
    """A line for each violation."""

    @property
    def is_right(self) -> bool:
        """A wrong change is found, and one that is allowed is left alone."""
        return bool(self.accused) == self.change.is_wrong


def outcomes(runs: dict[str, DrawnChange], verdicts: Iterable[runner.Verdict]) -> list[DrawnOutcome]:
    """What these verdicts say of each change."""
    said: dict[str, list[str]] = defaultdict(list)
    for one in verdicts:
        said[one.run_id].append(f"{one.rule} broker {one.node_id}, seq {one.seq}: {one.detail}")
    return [DrawnOutcome(one, said[run]) for run, one in runs.items()]


def judged_by_spark(spark: Any, lake: Path, runs: Sequence[str]) -> Judgement:
    """The judgement of these runs of a lake that has journals only."""
    converted = [convert(lake, segment) for segment in segments(lake)]
    build_silver(SparkWorkers(spark), lake, [Source(one.table, one.run, one.path, one.rows) for one in converted if one.rows], 0)
    views(spark, lake, list(runs))
    return runner.judge(spark, list(runs))


def main() -> int:
    seed = int(next((each for each in sys.argv[1:] if each.isdigit()), "7"))
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)
        runs = write(lake, drawn(seed))
        verdicts = judged_quickly(lake)
        said = outcomes(runs, verdicts)
        if "--spark" in sys.argv[1:]:
            from klamm.pipeline.spark.session import open_session

            spark = open_session("local[2]", memory="2g", name="drawn", variables={})
            same = sorted(judged_by_spark(spark, lake, list(runs)).verdicts) == sorted(verdicts)
            spark.stop()
            print(f"Spark says {'the same' if same else 'something else'}")
    for one in said:
        if not one.is_right:
            what = "missed" if one.change.is_wrong else "falsely accused"
            print(f"{what}: {one.change.kind} ({one.change.story})", *one.accused[:3], sep="\n    ")
    wrong, right = ([one for one in said if one.change.is_wrong is is_wrong] for is_wrong in (True, False))
    print(f"{len(wrong)} wrong changes: {sum(bool(one.accused) for one in wrong)} found; "
          f"{len(right)} allowed ones: {sum(bool(one.accused) for one in right)} falsely accused")
    return 0 if all(one.is_right for one in said) else 1


if __name__ == "__main__":
    sys.exit(main())
