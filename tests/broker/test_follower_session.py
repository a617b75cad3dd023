"""The fetch session of a follower: what each request names, and what a response makes of the session (KIP-227)."""

from __future__ import annotations

import random

import pytest

from klamm.broker.follower_session import MAX_EPOCH, FollowerSession, Standing
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


def named(content):
    """What a request names: (session id, epoch, fetched, forgotten)."""
    fetched = [(topic.name, p.index, p.offset) for topic, partitions in content.partitions for p in partitions]
    forgotten = [(name, index) for name, _, indexes in content.forgotten for index in indexes]
    return content.session_id, content.session_epoch, fetched, forgotten


def started(*indexes, topic_id=A, session_id=77):
    """A session with these partitions of topic t, its full request answered."""
    session: FollowerSession[None] = FollowerSession()
    for index in indexes:
        session.add("t", topic_id, index, None, 0, 0)
    content = session.build()
    assert content is not None
    assert session.take(0, session_id, content.size)
    return session


def test_the_first_request_is_full_and_later_ones_name_only_what_changed():
    session = started(0, 1, 2)
    assert named(session.build()) == (77, 1, [], [])
    assert session.take(0, 77, 0)
    changed = session.get("t", 1)
    changed.offset = 5
    session.change(changed)
    assert named(session.build()) == (77, 2, [("t", 1, 5)], [])
    assert session.take(0, 77, 1)
    session.add("u", B, 0, None, 3, 9)
    session.remove("t", 2)
    assert named(session.build()) == (77, 3, [("u", 0, 9)], [("t", 2)])
    assert session.count == 3


def test_nothing_is_requested_without_partitions():
    session: FollowerSession[None] = FollowerSession()
    assert session.build() is None
    session.add("t", A, 0, None, 0, 0, Standing.TRUNCATING)
    assert session.build() is None


def test_the_last_partition_that_goes_is_forgotten_and_then_nothing_is_requested():
    session = started(0)
    session.leave(session.get("t", 0), Standing.DELAYED)
    assert named(session.build()) == (77, 1, [], [("t", 0)])
    assert session.take(0, 0, 0)  # a session without partitions is closed by the leader
    assert session.build() is None


def test_a_delayed_partition_is_forgotten_and_comes_back():
    session = started(0, 1)
    partition = session.get("t", 0)
    session.leave(partition, Standing.DELAYED)
    assert named(session.build()) == (77, 1, [], [("t", 0)])
    session.take(0, 77, 0)
    session.resume(partition)
    assert named(session.build()) == (77, 2, [("t", 0, 0)], [])


def test_a_partition_that_leaves_and_returns_between_two_requests_is_not_forgotten():
    session = started(0, 1)
    session.remove("t", 0)
    session.add("t", A, 0, None, 1, 4)
    content = session.build()
    assert named(content) == (77, 1, [("t", 0, 4)], [])
    assert content.partitions[0][1][0].leader_epoch == 1


def test_a_new_topic_id_forgets_the_partition_under_the_old_one():
    session = started(0)
    session.remove("t", 0)
    session.add("t", B, 0, None, 0, 0)
    content = session.build()
    assert content.forgotten == [("t", A, [0])]
    assert [(topic.topic_id, [p.index for p in partitions]) for topic, partitions in content.partitions] == [(B, [0])]
    assert content.has_ids
    assert session.topic_by_id(A) is None
    assert session.topic_by_id(B).partitions[0].offset == 0


def test_a_topic_whose_id_becomes_known_is_sent_again_and_not_forgotten_by_name():
    session = started(0, topic_id=ZERO_UUID)
    session.set_topic_id("t", A)
    content = session.build()
    assert named(content) == (77, 1, [("t", 0, 0)], [])
    assert content.has_ids  # the leader's session is one of names: it will refuse, and a new one begins


def test_one_topic_without_an_id_makes_the_whole_request_one_of_names():
    session = started(0)
    session.add("u", ZERO_UUID, 0, None, 0, 0)
    assert not session.build().has_ids
    session.take(0, 77, 0)
    session.remove("u", 0)
    assert not session.build().has_ids  # it is still to be forgotten
    session.take(0, 77, 0)
    assert session.build().has_ids


