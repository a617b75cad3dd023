"""Fixtures of the rules `C` about requests: controller epochs, batches, channels, versions, live brokers, Metadata."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rules.controllers import OTHER_ID, Channel, State, batch, elected, handled, up, written
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

# --- C-03


@good("C-03", also=["W-11"])
def a_former_controller_is_refused(run: Run) -> None:
    journal = run.journal()
    former, now = Channel(journal, 1, controller=8), Channel(journal, 2, epoch=2)
    former.update()
    Channel(journal, 2, epoch=2, broker_epoch=5).update(error=77)
    former.stop(State())
    now.update()
    former.lead(State(), error=11)
    former.update(error=31)
    Channel(journal, 3, epoch=3).update(error=None)
    now.update(error=11)


@good("C-03")
def requests_of_two_controllers_overtake_each_other(run: Run) -> None:
    journal = run.journal()
    ok = messages.UpdateMetadataResponse(error_code=0)
    late = Channel(journal, 1, controller=8).update(error=None)
    early = Channel(journal, 2, epoch=2).update(error=None)
    journal.response(1, late, ok)
    journal.response(2, early, ok)


@good("C-03")
def a_process_that_starts_has_taken_nothing(run: Run) -> None:
    Channel(run.journal(), 1, epoch=2).update()
    Channel(run.journal(), 2, epoch=1, process=2).update()


@good("C-03")
def the_controller_epoch_behind_the_last_one_is_refused(run: Run) -> None:
    Channel(run.journal(), 1, epoch=-(2**31)).update(error=11)
    Channel(run.journal(2), 1, epoch=0).update()


@bad("C-03")
def a_negative_controller_epoch_is_taken(run: Run) -> int:
    return Channel(run.journal(), 1, epoch=-1).update()


@bad("C-03")
def a_former_controller_is_obeyed(run: Run) -> int:
    Channel(run.journal(), 1, epoch=2).update()
    return Channel(run.journal(), 2, controller=8, epoch=1).update()


@bad("C-03")
def a_controller_is_refused_without_reason(run: Run) -> int:
    Channel(run.journal(), 1).update()
    return Channel(run.journal(), 1).update(error=11)


# --- C-04


@good("C-04")
def each_controller_epoch_has_its_controller(run: Run) -> None:
    elected(run.journal(), 1)
    Channel(run.journal(), controller=1, to=2, epoch=1).update()
    Channel(run.journal(2), controller=1, epoch=1).update()
    Channel(run.journal(2), controller=3, epoch=2).update()


@bad("C-04")
def two_controllers_claim_an_epoch(run: Run) -> int:
    Channel(run.journal(), 1, controller=9).update()
    return Channel(run.journal(), 2, controller=8).update()


# --- C-09


def _altered(run: Run, *, led: bool, updated: bool = True, completes: bool = False, leader_epoch: int = 0) -> tuple[int, int]:
    """An AlterPartition event: the seqs of its write and of its LeaderAndIsr, or of its UpdateMetadata."""
    journal = run.journal()
    state = {"topic": "t", "partition": 0, "output": {"leader": 1, "isr": [1], "recovering": False, "controller_epoch": 1}}
    journal.event("partition_state", leader_epoch=0, partition_epoch=0, cause=handled(journal, "TopicChange"), **state)
    event = handled(journal, "AlterPartition")
    write = written(journal, 1, 0, cause=event, leader_epoch=leader_epoch)
    journal.event("partition_state", leader_epoch=leader_epoch, partition_epoch=1, cause=event, **state)
    if completes:
        journal.event("reassign_phase", topic="t", partition=0, output={"phase": "B1", "step": 1}, cause=event, controller_epoch=1)
    channel = Channel(journal, 1, controller=1, to=2, batch=batch(journal, event))
    lead = channel.lead(State(partition_epoch=1)) if led else 0
    if updated:
        channel.update(State(partition_epoch=1))
    else:
        channel.update()
    after = handled(journal, "BrokerChange")
    Channel(journal, 1, controller=1, to=2, batch=batch(journal, after)).update()
    return write, lead


@good("C-09")
def an_isr_change_is_sent_by_update_metadata(run: Run) -> None:
    _altered(run, led=False)


@good("C-09")
def an_isr_change_completes_a_reassignment(run: Run) -> None:
    _altered(run, led=True, completes=True)


@good("C-09")
def a_controller_that_resigns_sends_nothing(run: Run) -> None:
    journal = run.journal()
    event = handled(journal, "AlterPartition")
    written(journal, 1, 0, cause=event)
    journal.event("controller_resigned", broker=1, controller_epoch=1, cause=event)


@bad("C-09")
def an_isr_change_is_sent_by_leader_and_isr(run: Run) -> int:
    return _altered(run, led=True)[1]


@bad("C-09")
def an_isr_change_raises_the_leader_epoch(run: Run) -> int:
    return _altered(run, led=False, leader_epoch=1)[0]


@bad("C-09")
def an_isr_change_is_not_sent(run: Run) -> int:
    return _altered(run, led=False, updated=False)[0]


# --- C-10, C-11, C-12


@good("C-10", also=["W-11"])
def a_batch_is_in_order(run: Run) -> None:
    journal = run.journal()
    event = handled(journal, "BrokerChange")
    for _ in range(2):
        channel = Channel(journal, controller=1, to=2, batch=batch(journal, event))
        channel.lead(State())
        channel.update(State())
        channel.stop(State())


@bad("C-10")
def update_metadata_comes_before_leader_and_isr(run: Run) -> int:
    journal = run.journal()
    channel = Channel(journal, controller=1, to=2, batch=batch(journal, handled(journal, "BrokerChange")))
    channel.update(State())
    return channel.lead(State())


@good("C-11")
def a_request_without_response_is_repeated_on_a_new_connection(run: Run) -> None:
    journal = run.journal()
    first, second = Channel(journal, 1, controller=1, to=2), Channel(journal, 2, controller=1, to=2)
    first.update(State())
    first.lead(State(), error=None)
    second.lead(State())
    second.update(State(), error=None)
    journal.event("broker_down", broker=2, controller_epoch=1)
    third = Channel(journal, 3, controller=1, to=2)
    third.lead(State(), error=None)
    Channel(journal, 4, controller=1, to=2, broker_epoch=20).update()


@bad("C-11")
def two_requests_are_in_flight(run: Run) -> int:
    channel = Channel(run.journal(), controller=1, to=2)
    channel.update(State(), error=None)
    return channel.update(State())


@bad("C-11")
def a_lost_request_is_not_repeated(run: Run) -> int:
    Channel(run.journal(), 1, controller=1, to=2).update(State(), error=None)
    return Channel(run.journal(), 2, controller=1, to=2).update(State().next())


@good("C-12")
def all_brokers_hear_of_the_same_partitions(run: Run) -> None:
    journal = run.journal()
    event = handled(journal, "BrokerChange")
    for states in ((State(), State(partition=1)), ()):
        number = batch(journal, event)
        for to in (2, 3):
            Channel(journal, to, controller=1, to=to, batch=number).update(*states)


@bad("C-12")
def a_broker_hears_of_fewer_partitions(run: Run) -> int:
    journal = run.journal()
    number = batch(journal, handled(journal, "BrokerChange"))
    Channel(journal, 2, controller=1, to=2, batch=number).update(State(), State(partition=1))
    return Channel(journal, 3, controller=1, to=3, batch=number).update(State())


# --- C-13, C-15


@good("C-13")
def the_brokers_of_the_time_of_the_batch_are_listed(run: Run) -> None:
    journal = run.journal()
    event = elected(journal)
    early = batch(journal, event)
    up(journal, 3, 30, event)
    up(journal, 4, 40, event, kind="broker_fenced")
    Channel(journal, 1, controller=1, to=2, batch=early, live=(1, 2)).update()
    Channel(journal, 1, controller=1, to=2, batch=batch(journal, event), live=(1, 2, 3)).update()
    journal.event("broker_down", broker=2, controller_epoch=1, cause=event)
    Channel(journal, 3, controller=1, to=3, batch=batch(journal, event), live=(3, 1), broker_epoch=30).update()
    Channel(journal, 4, controller=1, to=4, batch=batch(journal, event), live=(1, 3), broker_epoch=40).update()
    again = elected(journal, 2, ((1, 10), (5, 50)))
    Channel(journal, 5, controller=1, to=5, epoch=2, batch=batch(journal, again), live=(1, 5), broker_epoch=50).update()


@bad("C-13")
def a_broker_that_is_gone_is_listed(run: Run) -> int:
    journal = run.journal()
    event = elected(journal)
    journal.event("broker_down", broker=2, controller_epoch=1, cause=event)
    return Channel(journal, controller=1, to=1, batch=batch(journal, event), live=(1, 2)).update()


@bad("C-13")
def a_fenced_broker_is_listed(run: Run) -> int:
    journal = run.journal()
    event = elected(journal)
    up(journal, 4, 40, event, kind="broker_fenced")
    return Channel(journal, controller=1, to=2, batch=batch(journal, event), live=(1, 2, 4)).update()


@good("C-13")
def leaders_that_are_registered_are_listed(run: Run) -> None:
    journal = run.journal()
    event = elected(journal)
    up(journal, 4, 40, event, kind="broker_fenced")
    channel = Channel(journal, controller=1, to=2, batch=batch(journal, event), live=(1, 2))
    channel.lead(State(), State(leader=4, partition=1, replicas=(4, 2), isr=(4,)), State(leader=-1, partition=2), leaders=(1,))
    channel.update(State(), State(leader=4, partition=1, replicas=(4, 2), isr=(4,)), State(leader=-1, partition=2))
    channel.stop(State(partition=3, replicas=(1, 2)))


@bad("C-13")
def a_leader_is_left_out(run: Run) -> int:
    journal = run.journal()
    event = elected(journal)
    channel = Channel(journal, controller=1, to=2, batch=batch(journal, event), live=(1, 2))
    seq = channel.lead(State(), leaders=())
    channel.update(State())
    return seq


@bad("C-13")
def a_replica_of_a_broker_that_is_gone_is_stopped(run: Run) -> int:
    journal = run.journal()
    event = elected(journal)
    journal.event("broker_down", broker=2, controller_epoch=1, cause=event)
    return Channel(journal, controller=1, to=2, batch=batch(journal, event)).stop(State())


@silent("C-13")
def the_view_of_the_controller_is_unknown(run: Run) -> None:
    Channel(run.journal(), controller=1, to=2, batch=batch(run.journal(), handled(run.journal(), "BrokerChange"))).update()


@good("C-15", also=["C-25"])
def a_broker_registers_anew(run: Run) -> None:
    journal = run.journal()
    event = elected(journal)
    early = batch(journal, event)
    up(journal, 2, 20, event)
    Channel(journal, 1, controller=1, to=2, batch=early, live=(1, 2)).update(error=77)
    Channel(journal, 2, controller=1, to=2, batch=batch(journal, event), live=(1, 2), broker_epoch=20).update()
    receiver = run.journal(2)
    Channel(receiver, 1, controller=1).update()
    Channel(receiver, 2, controller=1, broker_epoch=20).update()
    Channel(receiver, 1, controller=1).update(error=77)


@bad("C-15")
def an_old_broker_epoch_is_sent(run: Run) -> int:
    journal = run.journal()
    event = elected(journal)
    up(journal, 2, 20, event)
    return Channel(journal, controller=1, to=2, batch=batch(journal, event), live=(1, 2), broker_epoch=10).update()


@bad("C-15")
def an_old_broker_epoch_is_taken(run: Run) -> int:
    Channel(run.journal(), broker_epoch=20).update()
    return Channel(run.journal(), broker_epoch=10).update()


@bad("C-15")
def the_present_broker_epoch_is_refused(run: Run) -> list[int]:
    """The first and the last of the requests, which one after it and time prove."""
    journal = run.journal()
    broker = Channel(journal)
    first = broker.update(error=77)
    broker.update()
    last = broker.update(error=77)
    journal.now_ns += 31_000_000_000
    journal.event("conn_close", conn_id=1, output={"by": "peer", "reason": None})
    return [first, last]


@good("C-15")
def a_broker_that_has_registered_anew_may_end_before_the_controller_knows(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    broker.update()
    broker.update(error=77)
    Channel(journal, 2, process=2, broker_epoch=10).update(process=2)


# --- C-14


@good("C-14")
def versions_follow_the_inter_broker_protocol(run: Run) -> None:
    journal = run.journal()
    for ibp, lisr, umr in (("3.9-IV0", 7, 8), ("3.9", 7, 8), ("3.2-IV0", 6, 7), ("2.4", 4, 6), ("2.4-IV0", 3, 5)):
        channel = Channel(journal, controller=1, to=2, batch=batch(journal, handled(journal, "BrokerChange"), ibp=ibp))
        channel.lead(State(), version=lisr)
        channel.update(State(), version=umr)


@bad("C-14")
def a_version_is_too_new(run: Run) -> int:
    journal = run.journal()
    return Channel(journal, controller=1, to=2, batch=batch(journal, handled(journal, "BrokerChange"), ibp="2.8-IV1")).update(version=8)


# --- C-16


def _metadata(
    journal: Any, *states: State, error: int = 0, asked: int | None = None, brokers: tuple[int, ...] = (1, 2, 9), controller: int = 9,
    cluster: str = "c", port: int = 9092,
) -> int:
    """A Metadata request for all topics and its response; the seq of the response."""
    if asked is None:
        asked = _ask(journal)
    form = messages.MetadataResponse
    topics = [
        form.MetadataResponseTopic(error_code=0, name=name, topic_id=topic_id, partitions=[
            form.MetadataResponsePartition(
                error_code=error, partition_index=s.partition, leader_id=s.leader, leader_epoch=s.leader_epoch,
                replica_nodes=tuple(s.replicas), isr_nodes=tuple(s.isr), offline_replicas=tuple(s.offline))
            for s in states if s.topic == name
        ])
        for name, topic_id in dict.fromkeys((s.topic, s.topic_id) for s in states)
    ]
    listed = [form.MetadataResponseBroker(node_id=b, host="h", port=port, rack=None) for b in brokers]
    return int(journal.response(70, asked, form(brokers=listed, cluster_id=cluster, controller_id=controller, topics=topics)))


def _ask(journal: Any) -> int:
    return int(journal.request(70, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None)))


@good("C-16")
def metadata_shows_what_was_told(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    _metadata(journal, brokers=())
    old = State()
    broker.update(old)
    _metadata(journal, old)
    new = old.next(leader=2)
    broker.update(new, error=-1)
    _metadata(journal, old)
    asked = _ask(journal)
    broker.update(new)
    _metadata(journal, old, asked=asked)
    _metadata(journal, new)
    broker.update(live=(1, 9))
    _metadata(journal, new._replace(leader=-1), error=5, brokers=(1, 9))
    Channel(journal, 2, broker_epoch=20, process=2).update(new.next(), error=None, process=2)


@good("C-16")
def metadata_shows_either_state_while_one_is_under_way(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    broker.update(State())
    lost = broker.update(State().next(), error=None)
    _metadata(journal, State())
    _metadata(journal, State().next())
    assert lost


@bad("C-16")
def metadata_shows_an_old_leader(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State())
    broker.update(State().next(leader=2))
    return _metadata(run.journal(), State())


@bad("C-16")
def metadata_shows_a_dead_leader(run: Run) -> int:
    broker = Channel(run.journal())
    broker.update(State())
    broker.update(live=(2, 9))
    return _metadata(run.journal(), State())


@bad("C-16")
def metadata_shows_a_broker_that_was_never_told(run: Run) -> int:
    Channel(run.journal()).update(State())
    return _metadata(run.journal(), State(), brokers=(1, 4))


@bad("C-16")
def metadata_shows_brokers_too_early(run: Run) -> int:
    seq = _metadata(run.journal())
    run.journal().event("broker_stopped", broker=1)
    return seq


@bad("C-16")
def metadata_leaves_out_a_live_broker(run: Run) -> int:
    Channel(run.journal()).update(State())
    return _metadata(run.journal(), State(), brokers=(1, 9))


@good("C-16")
def metadata_leaves_out_a_broker_without_the_listener(run: Run) -> None:
    journal = run.journal()
    Channel(journal).update(State())
    journal.connection(70, listener="INTERNAL")
    _metadata(journal, State(), brokers=(1,))


@bad("C-16")
def metadata_shows_another_controller(run: Run) -> int:
    Channel(run.journal()).update(State())
    return _metadata(run.journal(), State(), controller=2)


@bad("C-16", also=["M-07"])
def metadata_shows_another_cluster(run: Run) -> int:
    journal = run.journal()
    Channel(journal).update(State())
    _metadata(journal, State())
    seq = _metadata(journal, State(), cluster="other")
    _metadata(journal, State())
    return seq


@bad("C-16")
def metadata_shows_another_topic_id(run: Run) -> int:
    Channel(run.journal()).update(State())
    return _metadata(run.journal(), State(topic_id=OTHER_ID))


@bad("C-16")
def metadata_shows_another_port_of_a_broker(run: Run) -> int:
    journal = run.journal()
    Channel(journal).update(State())
    journal.connection(70, listener="PLAINTEXT")
    _metadata(journal, State())
    return _metadata(journal, State(), port=9093)


@bad("C-16")
def metadata_shows_other_offline_replicas(run: Run) -> list[int]:
    Channel(run.journal()).update(State(offline=(2,)))
    _metadata(run.journal(), State(offline=(2,)))
    return [_metadata(run.journal(), State()), _metadata(run.journal(), State(offline=(1, 2)))]


@bad("C-16")
def metadata_leaves_out_a_partition(run: Run) -> list[int]:
    """The last one, and the only one that was added."""
    journal = run.journal()
    broker = Channel(journal)
    each = [State(partition=number) for number in range(3)]
    broker.update(*each[:2])
    last = _metadata(journal, each[0])
    broker.update(each[2])
    _metadata(journal, *each)
    return [last, _metadata(journal, *each[:2])]


U = State(topic="u", topic_id=OTHER_ID)


@bad("C-16")
def metadata_leaves_out_a_topic(run: Run) -> list[int]:
    """Of all topics: the first time, since a later response shows it to the same client, and the last time."""
    journal = run.journal()
    Channel(journal).update(State(), U)
    first = _metadata(journal, State())
    _metadata(journal, State(), U)
    return [first, _metadata(journal)]


@good("C-16")
def metadata_has_the_topics_and_partitions_of_its_time(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    broker.update(State(), U)
    _metadata(journal, State(), U)
    journal.connection(71, client_id="other")
    asked = journal.request(71, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    _metadata(journal, State(), asked=asked)  # a client that may not see u
    asked = _ask(journal)
    broker.update(State(partition=1))
    _metadata(journal, State(), U, asked=asked)
    broker.update(U._replace(leader=-2))
    _metadata(journal, State(), State(partition=1))
    form = messages.MetadataRequest
    asked = journal.request(70, ApiKey.METADATA, 12, form(topics=[form.MetadataRequestTopic(name="t")]))
    _metadata(journal, State(), State(partition=1), asked=asked)
    broker.update(U._replace(partition_epoch=5), error=None)
    _metadata(journal, State(), State(partition=1))
    Channel(journal, 2, broker_epoch=20, process=2).update(U, process=2)


@good("C-16")
def a_topic_that_was_created_again_has_the_partitions_of_the_new_one(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    broker.update(State(), State(partition=1))
    broker.update(State(leader=-2), State(leader=-2, partition=1))
    _metadata(journal)
    again = State(topic_id=OTHER_ID)
    broker.update(again)
    _metadata(journal, again)


@bad("C-16")
def metadata_shows_other_replicas(run: Run) -> int:
    Channel(run.journal()).update(State())
    return _metadata(run.journal(), State(replicas=(2, 1)))


# --- C-22


@good("C-22")
def a_controller_is_elected_again_and_sends(run: Run) -> None:
    journal = run.journal()
    for epoch in (1, 3):
        event = elected(journal, epoch)
        Channel(journal, epoch, controller=1, epoch=epoch, to=2, batch=batch(journal, event), live=(1, 2)).update()
        journal.event("controller_resigned", broker=1, controller_epoch=epoch)


@bad("C-22")
def a_former_controller_sends(run: Run) -> int:
    journal = run.journal()
    event = elected(journal)
    channel = Channel(journal, controller=1, to=2, batch=batch(journal, event), live=(1, 2))
    channel.update()
    journal.event("controller_resigned", broker=1, controller_epoch=1)
    return channel.stop(State())


@silent("C-22")
def nobody_was_elected_in_the_journal(run: Run) -> None:
    Channel(run.journal(), controller=1, to=2).update()


# --- C-20


@good("C-20", also=["W-03"])
def update_metadata_follows(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    broker.lead(State(), error=None)
    broker.conn = 3
    broker.lead(State())
    broker.update(State())
    broker.lead(State().next())
    broker.update(State().next()._replace(leader=-2, leader_epoch=0, partition_epoch=0))
    broker.lead(State(partition=1))
    Channel(journal, 2, controller=8, epoch=2).update()


@good("C-20")
def nothing_follows_to_a_broker_that_went(run: Run) -> None:
    journal = run.journal()
    Channel(journal, 1).lead(State())
    Channel(journal, 2, broker_epoch=20, process=2).update()


@good("C-20")
def what_stood_at_the_end_of_a_request_that_was_cut_is_unknown(run: Run) -> None:
    journal = run.journal()
    broker = Channel(journal)
    broker.lead(State())
    seq = broker.update(State(), error=None)
    journal.cut(60)
    journal.response(broker.conn, seq, messages.UpdateMetadataResponse(error_code=0))


@bad("C-20")
def leader_and_isr_goes_to_a_stranger(run: Run) -> int:
    return Channel(run.journal()).lead(State(2, isr=(2, 3), replicas=(2, 3)))


@bad("C-20")
def no_update_metadata_follows(run: Run) -> int:
    broker = Channel(run.journal())
    seq = broker.lead(State())
    broker.update()
    return seq
