"""Random requests about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, producers, log directories.

The sketch of a log (`Sketch`) guesses its end and the next sequence of each producer, so that most requests mean something. Sizes depend
on the compressing library where a broker compresses again, so nobody asks for sizes of a topic with a `compression.type`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm.tests.duel.draw import INT32, INT64, Draw, lists_of, scene
from klamm.tests.duel.restarts import AS_KAFKA
from klamm.tests.duel.tale import Lines

KEEP = ("log.retention.ms", "-1")
"""Records of stories are of 2020."""
SECOND = "1"
"""The other broker under test of stories about truncation."""
_PRODUCERS = (1, 2, 7000)
_CONFIGS = (
    "message.timestamp.type=LogAppendTime",
    "compression.type=gzip",
    "compression.type=uncompressed",
    "compression.type=lz4",
    "max.message.bytes=200",
    "segment.bytes=200",
    "segment.bytes=1000",
    "cleanup.policy=compact",
    "cleanup.policy=compact,delete",
    "min.insync.replicas=2",
    "index.interval.bytes=0",
    "message.timestamp.after.max.ms=1000",
    "message.timestamp.before.max.ms=1000",
    "message.timestamp.difference.max.ms=1000",
    "flush.messages=1",
    "retention.bytes=300",
)
_VALUES = ("a", "b", "k=v", "k=~", "k=w*30", "x*150", "~", "=", "k=z!h:1", "y!h:~!h:2", "c@5", "d@-70000", "e@now", "f@=0", "g@=-1")
_SPOILT = (
    "crc",
    "count=5",
    "count=0",
    "last=0",
    "last=7",
    "first=3",
    "base=9",
    "cut=3",
    "size=4",
    "size=-70",
    "more=00",
    "as-magic=3",
    "codec=5",
    "gzip,junk=xyz",
    "le=9",
    "append",
    "control",
    "max-time=1700000000000",
)


@dataclass
class Sketch:
    """One partition as the story should have left it."""

    end: int = 0
    start: int = 0
    next: dict[int, int] = field(default_factory=dict)
    """Producer id → next sequence."""
    epochs: dict[int, int] = field(default_factory=dict)


def _logs(draw: Draw) -> dict[str, Sketch]:
    """The sketches of a story's partitions, by `@1-0`."""
    logs = draw.notes.setdefault("logs", {})
    assert isinstance(logs, dict)
    return logs


def _partition(draw: Draw) -> tuple[str, Sketch]:
    """Mostly a partition that there is."""
    logs = _logs(draw)
    if logs and draw.chance(0.95):
        name = draw.one(list(logs))
        return name, logs[name]
    return draw.one(["@9-0", "@1-7", "@1--1", "no-such-topic-0"]), Sketch()


def create(draw: Draw) -> Lines:
    """A topic led by the broker under test, some with followers that stories play."""
    name = draw.new_topic()
    if name in draw.topics:
        return ()
    replicas = draw.weighted([(3, ["0"]), (2, ["0", *draw.fakes[:1]]), (1, ["0", *draw.fakes[:2]])])
    count = draw.random.randint(1, 2)
    draw.created(name, [replicas] * count)
    for index in range(count):
        _logs(draw)[f"{name}-{index}"] = Sketch()
    config = " ".join({c.partition("=")[0]: c for c in draw.some(_CONFIGS, 0, 2, repeated=0)}.values())
    if "compression.type" in config:
        draw.notes[name] = "compressed again"
    return scene(f"create {name} {lists_of([replicas] * count)} {config}".strip(), f"state {name}")


