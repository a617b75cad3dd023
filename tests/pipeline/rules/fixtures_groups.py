"""Tiny journals of the rules `G`, and of X-05."""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rule_journals.group_journals import GROUP, REBALANCE_IN_PROGRESS, GroupJournal, assignment
from klamm.tests.pipeline.rule_journals.transaction_journals import TransactionJournal
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.fixtures_wire import broker, later

BOTH = assignment({"t": [0, 1]})
FIRST, SECOND = assignment({"t": [0]}), assignment({"t": [1]})
TWO = {"a": FIRST, "b": SECOND}
UNKNOWN_MEMBER, MEMBER_ID_REQUIRED, FENCED = 25, 79, 82


def first_generations(run: Run) -> GroupJournal:
    """Member a alone in generation 1, then with b in generation 2."""
    group = GroupJournal(run)
    group.join("a", -1, "", asked_as="", error=MEMBER_ID_REQUIRED)
    group.join("a", 1, "a", ("a",))
    group.sync("a", 1, BOTH, {"a": BOTH})
    group.heartbeat("a", 1, REBALANCE_IN_PROGRESS)
    group.join("b", 2, "a")
    group.join("a", 2, "a", ("a", "b"))
    return group


# --- G-01


@good("G-01")
def two_generations_have_a_leader_each(run: Run) -> None:
    group = first_generations(run)
    group.sync("b", 2, SECOND)
    group.sync("a", 2, FIRST, TWO)
    group.sync("b", 2, SECOND)
    group.join("b", 3, "b", ("b",))


