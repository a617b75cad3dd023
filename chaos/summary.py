"""The summary of a run, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.chaos.run import RunOutcome
from klamm.control.json_object import JsonObject


def as_json(outcome: RunOutcome) -> JsonObject:
    """The outcome as plain values. `violations` is empty if all rules held."""
    options = outcome.schedule.options
    return {
        "seed": outcome.schedule.seed, "seconds": round(outcome.seconds, 1), "brokers": options.brokers, "processes": options.processes,
        "unclean": options.unclean, "stopped_early": outcome.was_stopped, **outcome.counts,
        "steps": dict(sorted(outcome.steps.items())), "refused": dict(sorted(outcome.refused.items())),
        "violations": [
            {
                "rule": each.rule, "found": each.found, "at_s": round(each.at_s, 1), "steps_before": each.steps_before,
                "requests": each.requests,
            }
            for each in outcome.violations
        ],
    }


def as_lines(outcome: RunOutcome) -> list[str]:
    """The outcome as text."""
    counts = outcome.counts
    steps = sum(outcome.steps.values())
    lines = [
        f"seed {outcome.schedule.seed}, {outcome.seconds:.0f} s" + (", stopped early" if outcome.was_stopped else ""),
        f"steps: {steps} ({_listed(outcome.steps)})",
    ]
    if outcome.refused:
        lines.append(f"refused, because of other steps: {sum(outcome.refused.values())} ({_listed(outcome.refused)})")
    if "acknowledged" in counts:
        lines.append(f"records: {counts['sent']:,} sent, {counts['acknowledged']:,} acknowledged, {counts['failed']:,} failed")
    if "transactions" in counts:
        lines += [
            f"transactions: {counts['transactions']:,}, of them {counts['committed']:,} committed and {counts['aborted']:,} aborted",
            f"groups: {counts['delivered']:,} records delivered, {counts['commits']:,} offsets committed, "
            f"{counts['assignments']:,} assignments",
            f"elections: {counts['elections']:,} of leaders, {counts['controllers']:,} of controllers",
            *([f"clients whose library hung or lost its brokers: {', '.join(counts['hung_clients'])}"] if counts["hung_clients"] else []),
            *([f"offsets that librdkafka lost: {counts['offsets_lost_by_clients']}"] if counts["offsets_lost_by_clients"] else []),
            f"longest time without an acknowledged record in a partition: {counts['longest_unavailability_s']} s, "
            f"and {counts['longest_working_unavailability_s']} s without the time in which the cluster waited for a CPU",
            f"the cluster waited for a CPU: {counts['waited_for_cpu_s']} s",
        ]
    if counts.get("not_supported"):
        lines.append(f"the program does not support (exit code 127): {', '.join(counts['not_supported'])}")
    lines += [line for each in outcome.violations for line in _violation(each)]
    if not outcome.violations:
        lines.append("no rule is violated")
    return lines


def _violation(each: Any) -> list[str]:
    lines = [f"VIOLATED: {each.rule} ({each.at_s:.1f} s)"]
    lines += [f"  {text}" for text in each.found]
    if each.steps_before:
        lines += ["  steps before:", *(f"    {text}" for text in each.steps_before)]
    if each.requests:
        lines += ["  last requests:", *(f"    {text}" for text in each.requests)]
    return lines


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