def _batch(draw: Draw, log: Sketch, *, spoilt: float = 0.12) -> str:
    """One batch, often of an idempotent producer: its next one, a repeated one, a gap, another epoch."""
    records = [draw.one(_VALUES) for _ in range(draw.weighted([(4, 1), (3, 2), (2, 3), (1, 0)]))]
    options = [draw.one(["gzip", "snappy", "lz4", "zstd"])] if draw.chance(0.25) else []
    written = True
    if draw.chance(0.12):
        old = draw.one(["magic=1", "magic=0"])
        records = [record.partition("!")[0] for record in records]
        if old == "magic=0":
            options, records = [], [record.partition("@")[0] for record in records]
        options = [old, *options]
    elif draw.chance(0.5):
        producer = draw.one(_PRODUCERS)
        epoch, sequence = log.epochs.get(producer, 0), log.next.get(producer, 0)
        kind = draw.weighted([(12, "next"), (4, "again"), (2, "gap"), (2, "epoch"), (1, "old"), (1, "edge")])
        if kind == "again":
            sequence, written = max(0, sequence - draw.random.randint(1, 3) * max(1, len(records))), False
        elif kind == "gap":
            sequence, written = sequence + draw.random.randint(1, 4), False
        elif kind == "epoch":
            epoch, sequence = epoch + draw.random.randint(1, 2), draw.weighted([(5, 0), (1, 3)])
        elif kind == "old":
            epoch, written = draw.one([epoch - 1, 0]), False
        elif kind == "edge":
            sequence, written = draw.one([INT32 - 1, -1, INT32 - 2]), False
        options.append(f"pid={producer}/{epoch}/{sequence}")
        if written:
            log.epochs[producer], log.next[producer] = epoch, sequence + len(records)
    if draw.chance(spoilt):
        options.append(draw.one(_SPOILT))
    if written:
        log.end += len(records)
    return f"{','.join(options)}({','.join(records)})"


def produce(draw: Draw, to: str = "") -> Lines:
    """One to three batches for one or two partitions, with any acks and version."""
    words = []
    for _ in range(draw.weighted([(5, 1), (1, 2)])):
        name, log = _partition(draw)
        if name in words:
            continue
        batches = [_batch(draw, log) for _ in range(draw.weighted([(10, 1), (1, 2)]))]
        words += [name, *("empty" if draw.chance(0.01) else batch for batch in batches)]
    acks = draw.weighted([(5, ""), (4, "acks=1"), (1, "acks=0"), (1, f"acks={draw.one([2, -2])}")])
    version = draw.weighted([(6, ""), (3, f"v{draw.random.randint(3, 11)}"), (1, f"v{draw.random.randint(0, 2)}")])
    return scene(" ".join(word for word in ("produce", *words, acks, "timeout=400", version, to) if word))


def _offset(draw: Draw, log: Sketch) -> int:
    return draw.weighted([(6, draw.random.randint(0, max(log.end, 1))), (3, 0), (2, log.end), (1, draw.one([-1, log.end + 1, INT64 - 1]))])


def fetch(draw: Draw, to: str = "") -> Lines:
    """By a consumer, within a session or not, or by a follower."""
    words, plain = [], True
    for name, log in dict(_partition(draw) for _ in range(draw.random.randint(1, 2))).items():
        plain = plain and not draw.notes.get(name.partition("-")[0])
        settings = ""
        if draw.chance(0.15):
            settings += f",le={draw.one(['+0', '-1', '+1', '0', '9'])}"
        if draw.chance(0.15):
            settings += f",last={draw.one([0, 1, 9])}"
        words.append((f"{name}@{_offset(draw, log)}", settings))
    limit = f",max={draw.one([1, 80, 200, 0])}" if plain and draw.chance(0.25) else ""
    reader = draw.weighted([(6, ""), (3, f"as={draw.one(draw.fakes)}" if draw.fakes else ""), (1, "as=4711")])
    options = [reader, draw.one(["", "", "isolation=1"]), draw.weighted([(4, ""), (1, f"max={draw.one([1, 100, 300])}")]) if plain else ""]
    if draw.chance(0.3):
        options.append(f"session={draw.one('ab')}")
        if draw.chance(0.2):
            options.append(draw.one(["sid=77", "sepoch=5", "sepoch=0", "sepoch=-1"]))
        if draw.chance(0.2):
            options.append(f"forget={_partition(draw)[0]}")
    version = draw.weighted([(6, ""), (3, f"v{draw.random.randint(4, 17)}"), (1, f"v{draw.random.randint(0, 3)}")])
    if "session" in " ".join(options):
        version = draw.one(["", "v12", "v13"])
    elif any("last=" in more for _, more in words) and version.lstrip("v").isdigit() and int(version[1:]) < 12:
        version = "v12"
    line = " ".join(word for word in ("fetch", *(at + more + limit for at, more in words), *options, version, to) if word)
    return scene(line)


