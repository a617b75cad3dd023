"""Fixtures of the rules `C` about states: leader epochs, partition epochs, ISRs, recovery marks."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.tests.pipeline.rules.controllers import ID_TEXT, NO_ID, OTHER_ID, Channel, State, alter, elected, handled, written
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

GONE: dict[str, Any] = {"leader": -2, "leader_epoch": 0, "partition_epoch": 0}
"""How UpdateMetadata says that a topic is being deleted."""


# --- C-01


@good("C-01")
def late_frames_of_a_former_controller_are_refused(run: Run) -> None:
    former, broker = Channel(run.journal(), 1, controller=8), Channel(run.journal(), 2, epoch=2)
    former.both(State(leader_epoch=1, partition_epoch=1))
    broker.both(State(leader_epoch=2, partition_epoch=2))
    former.both(State(leader_epoch=1, partition_epoch=1), error=11)
    broker.lead(State(leader_epoch=1, partition_epoch=1), refused=11)


@good("C-01")
def a_name_means_another_topic_after_its_deletion(run: Run) -> None:
    broker = Channel(run.journal())
    old = State(leader_epoch=5, partition_epoch=5, topic_id=NO_ID)
    broker.update(old, version=6)
    broker.update(old._replace(**GONE), version=6)
    broker.update(old._replace(leader_epoch=0, partition_epoch=0), version=6)
    broker.update(State(leader_epoch=3, partition_epoch=3, topic="again"))
    broker.update(State(topic="again", topic_id=OTHER_ID))


@good("C-01", also=["W-03"])
def a_request_without_response_was_perhaps_not_taken(run: Run) -> None:
    broker = Channel(run.journal())
    broker.update(State(leader_epoch=2, partition_epoch=2), error=None)
    broker.conn = 2
    broker.update(State(leader_epoch=1, partition_epoch=1))


@good("C-01")
def leader_epochs_wrap(run: Run) -> None:
    broker = Channel(run.journal())
    broker.update(State(leader_epoch=2147483647, partition_epoch=1))
    broker.update(State(leader_epoch=-2147483648, partition_epoch=2))


@bad("C-01", also=["C-19"])
def the_leader_epoch_falls(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State(leader_epoch=5, partition_epoch=5))
    return broker.update(State(leader_epoch=4, partition_epoch=6))


@bad("C-01")
def a_leader_without_leader_epoch(run: Run) -> int:
    return Channel(run.journal()).update(State(leader_epoch=-1))


@bad("C-01", also=["C-19"])
def the_sender_alone_is_journaled(run: Run) -> int:
    channel = Channel(run.journal(), controller=1, to=2)
    channel.update(State(leader_epoch=5, partition_epoch=5))
    return channel.update(State(leader_epoch=4, partition_epoch=6))


@bad("C-01", also=["C-19"])
def sender_and_receiver_are_journaled(run: Run) -> tuple[int, int]:
    sent, received = Channel(run.journal(1), controller=1, to=2), Channel(run.journal(2), controller=1)
    seq = 0
    for state in (State(leader_epoch=5, partition_epoch=5), State(leader_epoch=4, partition_epoch=6)):
        sent.update(state)
        seq = received.update(state)
    return 2, seq


# --- C-02


@good("C-02")
def the_old_isr_goes_with_the_target(run: Run) -> None:
    broker = Channel(run.journal())
    broker.both(State(replicas=(1, 4, 2), adding=(4,), removing=(2,)))
    broker.both(State(leader_epoch=1, partition_epoch=1, replicas=(1, 4)))
    broker.update(State(replicas=(1,), isr=(1, 2))._replace(**GONE))
    broker.update(State(-1, 7, (2,), 7, topic="u", topic_id=OTHER_ID))


@good("C-02")
def a_broker_that_starts_in_the_middle_sees_the_target_first(run: Run) -> None:
    Channel(run.journal()).both(State(replicas=(1, 4, 2), adding=(4,), removing=(2,)))
    Channel(run.journal(2)).update(State(leader_epoch=1, partition_epoch=1, replicas=(1, 4)))


@good("C-02")
def a_leader_asks_for_an_isr_without_itself(run: Run) -> None:
    broker = Channel(run.journal(), controller=1)
    broker.both(State())
    alter(run.journal(), State(isr=(2,)))
    broker.update(State(isr=(2,), partition_epoch=1))
    broker.both(State(leader_epoch=1, isr=(2,), partition_epoch=2))


@bad("C-02")
def a_leader_is_outside_an_isr_that_it_was_refused(run: Run) -> int:
    broker = Channel(run.journal())
    broker.both(State())
    alter(run.journal(), State(isr=(2,)), error=42)
    return broker.update(State(isr=(2,), partition_epoch=1))


@bad("C-02")
def the_isr_has_a_stranger(run: Run) -> int:
    return Channel(run.journal()).update(State(isr=(1, 7)))


@bad("C-02")
def the_leader_is_not_in_the_isr(run: Run) -> int:
    return Channel(run.journal()).update(State(isr=(2,)))


# --- C-05


@good("C-05")
def writes_count_up(run: Run) -> None:
    journal = run.journal()
    written(journal, 0, None, op="create")
    written(journal, 1, 0)
    written(journal, 9, 8, outcome="BAD_VERSION")
    written(journal, 2, 1)
    written(journal, 0, None, op="create")
    written(journal, 1, 0)


@good("C-05")
def an_unknown_former_partition_epoch_proves_nothing(run: Run) -> None:
    broker = Channel(run.journal())
    broker.update(State(leader_epoch=4, partition_epoch=4), error=-1)
    broker.update(State(leader_epoch=3, partition_epoch=3))


@bad("C-05")
def a_creation_has_version_1(run: Run) -> int:
    return written(run.journal(), 1, None, op="create")


@bad("C-05")
def a_write_skips_a_version(run: Run) -> int:
    return written(run.journal(), 7, 5)


@bad("C-05")
def a_broker_is_told_an_older_state(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State(leader_epoch=3, partition_epoch=3), State(3, 9, (3,), 9, (3,), partition=1))
    return broker.update(State(leader_epoch=3, partition_epoch=2), State(3, 9, (3,), 9, (3,), partition=1))


# --- C-06


@good("C-06")
def a_recovering_leader_is_alone(run: Run) -> None:
    Channel(run.journal()).lead(State(isr=(1,), recovery=1))
    alter(run.journal(), State(isr=(1,), recovery=1))


@bad("C-06")
def a_recovering_leader_has_company(run: Run) -> int:
    return Channel(run.journal()).lead(State(recovery=1))


@bad("C-06", also=["C-08", "C-19"])
def a_leader_recovers_and_keeps_its_company(run: Run) -> int:
    broker = Channel(run.journal())
    broker.lead(State())
    return broker.lead(State().next(recovery=1))


@bad("C-06")
def an_isr_grows_while_recovering(run: Run) -> int:
    return alter(run.journal(), State(recovery=1))


@silent("C-06")
def nobody_recovers(run: Run) -> None:
    Channel(run.journal()).lead(State())


# --- C-07


@good("C-07")
def an_unclean_election_leaves_its_mark(run: Run) -> None:
    broker = Channel(run.journal())
    before = State(-1, 4, (2,), 4)
    broker.both(before)
    broker.both(before.next(leader=1, isr=(1,), recovery=1))
    older = State(-1, 4, (2,), 4, topic="u", topic_id=OTHER_ID)
    broker.lead(older, version=5)
    broker.lead(older.next(leader=1, isr=(1,)), version=5)


@silent("C-07", also=["C-02"])
def who_leads_outside_of_the_isr_is_not_elected_again(run: Run) -> None:
    broker = Channel(run.journal())
    broker.both(State(1, 1, (1, 2), 1))
    broker.both(State(1, 2, (2,), 2))
    broker.both(State(1, 3, (2,), 3))


@bad("C-07")
def an_unclean_election_leaves_no_mark(run: Run) -> int:
    broker = Channel(run.journal())
    broker.both(State(-1, 4, (2,), 4))
    return broker.both(State(1, 5, (1,), 5))


@bad("C-07")
def an_unclean_leader_keeps_the_isr(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State(-1, 4, (2,), 4))
    return broker.update(State(1, 5, (1, 2), 5))


# --- C-08


@good("C-08")
def alter_partition_clears_the_mark(run: Run) -> None:
    broker = Channel(run.journal(), controller=1)
    broker.lead(State(1, 1, (1,), 1, recovery=1))
    alter(run.journal(), State(1, 1, (1,), 1))
    broker.lead(State(1, 2, (1,), 3))
    broker.lead(State(1, 1, (1,), 1, recovery=1, partition=1))
    alter(run.journal(), State(1, 1, (1,), 1, partition=1), answered=False)
    broker.lead(State(1, 2, (1,), 3, partition=1))


@good("C-08")
def an_election_keeps_the_mark(run: Run) -> None:
    broker = Channel(run.journal(), controller=1)
    broker.lead(State(1, 1, (1,), 1, recovery=1))
    broker.lead(State(1, 2, (1,), 2, recovery=1))


@silent("C-08")
def the_controller_has_no_journal(run: Run) -> None:
    broker = Channel(run.journal())
    broker.lead(State(1, 1, (1,), 1, recovery=1))
    broker.lead(State(1, 2, (1,), 3))


@bad("C-08")
def an_election_clears_the_mark(run: Run) -> int:
    broker = Channel(run.journal(), controller=1)
    broker.lead(State(1, 1, (1,), 1, recovery=1))
    return broker.lead(State(1, 2, (1,), 2))


# --- C-17


@good("C-17", also=["W-03"])
def a_partition_begins_with_its_online_replicas(run: Run) -> None:
    broker = Channel(run.journal())
    first = State(1, 0, (1, 2), 0, (3, 1, 2), offline=(3,), is_new=True)
    broker.lead(first, error=None)
    broker.conn = 2
    broker.lead(first)
    broker.update(first)
    broker.update(first._replace(offline=()))
    added = State(1, 5, (1, 2), 5, (1, 3, 2), (3,), (2,), is_new=True, topic="moved", topic_id=OTHER_ID)
    broker.both(added)


@good("C-17")
def a_broker_that_somebody_wrote_twice_is_in_sync_twice(run: Run) -> None:
    Channel(run.journal()).both(State(2, 0, (2, 1, 2), 0, (2, 1, 3, 2), offline=(3,), is_new=True))


@bad("C-17")
def the_second_replica_leads_first(run: Run) -> int:
    return Channel(run.journal()).both(State(2, 0, (1, 2), 0, (1, 2), is_new=True))


@bad("C-17")
def an_offline_replica_is_in_sync_from_the_start(run: Run) -> int:
    return Channel(run.journal()).both(State(1, 0, (1, 2), 0, (1, 2), offline=(2,), is_new=True))


@silent("C-17")
def nothing_is_new(run: Run) -> None:
    Channel(run.journal()).both(State())


# --- C-18, C-19


@good("C-18")
def two_brokers_hear_of_the_same_leader(run: Run) -> None:
    for node in (1, 2):
        Channel(run.journal(node)).both(State(leader_epoch=3, partition_epoch=3))
        Channel(run.journal(node)).update(State()._replace(**GONE))


@bad("C-18", also=["C-19"])
def two_brokers_hear_of_different_leaders(run: Run) -> tuple[int, int]:
    Channel(run.journal(1)).both(State(1, 3, (1, 2), 3))
    run.journal(2).now_ns += 1_000_000_000
    return 2, Channel(run.journal(2)).update(State(2, 3, (1, 2), 4))


@good("C-19")
def each_write_is_an_election_or_alter_partition(run: Run) -> None:
    broker = Channel(run.journal(), controller=1)
    broker.both(State(1, 1, (1, 2), 1))
    broker.both(State(1, 2, (1,), 2))
    alter(run.journal(), State(1, 2, (1, 2), 2))
    broker.update(State(1, 2, (1, 2), 3))
    alter(run.journal(), State(1, 2, (1,), 3), answered=False)
    broker.update(State(1, 2, (1,), 4))
    broker.update(State(1, 4, (1,), 8))


@good("C-19")
def alter_partition_is_in_a_journal_that_is_missing(run: Run) -> None:
    broker = Channel(run.journal(), controller=9)
    broker.update(State(1, 1, (1, 2), 1))
    broker.update(State(1, 1, (1,), 2))


@silent("C-19")
def a_topic_without_id_begins_anew(run: Run) -> None:
    broker = Channel(run.journal())
    broker.update(State(topic_id=NO_ID), version=6)
    broker.update(State(topic_id=NO_ID)._replace(**GONE), version=6)
    broker.update(State(2, 0, (2,), 0, (2,), topic_id=NO_ID), version=6)


@bad("C-19")
def two_isrs_in_one_partition_epoch(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State(1, 1, (1, 2), 1))
    return broker.update(State(1, 1, (1,), 1))


@bad("C-19")
def the_isr_changes_without_alter_partition(run: Run) -> int:
    broker = Channel(run.journal(), controller=1)
    broker.update(State(1, 1, (1, 2), 1))
    alter(run.journal(), State(1, 1, (1,), 1), error=75)
    return broker.update(State(1, 1, (1,), 2))


@bad("C-19")
def two_elections_in_one_write(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State(1, 1, (1, 2), 1))
    return broker.update(State(1, 3, (1, 2), 2))


# --- C-21


@good("C-21")
def alter_partition_returns_what_was_asked_for(run: Run) -> None:
    journal = run.journal()
    for version in (0, 2, 3):
        alter(journal, State(1, 3, (1, 2), 5), version=version)
    alter(journal, State(1, 3, (1, 2), 5), result=State(1, 3, (1, 2), 5))
    alter(journal, State(1, 3, (1, 2), 5), error=75)
    alter(journal, State(1, 3, (1, 2), 5), answered=False)


def _altered(journal: Any, asked: State, version: int, **columns: Any) -> tuple[int, int]:
    """An AlterPartition request with the write that follows from it, and its response; the seqs of the request and of the event."""
    seq = alter(journal, asked, answered=False)
    event = handled(journal, "AlterPartition", cause=seq)
    written(journal, version, asked.partition_epoch, cause=event, **columns)
    return seq, event


def _returned(journal: Any, seq: int, result: State) -> int:
    back = messages.AlterPartitionResponse
    data = back.PartitionData(partition_index=0, leader_id=result.leader, leader_epoch=result.leader_epoch, isr=tuple(result.isr),
                              partition_epoch=result.partition_epoch)
    return int(journal.response(50, seq, back(topics=[back.TopicData(topic_id=result.topic_id, partitions=[data])])))


@good("C-21")
def alter_partition_returns_what_was_written(run: Run) -> None:
    journal = run.journal()
    seq, _ = _altered(journal, State(1, 3, (1, 2), 5), 6)
    _returned(journal, seq, State(1, 3, (1, 2), 6))
    seq = alter(journal, State(1, 3, (1, 2), 5), answered=False)
    handled(journal, "AlterPartition", cause=seq)
    _returned(journal, seq, State(1, 3, (1, 2), 9))
    seq = alter(journal, State(1, 3, (1, 2), 9), answered=False)
    event = handled(journal, "AlterPartition", cause=seq)
    journal.event("reassign_phase", topic="t", topic_id=ID_TEXT, partition=0, output={"phase": "B3", "step": 1}, cause=event)
    written(journal, 10, 9, cause=event)
    written(journal, 11, 10, cause=event)
    _returned(journal, seq, State(1, 3, (1, 2), 9))


@good("C-21")
def an_event_answers_two_requests_and_writes_for_one(run: Run) -> None:
    journal = run.journal()
    unchanged = alter(journal, State(1, 3, (1, 2), 5), answered=False)
    changed = alter(journal, State(1, 3, (1,), 5), answered=False)
    event = handled(journal, "AlterPartition", cause=unchanged)
    written(journal, 6, 5, cause=event)
    _returned(journal, unchanged, State(1, 3, (1, 2), 5))
    _returned(journal, changed, State(1, 3, (1,), 6))


@bad("C-21", also=["C-05"])
def alter_partition_returns_another_partition_epoch(run: Run) -> list[int]:
    journal = run.journal()
    seq, _ = _altered(journal, State(1, 3, (1, 2), 5), 6)
    early = _returned(journal, seq, State(1, 3, (1, 2), 5))
    seq, _ = _altered(journal, State(1, 3, (1, 2), 6), 8)
    return [early, _returned(journal, seq, State(1, 3, (1, 2), 8))]


@bad("C-21")
def alter_partition_returns_another_isr(run: Run) -> int:
    return alter(run.journal(), State(1, 3, (1, 2), 5), result=State(1, 3, (2, 1), 6))


@bad("C-21")
def a_refusal_carries_a_state(run: Run) -> int:
    return alter(run.journal(), State(1, 3, (1, 2), 5), error=75, result=State(1, 3, (1, 2), 6))


@bad("C-21")
def the_partition_epoch_of_a_response_is_older(run: Run) -> int:
    elected(run.journal(), brokers=())
    return alter(run.journal(), State(1, 3, (1, 2), 5), result=State(1, 3, (1, 2), 4))
