"""Frames that real brokers exchanged while a story was told to them, and the form in which frames are compared.

Ids of topics, ports, broker epochs and times of the recording mean nothing: a topic id becomes the topic's name, a port says whether it
is the broker's own, a broker epoch is the first, the second, ... of that broker. All else must be the same; order within a request is free.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "interbroker.jsonl.gz"
NAMES = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown", 56: "AlterPartition", 67: "AllocateProducerIds"}


class Recorded(NamedTuple):
    """One frame; `pair` is the number of the request that an answer answers."""

    number: int
    pair: int
    step: str
    is_answer: bool
    sender: int
    receiver: int
    api: str
    version: int
    body: dict[str, Any]


@cache
def recording() -> list[Recorded]:
    """All frames of the APIs above, in the order of their arrival."""
    found = []
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line["api_key"] in NAMES:
                api = NAMES[line["api_key"]]
                sender, receiver = line["from"], line["to"]
                place = (line["n"], line["pair"], line["story_step"], line["response"], sender, receiver)
                found.append(Recorded(*place, api, line["api_version"], line["json"]))
    return found


def steps() -> list[str]:
    """Steps in which a controller said something, in order."""
    return list(
        dict.fromkeys(r.step for r in recording() if not r.is_answer and r.api in ("LeaderAndIsr", "StopReplica", "UpdateMetadata"))
    )


@cache
def topic_ids() -> dict[str, str]:
    """Topic id → name in the recording."""
    return {t["topicId"]: t["topicName"] for r in recording() if not r.is_answer for t in r.body.get("topicStates", []) if "topicId" in t}


class Form:
    """Brings frames of one side, the recording or ourselves, into the form that is compared."""

    def __init__(self, controller_epoch: Callable[[int], int], ports: Callable[[int, int], bool], names: dict[str, str]) -> None:
        """`ports` says whether a broker's port is its own; `names` are the topics by id; epochs of controllers are mapped."""
        self._controller_epoch, self._ports, self._names = controller_epoch, ports, names
        self._broker_epochs: dict[int, list[int]] = {}

    def request(self, receiver: int, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """A request of a controller."""
        epochs = self._broker_epochs.setdefault(receiver, [])
        if body["brokerEpoch"] not in epochs:
            epochs.append(body["brokerEpoch"])
        form: dict[str, Any] = {
            "api": api,
            "version": version,
            "controllerId": body["controllerId"],
            "controllerEpoch": self._controller_epoch(body["controllerEpoch"]),
            "brokerEpoch": epochs.index(body["brokerEpoch"]),
            "isKRaftController": body["isKRaftController"],
            "type": body.get("type", 0),
            "states": self._states(body),
        }
        if api == "UpdateMetadata":
            form["liveBrokers"] = {
                b["id"]: (
                    b["rack"],
                    [(e["listener"], e["host"], self._ports(b["id"], e["port"]), e["securityProtocol"]) for e in b["endpoints"]],
                )
                for b in body["liveBrokers"]
            }
        if api == "LeaderAndIsr":
            form["liveLeaders"] = {b["brokerId"]: (b["hostName"], self._ports(b["brokerId"], b["port"])) for b in body["liveLeaders"]}
        return form

    def _states(self, body: dict[str, Any]) -> dict[str, Any]:
        states = {}
        for topic in body["topicStates"]:
            name = topic["topicName"]
            for state in topic["partitionStates"]:
                fields = {k: v for k, v in state.items() if k != "partitionIndex"}
                if "controllerEpoch" in fields:
                    fields["controllerEpoch"] = self._controller_epoch(fields["controllerEpoch"])
                if "topicId" in topic:
                    fields["topic"] = self._names.get(topic["topicId"], "unknown id")
                states[f"{name}-{state['partitionIndex']}"] = fields
        return states

    def answer(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to such a request."""
        results = {}
        for topic in body.get("topics", []):
            for p in topic["partitionErrors"]:
                results[f"{self._names.get(topic['topicId'], 'unknown id')}-{p['partitionIndex']}"] = p["errorCode"]
        for p in body.get("partitionErrors", []):
            results[f"{p['topicName']}-{p['partitionIndex']}"] = p["errorCode"]
        return {"api": api, "errorCode": body["errorCode"], "partitions": results}

    def altered(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to an AlterPartition."""
        rows = {}
        for topic in body["topics"]:
            for p in topic["partitions"]:
                rows[f"{self._names[topic['topicId']]}-{p['partitionIndex']}"] = {k: v for k, v in p.items() if k != "partitionIndex"}
        return {"errorCode": body["errorCode"], "partitions": rows}
