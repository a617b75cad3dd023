"""docs/reactions.md has a row for each client and API with a cell for each effect, and the clients of Java react as a row says."""

from __future__ import annotations

import pytest

from klamm.server.local.loop_thread import LoopThread
from klamm.tests.control import reactions


def test_the_table_has_every_client_api_and_effect() -> None:
    rows = reactions.table()
    assert list(rows) == [(api, client) for api in reactions.APIS for client in (*reactions.CLIENTS, reactions.JAVA)]
    assert {len(cells) for cells in rows.values()} == {len(reactions.EFFECTS)}


TRIES = 5
"""The producer waits a second for metadata, in which its JVM also loads its classes. It may not send records on a busy machine."""


@pytest.mark.slow
@pytest.mark.reference
def test_a_producer_of_java_sends_again_after_an_error_and_after_a_closed_connection() -> None:
    thread = LoopThread("cluster")
    cluster = reactions.new_cluster()
    thread.call(cluster.start())
    try:
        for effect in ("error", "close amid"):
            for _ in range(TRIES):
                shown = reactions.reaction(thread, cluster, "Produce", reactions.JAVA, effect)
                if shown != "not requested":
                    break
            outcome, _, requests = shown.split(", ")
            assert outcome == "done" and int(requests) > 1, shown
    finally:
        reactions.JAVA_CLIENTS.end()
        thread.call(cluster.stop())
        thread.close()
