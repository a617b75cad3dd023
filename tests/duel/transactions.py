"""Random requests about transactions: producers with transactional ids, what they write, how it ends, and what others see of it.

A producer id is known once a broker has given it, so a story has marks: `<pid @8>` and `<epoch @8>` stand for what InitProducerId gave to
the transactional id `@8` last, `<epoch @8 -1>` for the epoch before it. `tale.py` puts the numbers in while a story is told.

EndTxn has its response before the markers are written. So it is repeated, which waits for them, before anybody looks at records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm.tests.duel.data import KEEP
from klamm.tests.duel.draw import Draw, raw, scene
from klamm.tests.duel.restarts import AS_KAFKA
from klamm.tests.duel.tale import Lines

IDS, GROUPS = ("@8", "@7"), ("@6", "@5")
PARTITIONS = ("@1-0", "@1-1", "@2-0")
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence", "Nothing")
_CONFIGS = ("", "", "segment.bytes=200", "index.interval.bytes=0", "flush.messages=1", "message.timestamp.type=LogAppendTime")


@dataclass
class Producer:
    """A transactional id as the story should have left it."""

    known: bool = False
    open: list[str] = field(default_factory=list)
    """Partitions that are in the transaction."""
    next: dict[str, int] = field(default_factory=dict)
    """Partition → next sequence of the present epoch."""
    groups: list[str] = field(default_factory=list)
    may_hang: bool = False
    """Whether a partition may refuse the markers of its transactions: nobody waits for their end then."""

    @property
    def once(self) -> str:
        return "once" if self.may_hang else ""


def _producers(draw: Draw) -> dict[str, Producer]:
    producers = draw.notes.setdefault("transactions", {name: Producer() for name in IDS})
    assert isinstance(producers, dict)
    return producers


def _pick(draw: Draw) -> tuple[str, Producer]:
    name = draw.weighted([(6, IDS[0]), (3, IDS[1])])
    return name, _producers(draw)[name]


def _who(draw: Draw, name: str) -> tuple[str, bool]:
    """The producer of a request, as words, and whether it is the present one."""
    fault = draw.weighted([(22, ""), (2, "old"), (1, "new"), (1, "pid"), (1, "none")])
    epoch = {"old": f"<epoch {name} -1>", "new": f"<epoch {name} +1>"}.get(fault, f"<epoch {name}>")
    pid = f"<pid {IDS[1] if name == IDS[0] else IDS[0]}>" if fault == "pid" else f"<pid {name}>"
    return ("" if fault == "none" else f"pid={pid} epoch={epoch}"), not fault


def setting(draw: Draw) -> list[Lines]:
    """Two topics, and the first producers."""
    draw.created("@1", [["0"], ["0"]])
    draw.created("@2", [["0"]])
    topics = [(f"create @1 [0][0] {draw.one(_CONFIGS)}".strip(), "state @1"), (f"create @2 [0] {draw.one(_CONFIGS)}".strip(), "state @2")]
    groups = f"tx-coordinator {' '.join(GROUPS)} groups"
    return [*topics, (f"tx-coordinator {' '.join(IDS)}",), (groups,), *(_first(draw, name) for name in IDS)]


def _first(draw: Draw, name: str) -> Lines:
    _producers(draw)[name].known = True
    return (f"tx-init {name}",)


def init(draw: Draw) -> Lines:
    """InitProducerId: a new epoch, that of a producer that goes on, or a refusal. An open transaction is aborted."""
    name, producer = _pick(draw)
    timeout = draw.weighted([(6, ""), (1, "timeout=900000"), (1, f"timeout={draw.one([0, -1, 900001])}")])
    who, current = ("", True) if draw.chance(0.6) else _who(draw, name)
    version = draw.versions(3, 5).partition("-")[0] if who else f"v{draw.random.randint(0, 5)}"
    if current and timeout in ("", "timeout=900000"):
        producer.open, producer.next, producer.groups = [], {}, []
    return scene(" ".join(word for word in ("tx-init", name, who, timeout, producer.once, version) if word))


def fence(draw: Draw) -> Lines:
    """InitProducerId while a transaction is open: the producer has to come again, and nobody has the epoch in between."""
    name, producer = _pick(draw)
    producer.open, producer.next, producer.groups = [], {}, []
    return scene(f"tx-init {name} once", f"tx-described {name}")


def add(draw: Draw) -> Lines:
    """AddPartitionsToTxn."""
    name, producer = _pick(draw)
    who, current = _who(draw, name)
    partitions = draw.some(PARTITIONS, 1, 2, repeated=0.05)
    if draw.chance(0.06):
        partitions = [*partitions, draw.one(["@1-7", "no-such-topic-0", "__transaction_state-0"])]
    is_verify = draw.chance(0.12)
    version = f"v{draw.random.randint(4, 5)}" if is_verify else f"v{draw.random.randint(0, 5)}"
    if current and not is_verify and all(each in PARTITIONS for each in partitions):
        producer.open = list(dict.fromkeys([*producer.open, *partitions]))
    words = ("tx-add", name, who, *dict.fromkeys(partitions), "verify" * is_verify, producer.once, version)
    return scene(" ".join(word for word in words if word))


def produce(draw: Draw) -> Lines:
    """Records of a transaction; some in a partition that is not in it, of another epoch, with a gap, or of no transaction."""
    name, producer = _pick(draw)
    if not producer.open and draw.chance(0.85):
        return add(draw)
    inside = producer.open and draw.chance(0.9)
    partition = draw.one(producer.open if inside else PARTITIONS)
    sequence, epoch = producer.next.get(partition, 0), f"<epoch {name}>"
    records = draw.one([["a"], ["b", "k=v"], ["k=w*30", "~", "c"]])
    kind = draw.weighted([(24, "next"), (2, "again"), (2, "gap"), (1, "old"), (1, "new"), (1, "plain"), (1, "other")])
    transactional_id, flag = f"tx={name}", ",tx"
    if kind == "again":
        sequence = max(0, sequence - len(records))
    elif kind == "gap":
        sequence += draw.random.randint(1, 3)
    elif kind == "old":
        epoch = f"<epoch {name} -1>"
    elif kind == "new":
        epoch, producer.may_hang = f"<epoch {name} +1>", True
    elif kind == "plain":
        flag = ""
    elif kind == "other":
        transactional_id = draw.one([f"tx={IDS[1] if name == IDS[0] else IDS[0]}", "", "tx=unknown"])
    elif inside:
        producer.next[partition] = sequence + len(records)
    options = f"pid=<pid {name}>/{epoch}/{sequence}{flag}{draw.one(['', '', ',gzip'])}"
    version = draw.weighted([(5, ""), (3, f"v{draw.random.randint(3, 11)}")])
    return scene(" ".join(word for word in ("produce", partition, f"{options}({','.join(records)})", transactional_id, version) if word))


def produce_plainly(draw: Draw) -> Lines:
    """Records of nobody in between."""
    return scene(f"produce {draw.one(PARTITIONS)} ({draw.one(['x', 'y,z'])})")


def end(draw: Draw) -> Lines:
    """EndTxn, and its repetition, which waits for the markers."""
    name, producer = _pick(draw)
    who, current = _who(draw, name)
    result = draw.weighted([(3, "commit"), (2, "abort")])
    version = f"v{draw.random.randint(0, 4)}"
    if current:
        producer.open, producer.groups = [], []
    line = " ".join(word for word in ("tx-end", name, who, result, producer.once, version) if word)
    return scene(line, "" if producer.may_hang else line, f"tx-described {name}")


def offsets(draw: Draw) -> Lines:
    """AddOffsetsToTxn."""
    name, producer = _pick(draw)
    who, current = _who(draw, name)
    group = draw.weighted([(14, draw.one(GROUPS)), (1, "")])
    if current and group:
        producer.groups = list(dict.fromkeys([*producer.groups, group]))
    words = ("tx-offsets", name, who, group and f"group={group}", producer.once, f"v{draw.random.randint(0, 4)}")
    return scene(" ".join(word for word in words if word))


def commit(draw: Draw) -> Lines:
    """TxnOffsetCommit, mostly of a group that is in the transaction."""
    name, producer = _pick(draw)
    if not producer.groups and draw.chance(0.8):
        return offsets(draw)
    who, _ = _who(draw, name)
    group = draw.one(producer.groups) if producer.groups and draw.chance(0.85) else draw.one(GROUPS)
    version = draw.random.randint(0, 4)
    member = draw.weighted([(10, ""), (1, "generation=3 member=m"), (1, "generation=0")]) if version >= 3 else ""
    at = f"{draw.one([*PARTITIONS, PARTITIONS[0], '@1-7'])}@{draw.one([0, 1, 5, 70])}"
    return scene(" ".join(word for word in ("tx-commit", name, who, f"group={group}", member, at, producer.once, f"v{version}") if word))


def offsets_of_groups(draw: Draw) -> Lines:
    """OffsetFetch: what is committed, and whether a transaction may still change it."""
    return scene(_committed(draw.one(GROUPS), is_stable=draw.chance(0.6)))


def _committed(group: str, *, is_stable: bool) -> str:
    topics = [{"name": "@1", "partitionIndexes": [0, 1]}, {"name": "@2", "partitionIndexes": [0]}]
    return f"asked OffsetFetch v8 {raw({'groups': [{'groupId': group, 'topics': topics}], 'requireStable': is_stable})}"


def markers(draw: Draw) -> Lines:
    """WriteTxnMarkers of somebody else than the coordinator."""
    name, producer = _pick(draw)
    pid = draw.weighted([(3, f"<pid {name}>"), (2, "7000"), (1, "-1")])
    epoch = draw.weighted([(4, f"<epoch {name}>"), (1, f"<epoch {name} -1>"), (1, "3")])
    partitions = draw.some(PARTITIONS, 1, 2, repeated=0.0)
    coordinator_epoch = draw.one([0, 0, 0, 1, -1])
    producer.may_hang = producer.may_hang or pid.startswith("<")
    line = f"tx-markers {draw.one(['commit', 'abort'])} pid={pid} epoch={epoch} ce={coordinator_epoch} {' '.join(partitions)}"
    return scene(f"{line} {draw.one(['v0', 'v1'])}", f"producers {partitions[0]}")


def fetch(draw: Draw) -> Lines:
    """What is read, by readers of committed records or of all."""
    isolation = draw.weighted([(4, "isolation=1"), (1, "")])
    version = draw.weighted([(4, ""), (2, f"v{draw.random.randint(4, 17)}")])
    at = f"{draw.one(PARTITIONS)}@{draw.weighted([(4, 0), (1, 1), (1, 3)])}"
    return scene(" ".join(word for word in ("fetched", at, isolation, version) if word))


def last_stable_offset(draw: Draw) -> Lines:
    """ListOffsets of readers of committed records."""
    what = draw.one(["latest", "latest", "earliest", "max", "=0"])
    return scene(f"offsets {draw.one(PARTITIONS)}@{what} {draw.one(['isolation=1', 'isolation=1', ''])} v{draw.random.randint(7, 9)}")


def describe(draw: Draw) -> Lines:
    """DescribeTransactions."""
    return scene(f"tx-described {' '.join(draw.some([*IDS, 'unknown', 'empty'], 1, 3, repeated=0.0))}")


def list_all(draw: Draw) -> Lines:
    """ListTransactions; no story knows how long a transaction has been open."""
    states = f"states={','.join(draw.some(STATES, 1, 3, repeated=0.0))}" if draw.chance(0.5) else ""
    pids = f"pids={draw.one([f'<pid {IDS[0]}>', f'<pid {IDS[1]}>,7000', '-1'])}" if draw.chance(0.3) else ""
    version = draw.one([0, 1])
    longer = f"longer={draw.one([-1, -5, 100_000_000])}" if version and draw.chance(0.2) else ""
    return scene(" ".join(word for word in ("tx-list", states, pids, longer, f"v{version}") if word))


def producers(draw: Draw) -> Lines:
    """DescribeProducers."""
    return scene(f"producers {' '.join(draw.some(PARTITIONS, 1, 2, repeated=0.0))}")


def restart(draw: Draw) -> Lines:
    """The broker ends and starts: its coordinators load what they wrote."""
    properties = f"{'='.join(AS_KAFKA)} {'='.join(KEEP)}"
    return scene(draw.weighted([(1, "stop 0"), (1, "kill 0")]), f"start 0 {properties}", f"tx-described {' '.join(IDS)}")


def look(draw: Draw) -> list[Lines]:
    """Everything that anybody can see, at the end, when no transaction is open any more."""
    ends = []
    for name, producer in _producers(draw).items():
        line = f"tx-end {name} pid=<pid {name}> epoch=<epoch {name}> commit {producer.once}".strip()
        ends.append(scene(line, "" if producer.may_hang else line, f"tx-described {name}"))
    scenes: list[Lines] = [(f"producers {each}",) for each in PARTITIONS]
    scenes += [(f"fetched {each}@0 isolation=1",) for each in PARTITIONS]
    scenes += [*ends, ("tx-list",)]
    for each in PARTITIONS:
        scenes += [(f"fetched {each}@0 isolation=1",), (f"producers {each}",), (f"offsets {each}@latest isolation=1 v9",)]
    return [*scenes, *((_committed(group, is_stable=True),) for group in GROUPS)]
