"""The texts of errors of DescribeClientQuotas and AlterClientQuotas. Codes and everything else are in the stories."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.tests.harness.kafka import OwnedBroker, request
from klamm.tests.stories.both import answers

ALTERATIONS: list[tuple[dict[str, str | None], dict[str, object], str]] = [
    ({}, {"key": "producer_byte_rate", "value": 1}, "Invalid empty client quota entity"),
    ({"group": "g"}, {"key": "producer_byte_rate", "value": 1}, "Unhandled client quota entity type: group"),
    ({"": ""}, {"key": "producer_byte_rate", "value": 1}, "Unhandled client quota entity type: "),
    ({"user": ""}, {"key": "producer_byte_rate", "value": 1}, "Empty user not supported"),
    ({"client-id": ""}, {"key": "producer_byte_rate", "value": 1}, "Empty client-id not supported"),
    ({"user": "", "client-id": ""}, {"key": "producer_byte_rate", "value": 1}, "Empty client-id not supported"),
    (
        {"ip": "127.0.0.1", "user": "u"},
        {"key": "producer_byte_rate", "value": 1},
        "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
    ),
    ({"ip": "not/an address"}, {"key": "connection_creation_rate", "value": 1}, "not%2Fan%20address is not a valid IP or resolvable host."),
    ({"user": "u"}, {"key": "unknown", "value": 1}, "Invalid configuration key unknown"),
    ({"client-id": "c"}, {"key": "SCRAM-SHA-256", "value": 1}, "Invalid configuration key SCRAM-SHA-256"),
    ({"user": "u"}, {"key": "producer_byte_rate", "value": 1.5}, "Configuration producer_byte_rate must be a LONG value"),
    ({"client-id": None}, {"key": "consumer_byte_rate", "value": -1}, "Configuration consumer_byte_rate must be a LONG value"),
    ({"ip": None}, {"key": "connection_creation_rate", "value": 1.5}, "Configuration connection_creation_rate must be a INT value"),
]

COMBINATION = "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component."
FILTERS: list[tuple[list[dict[str, object]], str | None]] = [
    ([{"entityType": "group", "matchType": 2}], "Custom entity type 'group' not supported"),
    ([{"entityType": "", "matchType": 2}], "Unexpected empty filter component entity type"),
    ([{"entityType": "user", "matchType": 2}] * 2, "Duplicate user filter component entity type"),
    ([{"entityType": "client-id", "matchType": 2}] * 2, "Duplicate client filter component entity type"),
    ([{"entityType": "ip", "matchType": 2}] * 2, "Duplicate ip filter component entity type"),
    ([{"entityType": "ip", "matchType": 2}, {"entityType": "client-id", "matchType": 2}], COMBINATION),
    ([{"entityType": "group", "matchType": 7}], None),
    ([{"entityType": "ip", "matchType": 2}, *[{"entityType": "user", "matchType": 2}] * 2], "Duplicate user filter component entity type"),
]


def ask(broker: OwnedBroker, name: str, value: dict[str, Any]) -> Any:
    return request(broker.port, answers.request(name, 1, value), 1)


@pytest.mark.parametrize(("entity", "operation", "text"), ALTERATIONS)
def test_an_alteration_that_is_refused_has_the_text_of_kafka(
    broker: OwnedBroker, entity: dict[str, str | None], operation: dict[str, object], text: str
) -> None:
    names = [{"entityType": type_, "entityName": name} for type_, name in entity.items()]
    (entry,) = ask(broker, "AlterClientQuotas", {"entries": [{"entity": names, "ops": [operation]}]}).entries
    assert entry.error_message == text


@pytest.mark.parametrize(("components", "text"), FILTERS)
def test_a_filter_that_is_refused_has_the_text_of_kafka(broker: OwnedBroker, components: list[dict[str, object]], text: str | None) -> None:
    assert ask(broker, "DescribeClientQuotas", {"components": components}).error_message == text
