"""Words that start, stop and change brokers: those under test and the fake ones; and that move `/controller`."""

from __future__ import annotations

import asyncio
import json

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.waits import eventually, eventually_asked
from klamm.tests.stories.both.commands import Words, action
from klamm.tests.stories.both.stage import Stage


@action("start")
async def start(stage: Stage, words: list[str]) -> str:
    """start N [property=value ...] [unready]: a broker under test; `unready` waits for its registration only."""
    parsed = Words.of(words)
    broker_id, unready = int(parsed.rest[0]), "unready" in parsed.rest
    broker = await stage.launch(broker_id, parsed.settings, wait=not unready)
    if unready:
        await eventually(lambda: stage.tree.broker_epoch(broker_id) != -1 and broker.listens(), f"broker {broker_id} registered", 60)
    return ""


@action("start-fails")
async def start_fails(stage: Stage, words: list[str]) -> str:
    """start-fails N [property=value ...]: the broker must end by itself; says whether its exit code tells of it."""
    parsed = Words.of(words)
    broker = await stage.launch(int(parsed.rest[0]), parsed.settings, wait=False)
    await eventually(lambda: not broker.alive(), f"broker {broker.id} ends by itself", 60)
    return f"exit code {'0' if broker.owned is not None and broker.owned.wait(1) == 0 else 'not 0'}"


@action("ends")
async def ends(stage: Stage, words: list[str]) -> str:
    """ends N: a broker under test must end by itself; says whether its exit code tells of it."""
    broker = stage.brokers[int(words[0])]
    await eventually(lambda: not broker.alive(), f"broker {broker.id} ends by itself", 60)
    return f"exit code {'0' if broker.exit_code() == 0 else 'not 0'}"


@action("stop")
async def stop(stage: Stage, words: list[str]) -> str:
    """stop N: SIGTERM, and wait for its end and that of its node."""
    broker_id = int(words[0])
    await stage.flush()
    await asyncio.to_thread(stage.brokers[broker_id].stop)
    await eventually(lambda: stage.tree.exists(f"/brokers/ids/{broker_id}") is None, f"node of {broker_id} gone")
    await _moved_on(stage, broker_id)
    return ""


@action("kill")
async def kill(stage: Stage, words: list[str]) -> str:
    """kill N: SIGKILL, and wait for the end of its session."""
    broker_id = int(words[0])
    await stage.flush()
    stage.brokers[broker_id].kill()
    await eventually(lambda: stage.tree.exists(f"/brokers/ids/{broker_id}") is None, f"session of {broker_id} expired", 30)
    await _moved_on(stage, broker_id)
    return ""


async def _moved_on(stage: Stage, broker_id: int) -> None:
    """When another broker under test is alive: until there is another controller that does not show the one that left."""
    alive = [other.id for other in stage.brokers.values() if other.alive()]
    if alive:
        await eventually(lambda: stage.tree.controller() not in (-1, broker_id), "another controller", 30)
        await stage.forgotten({broker_id})


@action("freeze")
async def freeze(stage: Stage, words: list[str]) -> str:
    """freeze N: SIGSTOP, and wait for the end of its session."""
    broker_id = int(words[0])
    await stage.flush()
    stage.brokers[broker_id].freeze()
    await eventually(lambda: stage.tree.exists(f"/brokers/ids/{broker_id}") is None, f"session of {broker_id} expired", 30)
    return ""


@action("thaw")
async def thaw(stage: Stage, words: list[str]) -> str:
    """thaw N: SIGCONT, and wait until it is registered anew and there is a controller."""
    broker_id = int(words[0])
    stage.brokers[broker_id].thaw()
    await eventually(lambda: stage.tree.broker_epoch(broker_id) != -1 and stage.tree.controller() != -1, f"{broker_id} is back", 60)
    await stage.barrier()
    return ""


# fake brokers


@action("fakes")
async def fakes(stage: Stage, words: list[str]) -> str:
    """fakes 11 12 [racks=a,b]: fake brokers, one after the other, each welcomed by the controller."""
    parsed = Words.of(words)
    racks = parsed.settings["racks"].split(",") if "racks" in parsed.settings else None
    await stage.enter([int(word) for word in parsed.rest], racks)
    return ""


