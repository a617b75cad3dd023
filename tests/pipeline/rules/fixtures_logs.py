"""Tiny journals of the rules `L`."""

from __future__ import annotations

from klamm.tests.pipeline.rule_journals.log_journals import LogJournal
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

NOT_LEADER = 6

# --- L-01


@good("L-01")
def batches_that_are_open_together_get_rising_offsets(run: Run) -> None:
    log = LogJournal(run)
    first, second = log.ask(), log.ask()
    log.answer(first, 4)
    log.answer(second, 5)
    log.produce(6)
    log.produce(2, conn=2)
    log.produce(3, conn=2)


@good("L-01")
def a_batch_that_repeats_another_one_has_its_offset(run: Run) -> None:
    log = LogJournal(run)
    log.produce(4, producer=7, sequence=0)
    log.produce(5, producer=7, sequence=1)
    log.produce(4, producer=7, sequence=0)
    log.produce(2, producer=8, sequence=3)
    log.produce(1, producer=7, sequence=5, epoch=1)
    log.produce(9, producer=7, sequence=2)


@good("L-01")
def of_a_request_that_was_cut_nobody_knows_whether_it_repeats_one(run: Run) -> None:
    log = LogJournal(run)
    log.produce(4)
    asked = log.ask()
    log.cut(60)
    log.answer(asked, 2)
    log.produce(6)
    log.produce(7)


@good("L-01")
def after_an_error_nothing_is_known(run: Run) -> None:
    log = LogJournal(run)
    log.produce(4)
    log.produce(5)
    log.produce(-1, error=NOT_LEADER)
    log.produce(2)


@good("L-01")
def a_new_leader_epoch_truncated_the_log(run: Run) -> None:
    log = LogJournal(run)
    log.produce(4)
    log.produce(5)
    asked = log.ask()
    log.told(epoch=1)
    log.answer(asked, 2)
    log.produce(2)


@good("L-01")
def a_topic_that_is_deleted_begins_again(run: Run) -> None:
    log = LogJournal(run)
    log.produce(4)
    log.produce(5)
    log.told(-2)
    log.told()
    log.produce(0)


@silent("L-01")
def not_all_changes_of_leaders_are_in_the_journal(run: Run) -> None:
    """The state of the partition is behind the end of what was kept."""
    log = LogJournal(run)
    log.produce(5)
    log.told_in_part(epoch=1)
    log.produce(4)


@bad("L-01")
def a_base_offset_falls_while_both_requests_are_open(run: Run) -> int:
    log = LogJournal(run)
    log.produce(3)
    first, second = log.ask(), log.ask()
    log.answer(first, 5)
    return log.answer(second, 4)


@bad("L-01")
def two_batches_get_the_same_base_offset(run: Run) -> int:
    log = LogJournal(run)
    log.produce(5)
    return log.produce(5)


@bad("L-01", also=["K-04"])
def a_base_offset_falls_between_two_requests(run: Run) -> int:
    log = LogJournal(run)
    log.produce(5, magic=1)
    log.told()
    seq = log.produce(4)
    log.produce(5)
    return seq


@bad("L-01")
def the_next_batch_of_a_producer_has_a_lower_offset(run: Run) -> int:
    log = LogJournal(run)
    log.produce(5, producer=7, sequence=0)
    log.produce(1, producer=8, sequence=0)
    return log.produce(4, producer=7, sequence=1)


@silent("L-01")
def nobody_told_the_broker_who_leads(run: Run) -> None:
    log = LogJournal(run)
    log.told(epoch=1)
    log.produce(5)
    log.told(epoch=2)
    log.produce(4)


# --- L-02


@good("L-02")
def a_high_watermark_rises_and_stays(run: Run) -> None:
    log = LogJournal(run)
    log.fetch(4)
    log.fetch(4, version=13)
    log.list_end(5)
    log.list_end(2, isolation=1)
    log.list_end(0, timestamp=-2)
    log.list_end(9, replica=2)
    log.fetch(6, conn=4)


@good("L-02")
def a_fetch_that_was_open_has_the_older_one(run: Run) -> None:
    log = LogJournal(run)
    log.fetch(4)
    asked = log.ask_fetch(conn=4)
    log.list_end(6)
    log.answer_fetch(asked, 5, conn=4)


@good("L-02")
def in_another_leader_epoch_it_may_begin_lower(run: Run) -> None:
    log = LogJournal(run)
    log.fetch(4)
    asked = log.ask_fetch()
    log.told(epoch=1)
    log.answer_fetch(asked, 9)
    log.fetch(2)
    log.fetch(3)


@bad("L-02", also=["F-06"])
def a_high_watermark_falls_in_fetch(run: Run) -> int:
    log = LogJournal(run)
    log.fetch(4)
    return log.fetch(3, conn=4, version=13)


@bad("L-02")
def the_end_of_a_partition_falls_in_list_offsets(run: Run) -> int:
    log = LogJournal(run)
    log.fetch(4)
    log.told()
    return log.list_end(3)


@silent("L-02")
def a_follower_takes_the_high_watermark_of_its_leader(run: Run) -> None:
    log = LogJournal(run, leader=2)
    log.fetch(4)
    log.fetch(3)


@silent("L-02")
def a_log_that_moves_to_another_directory_may_be_behind(run: Run) -> None:
    log = LogJournal(run)
    log.fetch(4)
    log.move_logs()
    log.fetch(3)


# --- L-03


@good("L-03")
def what_all_have_is_below_the_end(run: Run) -> None:
    log = LogJournal(run)
    log.produce(3, acks=-1)
    log.list_end(4)
    log.produce(4, acks=1)
    log.list_end(4)
    asked = log.ask(acks=-1)
    log.fetch(4)
    log.answer(asked, 5)
    log.fetch(6)
    log.list_end(0, timestamp=-2)


@good("L-03")
def after_an_unclean_election_less_is_there(run: Run) -> None:
    log = LogJournal(run)
    log.produce(3, acks=-1)
    log.list_end(4)
    log.told(epoch=1)
    log.list_end(2)


@bad("L-03")
def list_offsets_says_less_than_was_acknowledged(run: Run) -> int:
    log = LogJournal(run)
    log.produce(3, acks=-1)
    return log.list_end(3)


@bad("L-03")
def fetch_says_less_than_was_acknowledged(run: Run) -> int:
    log = LogJournal(run)
    log.produce(3, acks=-1, producer=7, sequence=0)
    return log.fetch(3)


@silent("L-03")
def only_the_leader_has_it(run: Run) -> None:
    log = LogJournal(run)
    log.produce(3, acks=1)
    log.list_end(3)
