"""Marks for producer ids and epochs in random stories: `<pid a>` and `<epoch a -1>`, of the transactional id `a`.

A broker gives ids one after the other to all stories that it is told, so a story does not know them when it is drawn.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"<(pid|epoch) ([^ >]+)(?: ([+-]\d+))?>")
_GIVEN = re.compile(r"NONE id (\d+) epoch (\d+)")


class ProducerMarks:
    """The producer ids and epochs that brokers have given in one telling."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[int, int]] = {}

    def filled(self, line: str) -> str:
        """A command with numbers in place of its marks; a mark of an id that has no producer is -1. Other marks stay."""

        def number(match: re.Match[str]) -> str:
            if match[2] not in self._given:
                return "-1" if match[1] == "pid" else match[0]
            pid, epoch = self._given[match[2]]
            return str(pid if match[1] == "pid" else epoch + int(match[3] or 0))

        return _MARK.sub(number, line)

    def learn(self, lines: list[str], outcome: str) -> None:
        """Remember what a broker gave in a scene that begins with InitProducerId."""
        words, given = lines[0].split(), _GIVEN.findall(outcome)
        if words[0] == "tx-init" and given:
            pid, epoch = given[-1]
            self._given[words[1]] = int(pid), int(epoch)
