"""What the authorizer logs: each API once, by a client without permissions, with a broker of either kind (`denials.recorded`).

    python -m klamm.tests.security.denials      # makes the file again with a real Kafka
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.security.permission_requests import REQUESTS
from klamm.tests.security.permissions import FROM, SETTINGS, Table, allow_everything

FILE = Path(__file__).with_name("denials.recorded")
_LINE = re.compile(r"Principal = .* is Denied .* = .* for request = \w+")


def logged_by(broker: OwnedBroker, tree: Tree, log: Path) -> str:
    """Start a broker, send it all requests; returns the different lines of its log about this client, sorted."""
    allow_everything(tree)
    broker.start()
    try:
        table = Table(broker, tree)
        try:
            for name in ("t", "u", "td"):
                table.create(name)
            for asked in REQUESTS:
                if KEYS[asked.api] < 1000:
                    table.outcome(asked, messages.APIS[KEYS[asked.api]].max_version)
        finally:
            table.close()
        broker.stop()
    finally:
        broker.kill()
    lines = {match[0] for match in map(_LINE.search, log.read_text(errors="replace").splitlines()) if match is not None}
    return "".join(f"{line}\n" for line in sorted(lines) if f"host = {FROM} " in line)


def main() -> None:
    """Write the file again, with a real Kafka."""
    from klamm.tests.reference.jars import jars
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    server = EmbeddedZooKeeper()
    tree = Tree(server.start(), "/denials")
    try:
        with tempfile.TemporaryDirectory() as folder:
            broker = KafkaBroker(jars(), tree, Path(folder), 0, **SETTINGS)
            FILE.write_text(logged_by(broker, tree, broker.kafka_log), encoding="utf-8")
    finally:
        tree.close()
        server.stop()


if __name__ == "__main__":
    main()