@action("die")
async def die(stage: Stage, words: list[str]) -> str:
    """die 11 ...: listener closed, node gone, one after the other; returns when the controller has forgotten it."""
    for word in words:
        await stage.flush()
        await stage.fake_named(word).die()
        await stage.forgotten({int(word)})
    return ""


@action("die-unseen")
async def die_unseen(stage: Stage, words: list[str]) -> str:
    """die-unseen 11: the same, for a controller that may not forget it."""
    await stage.flush()
    await stage.fake_named(words[0]).die()
    await stage.barrier()
    return ""


@action("back")
async def back(stage: Stage, words: list[str]) -> str:
    """back 11 ...: a dead fake broker starts again."""
    for word in words:
        fake = stage.fake_named(word)
        await fake.back()
        await stage.greeted(fake)
        await stage.barrier()
    return ""


@action("bounce")
async def bounce(stage: Stage, words: list[str]) -> str:
    """bounce 11: away and back so fast that the controller sees one change."""
    fake = stage.fake_named(words[0])
    await stage.flush()
    fake.bounce()
    await stage.greeted(fake)
    await stage.barrier()
    return ""


@action("unplug")
async def unplug(stage: Stage, words: list[str]) -> str:
    """unplug 11: registered, but nobody can connect."""
    await stage.flush()
    await stage.fake_named(words[0]).refuse()
    return ""


@action("plug")
async def plug(stage: Stage, words: list[str]) -> str:
    """plug 11: one can connect again."""
    await stage.fake_named(words[0]).accept()
    return ""


@action("hold")
async def hold(stage: Stage, words: list[str]) -> str:
    """hold 11 StopReplica ...: answers to these requests are held back."""
    stage.fake_named(words[0]).hold(*words[1:])
    return ""


@action("release")
async def release(stage: Stage, words: list[str]) -> str:
    """release 11: held answers are given."""
    stage.fake_named(words[0]).release()
    return ""


@action("answers")
async def answers(stage: Stage, words: list[str]) -> str:
    """answers 11 LeaderAndIsr orders 0 KAFKA_STORAGE_ERROR: a code in its answers; without topic and partition at the top."""
    fake, api, code = stage.fake_named(words[0]), words[1], int(ErrorCode[words[-1]])
    place = (words[2], int(words[3])) if len(words) == 5 else ("", -1)
    fake.errors[api, place[0], place[1]] = code
    return ""


@action("rewrite")
async def rewrite(stage: Stage, words: list[str]) -> str:
    """rewrite 11 [port=N] [rack=r] [name=value]: other data in its node."""
    parsed = Words.of(words)
    fake = stage.fake_named(parsed.rest[0])
    node = fake.node(int(parsed.settings.pop("port", fake.port)), parsed.settings.pop("rack", None))
    node.update({name: json.loads(value) for name, value in parsed.settings.items()})
    stage.tree.client.set(fake.path, json.dumps(node).encode())
    return ""


# the controller's place


@action("steal")
async def steal(stage: Stage, words: list[str]) -> str:
    """steal: somebody else makes itself controller, in one multi; wait until the brokers under test have noticed."""
    await stage.flush()
    if stage.tree.exists("/controller_epoch") is None:
        stage.tree.put("/controller_epoch", "0")
    stage.tree.steal_controller()
    # of nobody, about nothing: an active controller does not know the sender, any other says that it is none
    question = messages.AlterPartitionRequest(broker_id=-7, broker_epoch=-1, topics=[])
    for broker_id in [i for i, broker in stage.brokers.items() if broker.alive()]:

        async def noticed(broker_id: int = broker_id) -> bool:
            return (await stage.ask(question, 2, to=broker_id, timeout_s=10)).error_code == ErrorCode.NOT_CONTROLLER

        await eventually_asked(noticed, f"broker {broker_id} is controller no more", 30)
    return ""


@action("resign")
async def resign(stage: Stage, words: list[str]) -> str:
    """resign: `/controller` is deleted; wait until a broker under test has it."""
    await stage.flush()
    stage.tree.delete("/controller")
    await eventually(lambda: stage.tree.controller() in stage.brokers, "a broker under test is controller", 30)
    await stage.barrier()
    return ""
