"""Performs the steps of a schedule with the verbs of the control API and of `klamm.admin`, and undoes them.

`begin` resolves roles and ranks, does the step and returns what it did in words, with what undoes it. What the cluster refuses, because of
other steps that are under way, did not happen; the words say why.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from klamm.admin import AdminClient, AdminError, ConfigResource, ResourceType
from klamm.chaos.clients.producers import LoadHangs
from klamm.chaos.cluster import ServedCluster
from klamm.chaos.kinds import KINDS, Parameters
from klamm.chaos.load import Load
from klamm.chaos.scenes import RATE, Missed, UncleanCut, Violated, expire_beside_transaction
from klamm.chaos.schedule import Step
from klamm.control.client import ControlFailed
from klamm.control.json_object import JsonObject

if TYPE_CHECKING:
    from klamm.chaos.program_load import ProgramLoad

START_S = 90.0
LOOK_S = 0.2
CALL_MS = 5000
SCENE_BROKERS = 3
Undo = Callable[[], str]
"""Undoes a step and says what it did."""


class Done(NamedTuple):
    """What came of a step. `happened` is False if the cluster refused it."""

    text: str
    undo: Undo | None = None
    happened: bool = True


class Skipped(Exception):
    """The step cannot be done now; the text says why."""


class Actions:
    """The steps of one run."""

    def __init__(self, cluster: ServedCluster, admin: AdminClient, load: Load | ProgramLoad, violated: Violated) -> None:
        """`violated` hears of what scenes find."""
        self._violated = violated
        self.cluster, self.api, self.admin, self.load = cluster, cluster.api, admin, load
        self.extra_topics: list[str] = []
        """Topics that were created by steps, and are deleted when these are undone."""
        self._do: Mapping[str, Callable[[Parameters], Done]] = {
            "kill": self._kill, "stop": self._stop, "pause": self._pause, "cut-link": self._cut_link,
            "cut-zookeeper": self._cut_zookeeper, "expire": self._expire, "disk-full": self._fill_disk, "crash": self._crash,
            "controller": self._move_controller, "elect": self._elect, "reassign": self._reassign, "cancel": self._cancel,
            "topic-config": self._topic_config, "broker-config": self._broker_config, "topic": self._topic,
            "rebalance": self._rebalance, "expire-members": self._expire_members, "member": self._member,
            "slow-link": self._slow_link, "slow-zookeeper": self._slow_zookeeper, "lossy": self._lossy,
            "unclean-cut": self._unclean_cut, "expire-offset": self._expire_offset,
        }

    def begin(self, step: Step) -> Done:
        """Do a step."""
        try:
            if KINDS[step.kind].takes_broker and not self.cluster.options.unclean:
                self.revive()
            return self._do[step.kind](step.parameters)
        except (ControlFailed, AdminError, Skipped, Missed, OSError, LoadHangs) as refused:
            return Done(f"{step.kind} is refused: {refused}", happened=False)

    def undo(self, undo: Undo) -> str:
        """Undo a step."""
        try:
            return undo()
        except (ControlFailed, AdminError, OSError, LoadHangs) as failure:
            return f"not undone: {failure}"

    def restore(self) -> None:
        """End everything that is left of the steps; all brokers run afterwards, and all extra topics are deleted or being deleted."""
        self.api.post("reset")
        self.revive()
        shown = {row["name"] for row in self.api.get("topics")["topics"]}
        for name in self.extra_topics:
            if name in shown:
                with contextlib.suppress(ControlFailed):
                    self.api.delete("topics", name)

    def revive(self) -> None:
        """Start the brokers that do not run. A broker that ended is found here too."""
        for row in self._brokers():
            if row["state"] in ("stopped", "killed"):
                self._start(row["id"])

    # --- who is meant

    def _brokers(self) -> list[JsonObject]:
        return list(self.api.get("brokers")["brokers"])

    def _running(self) -> list[int]:
        running = [row["id"] for row in self._brokers() if row["state"] == "running"]
        if not running:
            raise Skipped("no broker runs")
        return running

    def _broker(self, role: str) -> int:
        """The broker of a role or rank; the first that runs if there is none."""
        running = self._running()
        found = -1
        try:
            match role.split(" "):
                case ["controller"]:
                    found = self.api.get("controller")["id"]
                case ["leader", partition]:
                    found = self._leader("records", int(partition))
                case ["coordinator", "of", group]:
                    found = self.api.get("groups", group)["coordinator"]
                case ["broker", rank]:
                    found = running[int(rank) % len(running)]
        except ControlFailed:
            found = -1
        return found if found in running else running[0]

    def _leader(self, topic: str, partition: int) -> int:
        for row in self.api.get("topics", states=True)["topics"]:
            if row["name"] == topic:
                return int(row["states"][partition]["leader"])
        return -1

    def _peer(self, broker: int, rank: int) -> int:
        others = [each for each in self._running() if each != broker]
        if not others:
            raise Skipped(f"broker {broker} runs alone")
        return others[rank % len(others)]

    def _named(self, role: str, broker: int) -> str:
        """A broker with its role, for people."""
        what, _, rest = role.partition(" ")
        if what == "broker":
            return f"broker {broker}"
        return f"broker {broker} ({f'leader of records-{rest}' if what == 'leader' else role})"

    # --- brokers

    def _kill(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.api.post("brokers", broker, "kill", body={"expire": given["expire"]})
        how = ", its ZooKeeper session ends at once" if given["expire"] else ""
        return Done(f"{self._named(given['broker'], broker)} is killed{how}", lambda: self._start(broker))

    def _stop(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.api.post("brokers", broker, "stop")
        return Done(f"{self._named(given['broker'], broker)} is stopped", lambda: self._start(broker))

    def _start(self, broker: int) -> str:
        """Start a broker; again while its former session is there. Raises ControlFailed."""
        until = time.monotonic() + START_S
        while True:
            try:
                self.api.post("brokers", broker, "start")
            except ControlFailed as failure:
                if "runs already" in str(failure):
                    break
                if time.monotonic() > until:
                    raise
                time.sleep(LOOK_S)
            else:
                break
        return f"broker {broker} runs again"

    def _pause(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.api.post("brokers", broker, "pause")

        def undo() -> str:
            self.api.post("brokers", broker, "resume")
            return f"broker {broker} goes on"

        return Done(f"{self._named(given['broker'], broker)} is paused", undo)

    def _fill_disk(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.cluster.fill_disk(broker)

        def undo() -> str:
            self.cluster.free_disk(broker)
            state = self.api.get("brokers", broker)["state"]
            if state == "running":
                self.api.post("brokers", broker, "kill" if given["ends"] == "killed" else "stop")
            return f"the disk of broker {broker} is free, it is {given['ends']}, and {self._start(broker)}"

        return Done(f"a disk of {self._named(given['broker'], broker)} is full", undo)

    def _crash(self, given: Parameters) -> Done:
        hold = self.api.post("holds", body={"phase": given["phase"], "nth": given["nth"], "crash": True})["id"]

        def undo() -> str:
            hits = self.api.get("holds", hold)["hits"]
            self.api.delete("holds", hold)
            dead = [row["id"] for row in self._brokers() if row["state"] in ("killed", "stopped")]
            said = [self._start(broker) for broker in dead]
            return "; ".join(said) if said else f"{given['phase']} was reached {hits} times, nobody was killed"

        return Done(f"the broker that reaches {given['phase']} (number {given['nth']}) is to be killed there", undo)

    # --- connections

    def _links(self, body: Mapping[str, object]) -> list[int]:
        return list(self.api.post("links", body=body)["faults"])

    def _remove(self, faults: list[int]) -> None:
        for number in faults:
            self.api.delete("faults", number)

    def _cut_link(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        peers = [self._peer(broker, given["rank"])] if given["peers"] == "one" else [each for each in self.cluster.ids if each != broker]
        faults = [number for peer in peers for number in self._links({"from_broker": broker, "to_broker": peer, "cut": True})]

        def undo() -> str:
            self._remove(faults)
            return f"broker {broker} reaches the others again"

        said = "all other brokers" if given["peers"] == "all" else f"broker {peers[0]}"
        return Done(f"{self._named(given['broker'], broker)} is cut off from {said}", undo)

    def _slow_link(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        peer = self._peer(broker, given["rank"])
        faults = self._links({"from_broker": broker, "to_broker": peer, "delay_ms": given["ms"]})

        def undo() -> str:
            self._remove(faults)
            return f"the link of brokers {broker} and {peer} is fast again"

        return Done(f"requests between {self._named(given['broker'], broker)} and broker {peer} take {given['ms']} ms longer", undo)

    def _cut_zookeeper(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.api.post("zookeeper", "cut", body={"broker": broker})

        def undo() -> str:
            self.api.post("zookeeper", "restore", body={"broker": broker})
            return f"broker {broker} reaches ZooKeeper again"

        return Done(f"{self._named(given['broker'], broker)} is cut off from ZooKeeper", undo)

    def _slow_zookeeper(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.api.post("zookeeper", "delay", body={"broker": broker, "ms": given["ms"]})

        def undo() -> str:
            self.api.post("zookeeper", "delay", body={"broker": broker, "ms": 0})
            return f"broker {broker} reaches ZooKeeper as fast as before"

        return Done(f"requests of {self._named(given['broker'], broker)} to ZooKeeper wait {given['ms']} ms", undo)

    def _expire(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self.api.post("zookeeper", "expire", body={"broker": broker})
        return Done(f"the ZooKeeper session of {self._named(given['broker'], broker)} expires")

    def _lossy(self, given: Parameters) -> Done:
        body = {
            "filter": {"api": given["api"]}, "effect": {"close": given["close"]}, "probability": given["probability"],
            "seed": given["seed"],
        }
        number = self.api.post("faults", body=body)["id"]

        def undo() -> str:
            hits = self.api.get("faults", number)["hits"]
            self.api.delete("faults", number)
            return f"no connection closes for {given['api']} any more, {hits} did"

        return Done(f"connections close {given['close']} {given['probability']:.0%} of the responses of {given['api']}", undo)

    # --- what admins do

    def _move_controller(self, given: Parameters) -> Done:
        to = None if given["to"] is None else self._broker(given["to"])
        if to is None:
            self.api.post("controller", "resign")
        else:
            self.api.post("controller", "move", body={"to": to})
        return Done("the controller resigns" if to is None else f"broker {to} becomes controller")

    def _elect(self, _given: Parameters) -> Done:
        self.admin.elect_preferred_leaders(timeout_ms=CALL_MS)
        return Done("preferred leaders are elected")

    def _reassign(self, given: Parameters) -> Done:
        targets = {(given["topic"], int(p)): replicas for p, replicas in given["targets"].items()}
        if given["throttle"] is None:
            errors = self.admin.alter_partition_reassignments(targets, timeout_ms=CALL_MS).errors()
        else:
            errors = self.admin.reassign_partitions(targets, throttle=given["throttle"], timeout_ms=CALL_MS).errors()
        if errors:
            raise Skipped(f"{next(iter(errors.values()))}")
        said = ", ".join(f"{topic}-{p} to {replicas}" for (topic, p), replicas in targets.items())
        return Done(f"replicas move: {said}" + ("" if given["throttle"] is None else f", with {given['throttle']} bytes/s"))

    def _cancel(self, _given: Parameters) -> Done:
        moving = self.admin.list_partition_reassignments(timeout_ms=CALL_MS)
        if moving:
            self.admin.alter_partition_reassignments(dict.fromkeys(moving), timeout_ms=CALL_MS)
        return Done(f"{len(moving)} reassignments are cancelled", happened=bool(moving))

    def _config(self, kind: ResourceType, name: str, given: Parameters) -> None:
        change = {ConfigResource(kind, name): {given["name"]: given["value"]}}
        self.admin.incremental_alter_configs(change, timeout_ms=CALL_MS).all()

    def _topic_config(self, given: Parameters) -> Done:
        self._config(ResourceType.TOPIC, given["topic"], given)
        return Done(f"topic {given['topic']} gets {given['name']}={given['value']}")

    def _broker_config(self, given: Parameters) -> Done:
        broker = self._broker(given["broker"])
        self._config(ResourceType.BROKER, str(broker), given)
        return Done(f"{self._named(given['broker'], broker)} gets {given['name']}={given['value']}")

    def _topic(self, given: Parameters) -> Done:
        name = f"extra-{given['number']:x}"
        replicas = min(3, len(self._running()))
        self.extra_topics.append(name)
        self.api.post("topics", body={"name": name, "partitions": given["partitions"], "replication_factor": replicas})

        def undo() -> str:
            self.api.delete("topics", name)
            return f"topic {name} is deleted"

        return Done(f"topic {name} with {given['partitions']} partitions is created", undo)

    def _unclean_cut(self, given: Parameters) -> Done:
        name, first = f"unclean-{given['number']:x}", self._broker("controller")  # it can take followers out of the ISR while it is cut off
        chosen = list(dict.fromkeys([first, *(self._peer(first, given["rank"] + n) for n in range(SCENE_BROKERS - 1))]))
        if len(chosen) < SCENE_BROKERS:
            raise Skipped(f"only brokers {chosen} run")
        self.extra_topics.append(name)
        scene = UncleanCut(self.cluster, self.admin, name, chosen)
        try:
            return Done(scene.play(self._violated), lambda: self._end_scene(scene))
        except (ControlFailed, AdminError, Missed, LoadHangs):
            self._end_scene(scene)
            raise

    def _end_scene(self, scene: UncleanCut) -> str:
        """The brokers of a scene run again and reach each other, its throttle is over, and its topic is deleted."""
        self._remove(scene.cuts)
        self.revive()
        self.admin.incremental_alter_configs({scene.throttled: {RATE: None}}, timeout_ms=CALL_MS).all()
        self.api.delete("topics", scene.topic)
        return f"all brokers run again, topic {scene.topic} is deleted"

    # --- groups

    def _expire_offset(self, given: Parameters) -> Done:
        group = f"expiring-{given['number']:x}"
        return Done(expire_beside_transaction(self.cluster.bootstrap_servers, self.admin, group, self._violated))

    def _rebalance(self, given: Parameters) -> Done:
        self.api.post("groups", given["group"], "rebalance")
        return Done(f"group {given['group']} rebalances")

    def _expire_members(self, given: Parameters) -> Done:
        gone = self.api.post("groups", given["group"], "expire")["expired"]
        return Done(f"the sessions of all {len(gone)} members of {given['group']} time out")

    def _member(self, given: Parameters) -> Done:
        member = self.load.join(given["group"])

        def undo() -> str:
            self.load.leave(member)
            return f"{member.name} leaves group {given['group']}"

        return Done(f"{member.name} joins group {given['group']}", undo)