@good("G-01")
def a_static_leader_comes_back_with_a_new_id(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a", "b"), asked_as="", instance="one")
    group.join("b", 1, "a", asked_as="", instance="two")
    group.join("a2", 1, "a2", ("a2", "b"), asked_as="", instance="one")
    group.join("b", 1, "a2", instance="two")


@good("G-01")
def a_group_that_was_deleted_begins_again_with_another_leader(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a",))
    group.join("b", 1, "b", ("b",))


@good("G-01")
def another_coordinator_makes_the_generation_again(run: Run) -> None:
    group = GroupJournal(run)
    group.told_to_lead(0)
    group.join("a", 4, "a", ("a", "b"))
    group.told_to_lead(1, leader=2)
    group.told_to_lead(2)
    group.join("b", 4, "b", ("b",))


@bad("G-01")
def a_generation_has_two_leaders(run: Run) -> int:
    group = first_generations(run)
    return group.join("b", 2, "b", ("a", "b"))


@bad("G-01")
def a_first_generation_has_two_leaders(run: Run) -> int:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a", "b"))
    return group.join("b", 1, "b", ("a", "b"))


@bad("G-01")
def a_static_member_comes_back_and_another_leader_is_told(run: Run) -> int:
    """The new id of the static member is not that of the other leader."""
    group = GroupJournal(run)
    group.join("a", 2, "a", ("a", "b"), asked_as="", instance="one")
    group.join("a2", 2, "a2", ("a2", "b"), asked_as="", instance="one")
    return group.join("b", 2, "b", ("a2", "b"))


@bad("G-01")
def a_generation_has_two_protocols(run: Run) -> int:
    group = first_generations(run)
    return group.join("b", 2, "a", protocol="sticky")


@bad("G-01", also=["G-03"])
def a_member_gets_another_assignment_when_it_syncs_again(run: Run) -> int:
    group = first_generations(run)
    group.sync("a", 2, FIRST, TWO)
    group.sync("b", 2, SECOND)
    return group.sync("b", 2, BOTH)


@silent("G-01")
def nobody_joined(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", -1, "", asked_as="", error=MEMBER_ID_REQUIRED)


# --- G-02


@good("G-02")
def generations_grow_and_one_without_members_is_not_seen(run: Run) -> None:
    group = first_generations(run)
    group.heartbeat("b", 2)
    group.join("c", 4, "c", ("c",))
    group.join("c", 5, "c", ("c",))


@good("G-02")
def a_generation_whose_members_did_not_get_their_responses(run: Run) -> None:
    group = first_generations(run)
    group.ask_join("b", conn=7)
    group.join("a", 4, "a", ("a",))


@good("G-02")
def a_group_begins_again_with_other_members(run: Run) -> None:
    group = first_generations(run)
    group.join("c", 1, "c", ("c",))
    group.join("c", 2, "c", ("c",))


@good("G-02")
def a_coordinator_that_was_another_one_meanwhile(run: Run) -> None:
    group = GroupJournal(run)
    group.told_to_lead(0)
    group.join("a", 5, "a", ("a",))
    group.told_to_lead(1, leader=2)
    group.told_to_lead(2)
    group.join("a", 9, "a", ("a",))
    group.told_to_lead(3, leader=2)
    group.told_to_lead(4)
    group.join("a", 8, "a", ("a",))


@good("G-02")
def what_a_journal_with_a_gap_does_not_say_is_not_judged(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a",))
    other = GroupJournal(run, 2)
    other.join("a", 1, "a", ("a",))
    other.journal.skip(3)
    other.join("a", 6, "a", ("a",))


@bad("G-02")
def a_generation_goes_back(run: Run) -> int:
    group = first_generations(run)
    group.join("a", 3, "a", ("a",))
    return group.join("a", 2, "a", ("a",))


@bad("G-02")
def a_member_goes_back_to_the_first_generation(run: Run) -> int:
    group = first_generations(run)
    return group.join("a", 1, "a", ("a",))


@bad("G-02")
def a_generation_is_left_out_although_a_member_stays(run: Run) -> int:
    group = first_generations(run)
    return group.join("a", 4, "a", ("a",))


@bad("G-02")
def two_generations_are_left_out(run: Run) -> int:
    group = first_generations(run)
    return group.join("c", 5, "c", ("c",))


# --- G-03


@good("G-03")
def everybody_gets_what_the_leader_sent(run: Run) -> None:
    group = first_generations(run)
    group.sync("b", 2, error=REBALANCE_IN_PROGRESS)
    asked = group.ask_sync("b", 2, conn=2)
    group.sync("a", 2, FIRST, TWO)
    group.journal.response(2, asked, messages.SyncGroupResponse(assignment=SECOND))


@good("G-03")
def a_member_for_which_nothing_was_sent_gets_nothing(run: Run) -> None:
    group = first_generations(run)
    group.sync("a", 2, FIRST, {"a": FIRST})
    group.sync("b", 2)


@good("G-03")
def a_static_member_that_came_back_has_what_its_old_id_had(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a", "b"), asked_as="", instance="one")
    group.join("b", 1, "a", asked_as="", instance="two")
    group.sync("a", 1, FIRST, TWO, instance="one")
    group.join("b2", 1, "a", asked_as="", instance="two")
    group.sync("b2", 1, SECOND, instance="two")
    group.join("a2", 1, "a2", ("a2", "b2"), asked_as="", instance="one")
    group.sync("a2", 1, FIRST, instance="one")
    group.sync("a2", 1, FIRST, {"a2": BOTH}, instance="one")


@bad("G-03")
def two_members_get_each_others_assignments(run: Run) -> list[int]:
    group = first_generations(run)
    return [group.sync("a", 2, SECOND, TWO), group.sync("b", 2, FIRST)]


@bad("G-03")
def a_member_gets_what_nobody_sent(run: Run) -> int:
    group = first_generations(run)
    group.sync("a", 2, FIRST, {"a": FIRST})
    return group.sync("b", 2, SECOND)


@bad("G-03")
def a_member_for_which_nothing_was_sent_gets_a_few_bytes(run: Run) -> int:
    group = first_generations(run)
    group.sync("a", 2, FIRST, {"a": FIRST})
    return group.sync("b", 2, b"abc")


@bad("G-03")
def a_member_gets_the_assignment_of_the_generation_before(run: Run) -> int:
    group = first_generations(run)
    return group.sync("a", 2, BOTH, TWO)


@silent("G-03")
def the_assignment_is_from_before_the_journal(run: Run) -> None:
    group = GroupJournal(run)
    group.sync("b", 7, SECOND)
    group.join("b", 7, "a")
    group.sync("b", 7, SECOND)


# --- G-04


@good("G-04")
def commits_of_the_current_generation_succeed_and_late_ones_fail(run: Run) -> None:
    group = first_generations(run)
    group.commit("a", 1, 5, 22)
    group.commit("a", 2, 5)
    late = group.ask_commit("b", 2, 6, conn=7)
    group.join("a", 3, "a", ("a", "b"))
    group.answer_commit(late, conn=7)


@bad("G-04")
def a_commit_of_the_generation_before_succeeds(run: Run) -> int:
    group = first_generations(run)
    return group.commit("a", 1, 5)


@bad("G-04")
def a_commit_of_a_generation_to_come_succeeds(run: Run) -> int:
    group = first_generations(run)
    return group.commit("a", 3, 5)


@silent("G-04")
def commits_from_outside_of_the_group_or_of_a_generation_that_is_not_known(run: Run) -> None:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    group.commit("a", 7, 6)


# --- G-05


@good("G-05")
def the_last_commit_is_fetched_in_all_versions(run: Run) -> None:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    group.fetch(5)
    group.commit("", -1, 3, version=2)
    group.commit("", -1, 9, 28)
    group.fetch(3, version=5)


@good("G-05")
def commits_under_way_may_count(run: Run) -> None:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    lost = group.ask_commit("", -1, 6, conn=3)
    fetched = group.ask_fetch()
    under_way = group.ask_commit("", -1, 7, conn=4)
    group.answer_fetch(fetched, 7)
    group.answer_commit(under_way, conn=4)
    group.fetch(6)
    group.answer_commit(lost, 15, conn=3)
    group.fetch(7)


@good("G-05")
def two_commits_at_one_time_have_no_order(run: Run) -> None:
    group = GroupJournal(run)
    one, two = group.ask_commit("", -1, 5, conn=3), group.ask_commit("", -1, 6, conn=4)
    group.answer_commit(two, conn=4)
    group.answer_commit(one, conn=3)
    group.fetch(5)
    group.fetch(6)


@good("G-05")
def an_offset_may_expire_after_a_minute(run: Run) -> None:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    group.fetch(5)
    later(group.journal, 61)
    group.fetch(-1)


@good("G-05")
def an_offset_with_a_retention_time_may_expire_at_any_time(run: Run) -> None:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    group.commit("", -1, 6, version=2, retention_ms=1)
    group.fetch(6)
    group.fetch(-1)


@good("G-05")
def a_commit_that_is_answered_by_another_coordinator_may_count(run: Run) -> None:
    group = GroupJournal(run)
    group.told_to_lead(0)
    group.commit("", -1, 5)
    lost = group.ask_commit("", -1, 6, conn=3)
    group.fetch(6)
    group.told_to_lead(1, leader=2)
    group.answer_commit(lost, 16, conn=3)


@bad("G-05")
def the_commit_before_is_fetched(run: Run) -> int:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    group.commit("", -1, 6)
    return group.fetch(5)


@bad("G-05")
def a_commit_is_lost(run: Run) -> int:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    return group.fetch(-1)


@bad("G-05")
def a_commit_that_was_refused_is_fetched(run: Run) -> int:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    group.commit("a", 1, 6, 22)
    return group.fetch(6)


def in_transaction(run: Run) -> tuple[GroupJournal, TransactionJournal]:
    """Offset 7 is committed, and 9 in a transaction; broker 2 coordinates that."""
    group, other = GroupJournal(run), TransactionJournal(run, 2)
    other.told(2, topic="__transaction_state")
    other.init(0)
    other.add_offsets(0)
    group.commit("", -1, 7)
    group.txn_commit(9)
    return group, other


def marked(run: Run, is_commit: bool = True) -> None:
    TransactionJournal(run).marker(0, 0, is_commit=is_commit, coordinator=2, topic="__consumer_offsets")


@good("G-05")
def offsets_of_a_transaction_count_from_its_marker_on(run: Run) -> None:
    group, other = in_transaction(run)
    group.fetch(7)
    other.end(0)
    marked(run)
    group.fetch(9)
    group.txn_commit(11)
    group.fetch(9)
    group.commit("", -1, 10)
    marked(run)  # the transaction's offset was appended before
    group.fetch(10)


@good("G-05")
def offsets_of_an_aborted_transaction_do_not_count(run: Run) -> None:
    group, other = in_transaction(run)
    other.end(0, False)
    marked(run, is_commit=False)
    group.fetch(7)


@good("G-05")
def a_broker_of_klamm_that_coordinates_both_does_not_show_the_marker(run: Run) -> None:
    group, other = GroupJournal(run), TransactionJournal(run)
    other.init(0)
    other.add_offsets(0)
    group.commit("", -1, 7)
    group.txn_commit(9)
    other.end(0)
    group.fetch(7)
    group.fetch(9)


@good("G-05")
def a_marker_of_a_later_transaction_says_nothing_of_one_whose_marker_is_not_shown(run: Run) -> None:
    group, other = GroupJournal(run), TransactionJournal(run)
    other.init(0)
    other.add_offsets(0)
    group.commit("", -1, 7)
    group.txn_commit(9)
    other.end(0)
    other.add_offsets(0)
    other.end(0, False)
    marked(run, is_commit=False)
    group.fetch(9)


@bad("G-05")
def an_offset_of_an_aborted_transaction_is_returned(run: Run) -> int:
    group, other = in_transaction(run)
    other.end(0, False)
    marked(run, is_commit=False)
    return group.fetch(9)


@bad("G-05")
def an_offset_of_a_committed_transaction_is_not_returned(run: Run) -> int:
    group, other = in_transaction(run)
    other.end(0)
    marked(run)
    return group.fetch(7)


@bad("G-05")
def a_transaction_that_is_ended_later_replaces_a_newer_commit(run: Run) -> int:
    group, other = in_transaction(run)
    group.commit("", -1, 10)
    other.end(0)
    marked(run)
    return group.fetch(9)


@silent("G-05")
def offsets_that_were_committed_before_or_to_another_coordinator(run: Run) -> None:
    group = GroupJournal(run)
    group.told_to_lead(0)
    group.fetch(4)
    group.commit("", -1, 5)
    group.told_to_lead(1, leader=2)
    group.told_to_lead(2)
    group.fetch(8)
    group.commit("", -1, 9, version=2, retention_ms=1)
    group.fetch(-1)


@silent("G-05")
def offsets_of_a_group_that_was_deleted(run: Run) -> None:
    group = GroupJournal(run)
    group.commit("", -1, 5)
    asked = group.journal.request(5, ApiKey.DELETE_GROUPS, 2, messages.DeleteGroupsRequest([GROUP]))
    result = messages.DeleteGroupsResponse.DeletableGroupResult(GROUP, 0)
    group.journal.response(5, asked, messages.DeleteGroupsResponse(results=[result]))
    group.fetch(-1)


# --- G-06


@good("G-06")
def a_member_that_is_unknown_stays_unknown(run: Run) -> None:
    group = first_generations(run)
    group.heartbeat("b", 2, UNKNOWN_MEMBER)
    group.heartbeat("b", 2, UNKNOWN_MEMBER)
    group.heartbeat("a", 2)


@good("G-06")
def a_fenced_instance_has_another_member(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a",), asked_as="", instance="one")
    group.join("a2", 1, "a2", asked_as="", instance="one")
    group.heartbeat("a", 1, FENCED, instance="one")
    group.heartbeat("a2", 1, instance="one")
    group.heartbeat("a2", 1, FENCED, instance="two")
    group.heartbeat("a2", 1, instance="one")


@good("G-06")
def a_heartbeat_that_was_under_way_succeeds(run: Run) -> None:
    """Its response comes after UNKNOWN_MEMBER_ID, its request came before."""
    group = first_generations(run)
    asked = group.journal.request(2, ApiKey.HEARTBEAT, 3, messages.HeartbeatRequest("g", 2, "b"))
    group.commit("b", 2, 5, UNKNOWN_MEMBER)
    group.journal.response(2, asked, messages.HeartbeatResponse())


@bad("G-06")
def a_heartbeat_of_an_unknown_member_succeeds(run: Run) -> int:
    group = first_generations(run)
    group.commit("b", 2, 5, UNKNOWN_MEMBER)
    return group.heartbeat("b", 2)


@bad("G-06")
def a_heartbeat_of_a_fenced_member_succeeds(run: Run) -> int:
    group = first_generations(run)
    group.sync("b", 2, error=FENCED, instance="one")
    return group.heartbeat("b", 2, instance="one")


@silent("G-06")
def a_member_is_unknown_until_it_joins(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", -1, "", asked_as="", error=MEMBER_ID_REQUIRED)
    group.heartbeat("a", 1, UNKNOWN_MEMBER)
    group.join("a", 1, "a", ("a",))
    group.heartbeat("a", 1)


# --- G-07


@good("G-07")
def members_of_the_generation_commit(run: Run) -> None:
    group = first_generations(run)
    group.commit("a", 2, 5)
    group.commit("b", 2, 6)
    group.commit("c", 2, 7, UNKNOWN_MEMBER)
    group.commit("", -1, 8)


@good("G-07")
def the_leader_was_told_of_a_member_whose_own_response_came_late(run: Run) -> None:
    group = GroupJournal(run)
    asked = group.ask_join("b", conn=2)
    group.join("a", 1, "a", ("a", "b"))
    group.commit("b", 1, 5)
    assert asked


@good("G-07")
def a_static_member_comes_back_with_another_id_and_commits(run: Run) -> None:
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a", "b"), instance="one")
    group.join("b", 1, "a", instance="two")
    group.join("b2", 1, "a", asked_as="", instance="two")
    group.commit("b2", 1, 5)


@bad("G-07")
def a_commit_of_a_member_that_never_joined_succeeds(run: Run) -> int:
    group = first_generations(run)
    return group.commit("c", 2, 5)


@bad("G-07")
def a_commit_of_a_member_of_the_generation_before_succeeds(run: Run) -> int:
    group = first_generations(run)
    group.join("b", 3, "b", ("b",))
    return group.commit("a", 3, 5)


@silent("G-07")
def the_leader_of_the_generation_got_no_response(run: Run) -> None:
    group = GroupJournal(run)
    group.join("b", 1, "a")
    group.commit("c", 1, 5)


# ---


@good("X-05")
def partitions_are_given_to_one_member_each(run: Run) -> None:
    group = first_generations(run)
    group.sync("a", 2, FIRST, TWO)


@good("X-05")
def a_partition_is_named_twice_for_one_member(run: Run) -> None:
    group = first_generations(run)
    twice = assignment({"t": [0, 0]})
    group.sync("a", 2, twice, {"a": twice, "b": SECOND})


@bad("X-05")
def a_partition_is_given_to_two_members(run: Run) -> int:
    group = first_generations(run)
    return group.sync("a", 2, BOTH, {"a": BOTH, "b": SECOND}) - 1


@silent("X-05")
def assignments_of_other_protocols_are_not_looked_into(run: Run) -> None:
    group = GroupJournal(run, protocol_type="connect")
    group.join("a", 1, "a", ("a", "b"))
    group.sync("a", 1, BOTH, {"a": BOTH, "b": SECOND})


@silent("X-05")
def no_group_has_members(run: Run) -> None:
    broker(run)
