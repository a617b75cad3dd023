"""What the clients of a load were told, compared with what the topics have when it has ended. Nothing is deleted from these topics."""

from __future__ import annotations

from klamm.chaos.clients.reading import Logs, read_all
from klamm.chaos.committed import COPIERS, READERS
from klamm.chaos.histories.group_history import judge_group
from klamm.chaos.histories.history import Verdict, judge
from klamm.chaos.histories.transaction_history import ABORTED_VISIBLE, judge_copies
from klamm.chaos.kinds import COPIED, COPIES, PARTITIONS, RECORDS
from klamm.chaos.load import Load

Faults = dict[str, list[str]]
"""Rule → what violates it, in sentences."""


def judged(load: Load, allow_loss: bool) -> tuple[Verdict, Faults]:
    """The counts of what the producers were told, and all that must not be. With `allow_loss` only what holds without any acknowledged
    record counts. Raises LoadHangs.
    """
    logs = read_all(load.bootstrap, RECORDS, PARTITIONS)
    copies = read_all(load.bootstrap, COPIED, COPIES, isolation_level="read_committed")
    verdict = judge([sent for each in load.producers for sent in each.sent], logs, load.along.logs)
    copied = _copy_faults(load, logs, copies)
    if allow_loss:
        return verdict, {rule: found for rule, found in copied.items() if rule == ABORTED_VISIBLE}
    return verdict, verdict.faults | _client_faults(load) | _group_faults(load, logs) | copied


def _client_faults(load: Load) -> Faults:
    faults = {
        "fatal": [f"{each.name}: {error}" for each in load.producers for error in each.fatal],
        "reader": load.along.faults,
        "client hangs": load.unexplained,
    }
    return {rule: found for rule, found in faults.items() if found}


def _group_faults(load: Load, logs: Logs) -> Faults:
    faults = judge_group(
        [member.deliveries for member in load.members], (start for member in load.members for start in member.starts),
        (commit for member in load.members for commit in member.commits), load.offsets.final[READERS], logs, READERS,
    )
    return {f"{READERS} {rule}": found for rule, found in faults.items()}


def _copy_faults(load: Load, logs: Logs, copies: Logs) -> Faults:
    committed = {partition: offset for partition, offset in load.offsets.final[COPIERS].items() if offset is not None}
    return judge_copies((attempt for copier in load.copiers for attempt in copier.attempts), copies, committed, logs)