def offsets(draw: Draw, to: str = "") -> Lines:
    """ListOffsets by name or by time."""
    name, _ = _partition(draw)
    at = draw.one(["latest", "earliest", "max", "local", "tiered", "0", "5", "-70000", "=0", f"={INT64 - 1}", "=1700000000000"])
    settings = f",le={draw.one(['+0', '-1', '+1'])}" if draw.chance(0.15) else ""
    isolation = draw.one(["", "", "isolation=1"])
    versions = draw.versions(2 if isolation else 1, 9)
    return scene(" ".join(word for word in ("offsets", f"{name}@{at}{settings}", isolation, versions, to) if word))


def epoch_ends(draw: Draw, to: str = "") -> Lines:
    """OffsetForLeaderEpoch."""
    name, _ = _partition(draw)
    settings = f",le={draw.one(['+0', '-1', '+1'])}" if draw.chance(0.2) else ""
    reader = f"as={draw.one(draw.fakes)}" if draw.fakes and draw.chance(0.4) else ""
    epoch = draw.one([0, 1, 2, 3, 9, -1])
    return scene(" ".join(word for word in ("epoch-ends", f"{name}@{epoch}{settings}", reader, draw.versions(0, 4), to) if word))


def delete_records(draw: Draw) -> Lines:
    """DeleteRecords up to any offset; where followers do not follow it waits for them in vain."""
    name, log = _partition(draw)
    at = draw.weighted([(5, str(draw.random.randint(0, max(log.end, 1)))), (2, "hw"), (1, draw.one(["-2", str(log.end + 5), "0"]))])
    if at.isdigit():
        log.start = max(log.start, int(at))
    return scene(f"delete-records {name}@{at} timeout=300 {draw.versions(0, 2)}", f"fetched {name}@{log.start}")


def producers(draw: Draw, to: str = "") -> Lines:
    """DescribeProducers."""
    names = {_partition(draw)[0] for _ in range(draw.random.randint(1, 2))}
    return scene(" ".join(word for word in ("producers", *sorted(names), to) if word))


def log_dirs(draw: Draw) -> Lines:
    """DescribeLogDirs with sizes, and moves to where no directory is."""
    name, _ = _partition(draw)
    if draw.chance(0.3):
        return scene(f"move-log {name} dir={draw.one(['own', '/no/such/dir', 'relative'])} {draw.versions(0, 2)}")
    sizes = "" if draw.notes.get(name.partition("-")[0]) else " sizes"
    return scene(f"log-dirs {name}{sizes} {draw.versions(1, 4)}")


def configure(draw: Draw) -> Lines:
    """A config of a topic changes."""
    if not draw.topics:
        return ()
    topic, config = draw.one(list(draw.topics)), draw.one(_CONFIGS)
    if "compression.type" in config:
        draw.notes[topic] = "compressed again"
    key = config.partition("=")[0]
    return scene(
        f"alter-config topic {topic} {draw.weighted([(3, 'set ' + config), (1, f'delete {key}=')])}", f"configs topic {topic} {key}"
    )


