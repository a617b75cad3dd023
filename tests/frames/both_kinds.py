"""An Apache Kafka broker and a Klamm broker that are sent the same at the same time, and the count of what they respond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from klamm.tests.frames.sending import NO_ANSWER
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree


class SendsToBroker(Protocol):
    """What sends to one broker."""

    broker: OwnedBroker

    def close(self) -> None: ...


S = TypeVar("S", bound=SendsToBroker)


@contextmanager
def both_kinds(
    zookeeper: str, folder: Path, name: str, properties_of: Callable[[], Mapping[str, str]], ready: Callable[[OwnedBroker], S]
) -> Iterator[Sequence[S]]:
    """A broker of each kind on one ZooKeeper, Apache Kafka first. `ready` starts a broker and returns what sends to it."""
    from klamm.tests.reference.jars import jars

    trees = [Tree(zookeeper, f"/{name}-{kind}") for kind in ("kafka", "klamm")]
    folders = [folder / f"{name}-{kind}" for kind in ("kafka", "klamm")]
    brokers = [
        KafkaBroker(jars(), trees[0], folders[0], 0, **properties_of()),
        OwnedBroker(trees[1], folders[1], 0, **properties_of()),
    ]
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            yield list(pool.map(ready, brokers))
    finally:
        for broker, tree in zip(brokers, trees, strict=True):
            broker.kill()
            tree.close()


class Outcomes:
    """Counts outcomes of Apache Kafka, and differences. A request to which it has no answer is counted and is not a difference."""

    def __init__(self) -> None:
        self.of_kafka = Counter[str]()
        self.differences = 0

    def differ(self, kafka: str, klamm: str) -> bool:
        """Count what became of one request. Whether that is a difference."""
        self.of_kafka[kafka if kafka in ("closed", NO_ANSWER) else "answer"] += 1
        differs = kafka not in (klamm, NO_ANSWER)
        self.differences += differs
        return differs

    def end(self, senders: Sequence[SendsToBroker], when: str) -> None:
        """Close what sends. A broker that is not running any more is a difference, and is printed."""
        for sender in senders:
            sender.close()
            if not sender.broker.alive():
                self.differences += 1
                print(f"a broker ended {when}: {sender.broker.tail()}", flush=True)

    def __str__(self) -> str:
        return f"{dict(self.of_kafka)}, {self.differences} differences"
