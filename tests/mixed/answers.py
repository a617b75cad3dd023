"""What brokers answer a real controller, read from its state-change log (level TRACE)."""

from __future__ import annotations

import re

from klamm.tests.harness.kafka import KafkaBroker

_RESPONSE = re.compile(r"Received response (\w+)Data\((.*)\) for request \w+ with correlation id \d+ sent to broker \S+ \(id: (\d+) ")
_CODE = re.compile(r"errorCode=(\d+)")


def answers(controller: KafkaBroker) -> list[tuple[str, int, str]]:
    """What brokers answered the real controller, from its state-change log: (response, broker, text)."""
    found = (_RESPONSE.search(line.text) for line in controller.lines(lambda line: line.logger == "state.change.logger"))
    return [(match[1], int(match[3]), match[2]) for match in found if match is not None]


def faults(controller: KafkaBroker) -> list[tuple[str, int, str]]:
    """Responses with an error code, without those to a repeated state of a partition (11, as in responses of Apache Kafka)."""

    def is_fault(kind: str, text: str) -> bool:
        whole, *each = _CODE.findall(text)
        return whole != "0" or any(code != "0" and (kind, code) != ("LeaderAndIsrResponse", "11") for code in each)

    return [answer for answer in answers(controller) if is_fault(answer[0], answer[2])]
