"""Words that ask something of a broker under test: topics, elections, ISR changes, shutdowns, configs, and any request as JSON."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.client import ConnectionClosed
from klamm.tests.stories.both.answers import answer, code, grouped, request, told_text, versions
from klamm.tests.stories.both.commands import Look, Words, action, ids, lists, view
from klamm.tests.stories.both.stage import Stage

NO_ANSWER_S = 4.0
"""How long a request waits for its answer. Real Kafka leaves a few without one."""


async def outcome(stage: Stage, message: Any, version: int, to: int | None) -> Any:
    """The answer, or what happened instead of one."""
    broker_id = stage.one(to)
    try:
        return await stage.ask(message, version, broker_id, getattr(message, "timeout_ms", 0) / 1000 + NO_ANSWER_S)
    except ConnectionClosed:
        return "connection closed"
    except TimeoutError:
        await stage.client(broker_id).close()
        return "no answer"


# topics


@action("create")
async def create(stage: Stage, words: list[str]) -> str:
    """create orders [11,12][12,11] [config=value] [timeout=ms] [vN] [to N]: replicas by hand. The code comes back."""
    parsed = Words.of(words)
    return await _create(stage, parsed, lists(parsed.rest[1]), -1, -1)


@action("create-auto")
async def create_auto(stage: Stage, words: list[str]) -> str:
    """create-auto orders PARTITIONS FACTOR [config=value] [timeout=ms] [vN] [to N]: replicas placed by the broker."""
    parsed = Words.of(words)
    return await _create(stage, parsed, [], int(parsed.rest[1]), int(parsed.rest[2]))


async def _create(stage: Stage, parsed: Words, assignment: list[list[int]], partitions: int, factor: int) -> str:
    timeout_ms = int(parsed.settings.pop("timeout", 10_000))
    name = parsed.rest[0]
    message = requests.create_topic(name, assignment, partitions=partitions, factor=factor, configs=parsed.settings, timeout_ms=timeout_ms)
    version = 7 if parsed.version is None else parsed.version
    answered = await outcome(stage, message, version, parsed.to)
    if isinstance(answered, str):
        return answered
    await stage.barrier()
    return f"{name} {code(answered.topics[0].error_code)}"


@action("grow")
async def grow(stage: Stage, words: list[str]) -> str:
    """grow orders COUNT [11,12][12,11] [timeout=ms] [to N]: more partitions; without lists the broker places them."""
    parsed = Words.of(words)
    name, count = parsed.rest[0], int(parsed.rest[1])
    given = lists(parsed.rest[2]) if len(parsed.rest) > 2 else None
    message = requests.create_partitions(name, count, given, int(parsed.settings.get("timeout", 10_000)))
    answered = await outcome(stage, message, 3, parsed.to)
    if isinstance(answered, str):
        return answered
    await stage.barrier()
    return f"{name} {code(answered.results[0].error_code)}"


@action("delete")
async def delete(stage: Stage, words: list[str]) -> str:
    """delete orders ... [timeout=ms] [vN] [to N]: DeleteTopics."""
    parsed = Words.of(words)
    version = 6 if parsed.version is None else parsed.version
    timeout_ms = int(parsed.settings.get("timeout", 10_000))
    message = requests.delete_topics(*parsed.rest, version=version, timeout_ms=timeout_ms)
    answered = await outcome(stage, message, version, parsed.to)
    if isinstance(answered, str):
        return answered
    await stage.barrier()
    return "\n".join(sorted(f"{each.name} {code(each.error_code)}" for each in answered.responses))


# elections, ISRs, shutdowns


@action("elect")
async def elect(stage: Stage, words: list[str]) -> str:
    """elect preferred|unclean orders-0 ...|all [timeout=ms] [hasty] [vN] [to N]: ElectLeaders; one line for each partition answered.

    hasty: whether the new leader was seen in time is left open.
    """
    parsed = Words.of([word for word in words if word != "hasty"])
    open_codes = {0: "NONE or REQUEST_TIMED_OUT", 7: "NONE or REQUEST_TIMED_OUT"} if "hasty" in words else {}
    version = 2 if parsed.version is None else parsed.version
    named = None
    if parsed.rest[1:] != ["all"]:
        pairs = (word.rpartition("-") for word in parsed.rest[1:])
        named = [(topic, int(partition)) for topic, _, partition in pairs]
    election_type = {"preferred": requests.PREFERRED, "unclean": requests.UNCLEAN}[parsed.rest[0]]
    message = requests.elect_leaders(named, election_type, version, int(parsed.settings.get("timeout", 5000)))
    answered = await outcome(stage, message, version, parsed.to)
    if isinstance(answered, str):
        return answered
    lines = [
        f"{topic.topic}-{each.partition_id} {open_codes.get(each.error_code) or code(each.error_code)}, "
        f"message {told_text(each.error_message)}"
        for topic in answered.replica_election_results
        for each in topic.partition_result
    ]
    return "\n".join([f"all {code(answered.error_code)}", *sorted(lines)])


@action("alter-partition")
async def alter_partition(stage: Stage, words: list[str]) -> str:
    """alter-partition orders-0 leader=11 isr=11,12 [pe=-1] [le=+1] [epoch=-1] [recovery=1] [vN] [to N]: offsets to the present values.

    leader=present: that of the state.
    """
    parsed = Words.of(words)
    topic, _, partition = parsed.rest[0].rpartition("-")
    settings = parsed.settings
    version = 3 if parsed.version is None else parsed.version
    now = stage.tree.state(topic, int(partition))
    leader = int(settings["leader"]) if settings["leader"] != "present" else -1 if now is None else now.leader
    message = requests.alter_partition(
        leader,
        stage.tree.broker_epoch(leader) + int(settings.get("epoch", 0)),
        topic,
        stage.tree.topic_id(topic) or bytes(15) + b"\x07",
        int(partition),
        ids(settings["isr"]),
        leader_epoch=(0 if now is None else now.le) + int(settings.get("le", 0)),
        partition_epoch=(0 if now is None else now.pe) + int(settings.get("pe", 0)),
        recovery=int(settings.get("recovery", 0)),
        version=version,
    )
    answered = await outcome(stage, message, version, parsed.to)
    if isinstance(answered, str):
        return answered
    await stage.barrier()
    lines = [f"all {code(answered.error_code)}"]
    for each in (p for t in answered.topics for p in t.partitions):
        isr = ",".join(map(str, each.isr)) or "none"
        text = f"{code(each.error_code)}, leader {each.leader_id} le {each.leader_epoch} isr {isr} pe {each.partition_epoch}"
        lines.append(text + (f" recovery {each.leader_recovery_state}" if each.leader_recovery_state else ""))
    return "\n".join(lines)


@action("shutdown")
async def shutdown(stage: Stage, words: list[str]) -> str:
    """shutdown 11 [epoch=-1] [vN] [to N]: ControlledShutdown; `epoch` is an offset, or `none` for -1."""
    parsed = Words.of(words)
    broker_id = int(parsed.rest[0])
    version = 3 if parsed.version is None else parsed.version
    offset = parsed.settings.get("epoch", "0")
    epoch = -1 if offset == "none" else stage.tree.broker_epoch(broker_id) + int(offset)
    answered = await outcome(stage, requests.controlled_shutdown(broker_id, epoch, version), version, parsed.to)
    if isinstance(answered, str):
        return answered
    await stage.barrier()
    remaining = sorted(f"{each.topic_name}-{each.partition_index}" for each in answered.remaining_partitions)
    return f"{code(answered.error_code)}, remaining {' '.join(remaining) or 'none'}"


# configs

_KINDS = {"topic": requests.TOPIC, "broker": requests.BROKER, "logger": requests.LOGGER}


@action("alter-config")
async def alter_config(stage: Stage, words: list[str]) -> str:
    """alter-config topic|broker|logger NAME set|delete|append|subtract key=value ... [to N]; `default` is no name."""
    parsed = Words.of(words)
    operation = ["set", "delete", "append", "subtract"].index(parsed.rest[2])
    pairs = [*parsed.settings.items(), *((name, None) for name in parsed.rest[3:])]
    changes = [(name, operation, value) for name, value in pairs]
    answered = await outcome(stage, requests.increment_configs(_KINDS[parsed.rest[0]], _entity(parsed.rest[1]), changes), 1, parsed.to)
    return answered if isinstance(answered, str) else _code_and_text(answered.responses[0])


@action("replace-config")
async def replace_config(stage: Stage, words: list[str]) -> str:
    """replace-config topic|broker NAME key=value ... [to N]: AlterConfigs, which forgets what it does not name."""
    parsed = Words.of(words)
    message = requests.replace_configs(_KINDS[parsed.rest[0]], _entity(parsed.rest[1]), parsed.settings)
    answered = await outcome(stage, message, 2, parsed.to)
    return answered if isinstance(answered, str) else _code_and_text(answered.responses[0])


def _entity(name: str) -> str:
    return "" if name == "default" else name


def _code_and_text(each: Any) -> str:
    return f"{code(each.error_code)}, message {told_text(each.error_message)}"


@view("configs")
def configs(stage: Stage, words: list[str]) -> Look:
    """configs topic|broker NAME key ... [to N]: values with their sources, and behind them those they stand before."""
    parsed = Words.of(words)
    kind = messages.DescribeConfigsRequest
    keys = parsed.rest[2:] or None
    what, name = _KINDS[parsed.rest[0]], _entity(parsed.rest[1])
    resource = kind.DescribeConfigsResource(resource_type=what, resource_name=name, configuration_keys=keys)

    async def see() -> str:
        answered = await outcome(stage, kind(resources=[resource], include_synonyms=True, include_documentation=False), 4, parsed.to)
        if isinstance(answered, str):
            return answered
        result = answered.results[0]
        if result.error_code:
            return _code_and_text(result)
        lines = []
        for each in sorted(result.configs, key=lambda config: config.name):
            flags = "".join(f" {name}" for name, on in (("read-only", each.read_only), ("sensitive", each.is_sensitive)) if on)
            behind = "".join(f" < {other.name}={other.value} ({other.source})" for other in each.synonyms)
            lines.append(f"{each.name}={each.value} ({each.config_source}){flags}{behind}")
        return "\n".join(lines) or "no configs"

    return Look(see)


# any request

_NAMES = re.compile(r"<(id|epoch|le|pe) ([^<> ]+)(?: ([-+]\d+))?>")
_CONTROLLER_EPOCH = re.compile(r"<ce(?: ([-+]\d+))?>")


def _filled(stage: Stage, text: str) -> dict[str, Any]:
    """JSON with present values for `<epoch 11>`, `<epoch 11 -1>`, `<id orders>`, `<le orders-0>`, `<pe orders-0>`, `<ce>`, `<ce +1>`."""

    def value(match: re.Match[str]) -> str:
        what, of, offset = match.groups()
        if what == "id":
            return base64.urlsafe_b64encode(stage.tree.topic_id(of) or bytes(16)).decode().rstrip("=")
        if what == "epoch":
            return str(stage.tree.broker_epoch(int(of)) + int(offset or 0))
        topic, _, partition = of.rpartition("-")
        state = stage.state(topic, int(partition))
        return str((state.le if what == "le" else state.pe) + int(offset or 0))

    text = _CONTROLLER_EPOCH.sub(lambda match: str(stage.tree.controller_epoch() + int(match[1] or 0)), text)
    filled: dict[str, Any] = json.loads(_NAMES.sub(value, text))
    return filled


async def _ask(stage: Stage, words: list[str]) -> str:
    name, wanted, *rest = words
    to = int(rest.pop(1)) if rest[0] == "to" else None
    body = " ".join(rest[1:] if rest[0] == "to" else rest)
    outcomes = []
    for version in versions(wanted, name):
        answered = await outcome(stage, request(name, version, _filled(stage, body)), version, to)
        outcomes.append((version, answered if isinstance(answered, str) else answer(answered, version)))
    return grouped(outcomes)


@action("ask")
async def ask(stage: Stage, words: list[str]) -> str:
    """ask Metadata v0-12 [to N] {json}: one request in one or more versions, and the answers."""
    return await _ask(stage, words)


@view("asked")
def asked(stage: Stage, words: list[str]) -> Look:
    """asked Metadata v12 [to N] {json}: the same as a view, for what needs a moment."""
    return Look(lambda: _ask(stage, words))