def lead_again(draw: Draw) -> Lines:
    """A follower leaves the ISR, or comes back, so that the leader epoch may rise."""
    if not draw.fakes:
        return ()
    fake = draw.one(draw.fakes)
    if fake in draw.alive:
        draw.alive.remove(fake)
        return scene(f"die {fake}", f"state {draw.one(list(draw.topics) or ['@1'])}")
    draw.alive.append(fake)
    return scene(f"back {fake}", f"state {draw.one(list(draw.topics) or ['@1'])}")


def elect(draw: Draw) -> Lines:
    """The preferred replica leads, if another one did."""
    if not draw.topics:
        return ()
    topic = draw.one(list(draw.topics))
    return scene(f"elect preferred {topic}-0", f"state {topic}")


def look(draw: Draw) -> list[Lines]:
    """Everything that a client can see of every log, at the end."""
    scenes: list[Lines] = []
    for name in _logs(draw):
        scenes += [(f"fetch {name}@0",), (f"producers {name}",), (f"offsets {name}@earliest v9",), (f"offsets {name}@latest v9",)]
        scenes += [(f"offsets {name}@max v9",), (f"epoch-ends {name}@0",), (f"epoch-ends {name}@1",)]
    return scenes


def restart(draw: Draw) -> Lines:
    """The broker under test ends and starts: what it reads from its logs is what it had."""
    name, _ = _partition(draw)
    properties = f"{'='.join(AS_KAFKA)} {'='.join(KEEP)}"
    return scene(draw.weighted([(1, "stop 0"), (1, "kill 0")]), f"start 0 {properties}", f"fetched {name}@0")


def truncation(draw: Draw) -> list[Lines]:
    """A whole story: the leader writes while its follower is away, is killed, the follower leads and writes; the former leader
    truncates its log, follows, and leads again: what it knows of producers and epochs must be what its log says.
    """
    properties = f"{'='.join(AS_KAFKA)} {'='.join(KEEP)}"
    configs = " ".join(["unclean.leader.election.enable=true", *draw.some(["segment.bytes=200", "flush.messages=1"], 0, 1, repeated=0)])
    draw.created("@1", [["0", SECOND]])
    logs = _logs(draw)
    logs["@1-0"] = Sketch()
    scenes: list[Lines] = [(f"start {SECOND} {properties}",), (f"create @1 [0,{SECOND}] {configs}", "state @1")]

    def write(most: int, acks: str = "", to: str = "") -> None:
        for _ in range(draw.random.randint(1, most)):
            batch = _batch(draw, logs["@1-0"], spoilt=0.0)
            scenes.append((" ".join(word for word in ("produce", "@1-0", batch, acks, to) if word),))

    write(4)
    scenes.append((f"kill {SECOND}", "state @1"))
    before = Sketch(logs["@1-0"].end, 0, dict(logs["@1-0"].next), dict(logs["@1-0"].epochs))
    write(8, "acks=1")
    if draw.chance(0.3):
        scenes.append(("stop 0",))
    else:
        scenes.append(("kill 0",))
    logs["@1-0"] = before
    scenes.append((f"start {SECOND} {properties}", f"until @1-0 leader={SECOND}"))
    if draw.chance(0.7):
        write(4, to=f"to {SECOND}")
    scenes.append((f"start 0 {properties}", f"until @1-0 isr={SECOND},0"))
    scenes += [(f"fetched @1-0@0 to {SECOND}",), (f"epoch-ends @1-0@0 to {SECOND}",)]
    scenes.append((f"elect preferred @1-0 to {SECOND}", "until @1-0 leader=0"))
    scenes.append(("producers @1-0 to 0",))
    for _ in range(draw.random.randint(2, 5)):
        batch = _batch(draw, logs["@1-0"], spoilt=0.0)
        scenes.append((f"produce @1-0 {batch} to 0",))
    scenes += [(f"{line[0]} to 0",) for line in look(draw)]
    return [*scenes, (f"delete @1 to {SECOND}", "children /brokers/topics"), (f"stop {SECOND}",)]
