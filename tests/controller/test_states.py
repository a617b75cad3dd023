"""Legal moves of partitions and replicas, exactly as controller 6.1 and 7.1 list them; the shared maps of replica states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.controller.cluster import Cluster
from klamm.controller.states import (
    NO_REPLICAS,
    PARTITION_MOVES,
    REPLICA_MOVES,
    PartitionState,
    ReplicaState,
    ReplicaStateMaps,
)
from klamm.controller.values import Assignment

PARTITIONS = """
    NEW            NON_EXISTENT
    ONLINE         NEW ONLINE OFFLINE
    OFFLINE        NEW ONLINE OFFLINE
    NON_EXISTENT   OFFLINE
"""

REPLICAS = """
    NEW                   NON_EXISTENT
    ONLINE                NEW ONLINE OFFLINE DELETION_INELIGIBLE
    OFFLINE               NEW ONLINE OFFLINE DELETION_INELIGIBLE
    DELETION_STARTED      OFFLINE
    DELETION_SUCCESSFUL   DELETION_STARTED
    DELETION_INELIGIBLE   OFFLINE DELETION_STARTED
    NON_EXISTENT          DELETION_SUCCESSFUL
"""


def parse(table: str) -> dict[str, set[str]]:
    rows = [line.split() for line in table.strip().splitlines()]
    return {target: set(sources) for target, *sources in rows}


def test_moves_of_partitions() -> None:
    assert {t.name: {s.name for s in sources} for t, sources in PARTITION_MOVES.items()} == parse(PARTITIONS)


def test_moves_of_replicas() -> None:
    assert {t.name: {s.name for s in sources} for t, sources in REPLICA_MOVES.items()} == parse(REPLICAS)


def test_every_state_has_a_row() -> None:
    assert set(PARTITION_MOVES) == set(PartitionState)
    assert set(REPLICA_MOVES) == set(ReplicaState)


@pytest.mark.parametrize("before", ReplicaState)
@pytest.mark.parametrize("target", ReplicaState)
def test_the_cluster_separates_legal_from_illegal_moves(before: ReplicaState, target: ReplicaState) -> None:
    cluster = Cluster(1)
    topic = cluster.topic_added("t", None)
    p = cluster.partition_added(topic, 0, Assignment((0,)))
    cluster.replica_states_changed(0, [p], before)
    assert cluster.replica_state(p, 0) is before
    legal, illegal = cluster.legal_moves(0, [p], target)
    allowed = before.name in parse(REPLICAS)[target.name]
    assert (legal, illegal) == (([p], []) if allowed else ([], [p]))


def test_an_unknown_partition_and_an_unknown_replica_do_not_exist() -> None:
    cluster = Cluster(1)
    p = cluster.partition_added(cluster.topic_added("t", None), 0, Assignment((0,)))
    assert p.state is PartitionState.NON_EXISTENT
    assert cluster.replica_state(p, 0) is ReplicaState.NON_EXISTENT


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(ReplicaState)), max_size=20))
def test_shared_maps_of_replica_states_are_as_good_as_own_ones(moves: list[tuple[int, ReplicaState]]) -> None:
    maps, shared, own = ReplicaStateMaps(), NO_REPLICAS, dict[int, ReplicaState]()
    seen = []
    for broker, state in moves:
        before = dict(shared)
        after = maps.moved(shared, broker, state)
        assert shared == before, "a shared map is never changed"
        shared = after
        own[broker] = state
        if state is ReplicaState.NON_EXISTENT:
            del own[broker]
        assert shared == own
        seen.append(shared)
    for one in seen:
        for other in seen:
            assert (one == other) == (one is other), "equal maps are one object"