@pytest.mark.parametrize(
    ("code", "begins_with"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0)),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (77, 0)),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, (77, 0)),
        (ErrorCode.UNKNOWN_SERVER_ERROR, (77, 0)),
    ],
)
def test_an_error_of_the_session_begins_a_new_one_and_closes_the_old_if_there_is_one(code, begins_with):
    session = started(0, 1)
    session.build()
    assert not session.take(code, 0, 0)
    assert named(session.build()) == (*begins_with, [("t", 0, 0), ("t", 1, 0)], [])


def test_a_lost_request_begins_a_new_session_with_everything():
    session = started(0, 1)
    session.remove("t", 1)
    session.build()
    session.fail()
    assert named(session.build()) == (77, 0, [("t", 0, 0)], [])


def test_a_leader_without_sessions_gets_full_requests_only():
    session = started(0, 1, session_id=0)
    assert named(session.build()) == (0, 0, [("t", 0, 0), ("t", 1, 0)], [])
    assert session.concerns(session.get("t", 0))


def test_a_full_response_that_lacks_a_partition_does_not_count():
    session: FollowerSession[None] = FollowerSession()
    session.add("t", A, 0, None, 0, 0)
    session.add("t", A, 1, None, 0, 0)
    session.build()
    assert not session.take(0, 77, 1)
    assert named(session.build())[1] == 0


def test_a_leader_that_ends_the_session_gets_a_full_request_next():
    session = started(0)
    session.build()
    assert session.take(0, 0, 0)
    assert named(session.build()) == (0, 0, [("t", 0, 0)], [])


def test_session_epochs_begin_again_at_one_after_the_largest():
    session = started(0)
    session.session_epoch = MAX_EPOCH
    session.build()
    session.take(0, 77, 0)
    assert session.build().session_epoch == 1


def test_a_response_is_not_for_a_partition_that_changed_since_the_request():
    session = started(0, 1, 2)
    session.build()
    session.change(session.get("t", 1))
    session.add("t", A, 2, None, 1, 0)
    assert [session.concerns(session.get("t", index)) for index in range(3)] == [True, False, False]


def test_after_any_history_the_leader_has_exactly_the_partitions_that_are_ready():
    """A thousand random steps; a second, naive view keeps what the leader was told."""
    for seed in range(30):
        chance = random.Random(seed)
        session: FollowerSession[None] = FollowerSession()
        leader: dict[tuple[bytes, int], int] = {}
        for _ in range(300):
            topic, index, act = chance.choice("tu"), chance.randrange(5), chance.random()
            partition = session.get(topic, index)
            if act < 0.3:
                session.add(topic, chance.choice((A, B)) if topic == "t" else C, index, None, 0, chance.randrange(9))
            elif act < 0.4:
                session.remove(topic, index)
            elif partition is not None and act < 0.55 and partition.standing is Standing.READY:
                session.leave(partition, Standing.DELAYED)
            elif partition is not None and act < 0.7 and partition.standing is Standing.DELAYED:
                session.resume(partition)
            elif partition is not None and act < 0.8 and partition.standing is Standing.READY:
                partition.offset += 1
                session.change(partition)
            elif act > 0.9:
                exchange(session, leader, chance)
        exchange(session, leader, random.Random(1))
        exchange(session, leader, random.Random(1))
        assert leader == {(p.topic.topic_id, p.index): p.offset for p in session if p.standing is Standing.READY}


def exchange(session, leader, chance):
    """One request to a naive leader, which may lose its session."""
    content = session.build()
    if content is None:
        assert not leader or session.session_epoch == 0
        leader.clear()
        return
    if content.session_epoch == 0:
        leader.clear()
    for topic, partitions in content.partitions:
        for p in partitions:
            leader[topic.topic_id, p.index] = p.offset
    for _, topic_id, indexes in content.forgotten:
        for index in indexes:
            del leader[topic_id, index]
    if chance.random() < 0.2:
        session.take(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0)
    else:
        session.take(0, 5 if leader else 0, content.size if content.session_epoch == 0 else 0)


def test_the_removal_of_a_partition_says_whether_it_was_fetched():
    session = started(0)
    assert [session.remove("t", 0), session.remove("t", 0), session.remove("none", 0)] == [True, False, False]
    assert session.count == 0
