"""A random story from its seed: a cluster is set up, a few steps follow, and at the end everything is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from klamm.tests.duel import asks, brokers, configs, data, elections, member, reassignments, restarts, topics, transactions, znodes
from klamm.tests.duel.draw import Draw
from klamm.tests.duel.tale import Lines, Tale
from klamm.tests.duel.words import broker_nodes, config_nodes, creation, quotas, responses, several

Step = Callable[[Draw], Lines]
Area = list[tuple[int, Step]]
TOPICS: Area = [
    (4, topics.create),
    (2, topics.create_auto),
    (4, topics.create_asked),
    (4, topics.delete),
    (4, topics.grow),
    (2, configs.alter),
    (1, configs.describe),
    (1, asks.metadata),
]
CONFIGS: Area = [(1, topics.create), (6, configs.alter), (3, configs.replace), (3, configs.describe), (1, topics.delete)]
BROKERS: Area = [
    (6, brokers.die_or_back),
    (3, brokers.bounce),
    (1, brokers.enter),
    (3, brokers.shutdown),
    (2, brokers.storage_fails),
    (1, brokers.storage_works),
    (1, brokers.deletion_fails),
    (1, brokers.node_changes),
    (1, brokers.resign),
]
ELECTIONS: Area = [
    (5, elections.elect),
    (2, elections.elect_asked),
    (2, elections.by_node),
    (6, elections.alter_partition),
    (1, elections.alter_partition_asked),
    (4, brokers.die_or_back),
    (4, brokers.bounce),
]
ZNODES: Area = [
    (2, znodes.topic_node),
    (2, znodes.partition_added),
    (4, znodes.state_node),
    (2, znodes.isr_notification),
    (1, znodes.log_dir_notification),
    (2, znodes.deletion_node),
    (1, znodes.config_node),
    (2, brokers.resign),
    (2, brokers.die_or_back),
]
RESTARTS: Area = [(3, restarts.restart), (1, topics.create), (1, brokers.die_or_back), (1, elections.elect), (1, elections.alter_partition)]
ASKS: Area = [(4, asks.metadata), (1, asks.cluster), (1, asks.reassignments), (1, asks.producer_ids)]
MEMBER: Area = [(4, member.leader_and_isr), (4, member.update_metadata), (3, member.stop_replica), (1, asks.metadata), (1, asks.cluster)]
DATA: Area = [
    (1, data.create),
    (10, data.produce),
    (6, data.fetch),
    (2, data.offsets),
    (1, data.epoch_ends),
    (2, data.delete_records),
    (2, data.producers),
    (1, data.log_dirs),
    (1, data.configure),
    (1, data.lead_again),
    (1, data.elect),
]
TRANSACTIONS: Area = [
    (3, transactions.init),
    (1, transactions.fence),
    (7, transactions.add),
    (8, transactions.produce),
    (2, transactions.produce_plainly),
    (6, transactions.end),
    (3, transactions.offsets),
    (4, transactions.commit),
    (2, transactions.offsets_of_groups),
    (1, transactions.markers),
    (3, transactions.fetch),
    (2, transactions.last_stable_offset),
    (2, transactions.describe),
    (2, transactions.list_all),
    (2, transactions.producers),
]
REASSIGNMENTS: Area = [
    (6, reassignments.reassign),
    (8, reassignments.catch_up),
    (3, reassignments.cancel),
    (2, reassignments.by_node),
    (1, reassignments.odd_node),
    (2, reassignments.asked),
    (1, reassignments.listed),
    (3, brokers.die_or_back),
    (2, brokers.bounce),
    (1, brokers.resign),
    (1, brokers.storage_fails),
    (2, elections.elect),
    (1, elections.alter_partition),
    (1, topics.grow),
]
SEVERAL: Area = [
    (2, several.create),
    (8, several.reassign),
    (2, several.cancel_all),
    (6, several.joined),
    (6, several.caught_up),
    (4, several.elect),
    (4, several.unclean),
    (3, several.leave_all),
    (3, several.grow),
    (1, several.delete),
    (1, several.deletion_waits),
    (4, responses.die_or_back),
    (3, responses.bounce),
    (1, responses.shutdown),
    (1, responses.resign),
]
CONFIG_NODES: Area = [
    (4, config_nodes.topic),
    (4, config_nodes.broker),
    (4, config_nodes.altered),
    (2, config_nodes.replaced),
    (2, config_nodes.created),
    (1, config_nodes.described),
]
QUOTAS: Area = [(6, quotas.alter), (4, quotas.describe), (3, quotas.node), (2, quotas.scram), (3, quotas.refused)]
BROKER_NODES: Area = [
    (4, broker_nodes.rewritten),
    (4, broker_nodes.bare),
    (2, broker_nodes.on_bare),
    (2, broker_nodes.metadata_by_id),
    (2, broker_nodes.block),
    (3, broker_nodes.topic_node_oddly),
    (4, broker_nodes.state_oddly),
    (2, brokers.die_or_back),
    (1, brokers.bounce),
    (1, topics.delete),
    (1, elections.elect),
]
RESPONSES: Area = [
    (5, responses.hold),
    (4, responses.come),
    (3, responses.error),
    (5, responses.die_or_back),
    (3, responses.bounce),
    (2, responses.shutdown),
    (4, responses.delete),
    (3, responses.create),
    (4, responses.reassign),
    (2, responses.elect),
    (1, responses.resign),
]
CONTROLLERS: Area = [
    (6, responses.replaced),
    (2, responses.create),
    (1, responses.delete),
    (3, responses.reassign),
    (2, responses.die_or_back),
    (1, responses.elect),
]
CREATION: Area = [
    (6, creation.asked_for),
    (2, creation.coordinator),
    (4, creation.created),
    (3, creation.deleted),
    (2, creation.grown),
]
PLACEMENT: Area = [
    (3, creation.placed_by_hand),
    (8, creation.placed),
    (3, creation.rack_changes),
    (1, creation.refused),
    (1, creation.moved),
    (3, responses.die_or_back),
    (1, responses.shutdown),
]
AREAS: dict[str, Area] = {
    "topics": TOPICS,
    "configs": CONFIGS,
    "brokers": [*BROKERS, (2, topics.create), (2, topics.delete), (1, topics.grow)],
    "elections": ELECTIONS,
    "znodes": [*ZNODES, (2, topics.delete)],
    "reassignments": REASSIGNMENTS,
    "restarts": RESTARTS,
    "member": MEMBER,
    "data": DATA,
    "logs": [*DATA, (3, data.restart)],
    "transactions": TRANSACTIONS,
    "coordinators": [*TRANSACTIONS, (5, transactions.restart)],
    "several": SEVERAL,
    "creation": CREATION,
    "placement": PLACEMENT,
    "config nodes": CONFIG_NODES,
    "quotas": QUOTAS,
    "broker nodes": BROKER_NODES,
    "responses": RESPONSES,
    "controllers": CONTROLLERS,
    "everything": [*TOPICS, *BROKERS, *ELECTIONS, *ZNODES, *ASKS],
}

MOST_STEPS = {"reassignments": 16, "several": 18, "quotas": 16, "restarts": 5, "data": 24, "transactions": 50, "coordinators": 20}
"""How many steps a story of an area has at most, if not 12."""


class Setting(NamedTuple):
    """What a batch of stories is about, and what its broker is started with."""

    area: str
    own: tuple[tuple[str, str], ...] = ()
    most: int = 1000
    """How many stories at most; few where each needs new brokers."""

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        return (*self.own, restarts.AS_KAFKA)

    @property
    def title(self) -> str:
        return " ".join([self.area, *("=".join(pair) for pair in self.own)])


def _protocol(version: str) -> tuple[tuple[str, str], ...]:
    protocol = (("inter.broker.protocol.version", version),)
    return (*protocol, ("log.message.format.version", version)) if version.startswith("0.") else protocol


_KEEP = (data.KEEP,)
SETTINGS = [
    Setting("everything"),
    Setting("data", _KEEP),
    Setting("truncation", _KEEP, 6),
    Setting("transactions", _KEEP),
    Setting("reassignments"),
    Setting("elections"),
    Setting("topics"),
    Setting("brokers"),
    Setting("everything", _protocol("2.6")),
    Setting("znodes"),
    Setting("configs"),
    Setting("member"),
    Setting("brokers", _protocol("0.8.2")),
    Setting("everything", (("unclean.leader.election.enable", "true"),)),
    Setting("elections", _protocol("2.4-IV0")),
    Setting("reassignments", _protocol("2.4-IV0")),
    Setting("znodes", _protocol("1.0")),
    Setting("everything", _protocol("0.10.0")),
    Setting("member", _protocol("2.2")),
    Setting("restarts", most=8),
    Setting("several"),
    Setting("creation", (("auto.create.topics.enable", "true"), ("num.partitions", "2")), 15),
    Setting("placement", (("broker.rack", "b"),)),
    Setting("responses"),
    Setting("controllers"),
    Setting("config nodes"),
    Setting("responses", _protocol("2.4-IV0")),
    Setting("controllers", _protocol("2.6")),
    Setting("quotas"),
    Setting("broker nodes"),
    Setting("several", _protocol("2.6")),
    Setting("broker nodes", _protocol("2.7")),
    Setting("logs", _KEEP, 12),
    Setting("coordinators", _KEEP, 6),
    Setting("transactions", (data.KEEP, *_protocol("2.4"))),
    Setting("data", (data.KEEP, *_protocol("2.7"))),
    Setting("everything", _protocol("3.3")),
    Setting("everything", _protocol("0.9.0")),
    Setting("reassignments", _protocol("0.10.0")),
    Setting("topics", (("delete.topic.enable", "false"),), 5),
]
"""In this turn; the first ones are those that a short run sees."""


def draw_tale(name: str, area: str, properties: tuple[tuple[str, str], ...]) -> Tale:
    """The story that `name` means: the same one whenever and wherever it is drawn."""
    draw = Draw(f"{name} {area}")
    draw.old_protocol = "inter.broker.protocol.version" in dict(properties)
    scenes: list[Lines] = []
    if area == "truncation":
        return Tale(f"{name} {area}", properties, tuple(data.truncation(draw)))
    if area in ("transactions", "coordinators"):
        scenes += transactions.setting(draw)
    elif area == "member":
        scenes.append(member.stolen(draw))
    elif area in ("data", "logs"):
        scenes += [_setting(draw), data.create(draw), data.create(draw)]
    elif area == "placement":
        scenes += [creation.with_racks(draw), creation.placed_by_hand(draw)]
    elif area not in ("quotas", "creation"):
        scenes.append(_setting(draw))
        scenes += [(several if area == "several" else topics).create(draw) for _ in range(draw.random.randint(1, 2))]
    for _ in range(draw.random.randint(3, MOST_STEPS.get(area, 12))):
        scenes.append(draw.weighted(AREAS[area])(draw))
    scenes += _endings(area)(draw)
    return Tale(f"{name} {area}", properties, tuple(lines for lines in scenes if lines))


def _setting(draw: Draw) -> Lines:
    count = draw.weighted([(1, 0), (2, 1), (4, 2), (4, 3), (1, 4)])
    draw.fakes = [f"~{at}" for at in range(1, count + 1)]
    draw.alive = list(draw.fakes)
    return (f"fakes {' '.join(draw.fakes)}",) if draw.fakes else ()


def _endings(area: str) -> Callable[[Draw], list[Lines]]:
    """What is looked at when a story of the area ends."""
    if area in ("transactions", "coordinators"):
        return transactions.look
    if area == "reassignments":
        return lambda draw: [*reassignments.look(draw), *_ending(draw)]
    if area in ("several", "responses", "controllers"):
        return lambda draw: [*several.look_at_all(draw), *_ending(draw)]
    if area == "creation":
        return creation.look_at_all
    if area == "quotas":
        return lambda draw: [("tree /config/users",), ("tree /config/clients",), ("tree /config/ips",)]
    return data.look if area in ("data", "logs") else _ending


def _ending(draw: Draw) -> list[Lines]:
    shown = [name for name in draw.topics if name.startswith("@")] or ["@1"]
    scenes: list[Lines] = [(f"state {name}",) for name in shown]
    scenes += [(f"told {fake} {' '.join(shown)}",) for fake in draw.fakes]
    scenes += [(f"metadata {name}",) for name in shown]
    return [*scenes, ("brokers",), ("children /brokers/topics",)]
