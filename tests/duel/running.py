"""A run: stories are drawn from a seed, told, told again and shrunk when they differ, and counted, until the time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from klamm.tests.duel.account import Account
from klamm.tests.duel.known import explained
from klamm.tests.duel.pair import Pair, PairLost, Told
from klamm.tests.duel.shrinking import shrunk
from klamm.tests.duel.story import SETTINGS, draw_tale
from klamm.tests.duel.tale import Tale
from klamm.tests.reference.jars import jars

BATCH = 40
"""Stories told to one pair of brokers, unless they cannot be brought back to where they were."""
TELLING_S = 150.0
"""How long one story may take; it is stuck then."""
SHRINK_ATTEMPTS, SHRINK_S = 60, 240.0


class Batch(NamedTuple):
    """Stories for one pair of brokers."""

    title: str
    properties: tuple[tuple[str, str], ...]
    tales: list[Tale]


def batches(seed: int, stories: int = BATCH) -> Iterator[Batch]:
    """All batches of a seed, without end; the settings come in turn, so that a short run sees many; seeds begin in different places."""
    number = 0
    while True:
        setting = SETTINGS[(seed + number) % len(SETTINGS)]
        tales = [draw_tale(f"{seed}/{number}/{at}", setting.area, setting.properties) for at in range(min(stories, setting.most))]
        yield Batch(f"{number} {setting.title}", setting.properties, tales)
        number += 1


class DuelRun:
    """One run of a seed. Differences are written into `folder`; `say` gets lines about the progress; a batch has `stories`."""

    def __init__(self, seed: int, folder: Path, say: Callable[[str], None], stories: int = BATCH) -> None:
        self.seed, self.folder, self.say, self.stories = seed, folder, say, stories
        self.account = Account()
        self._pair: Pair | None = None

    def close(self) -> None:
        """Stop the brokers."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    async def until(self, end: float, most: int | None = None) -> None:
        """Tell batch after batch until the clock (`time.monotonic`) shows `end`, at `most` so many."""
        try:
            for batch in islice(batches(self.seed, self.stories), most):
                await self._batch(batch, end)
                if time.monotonic() >= end:
                    return
        finally:
            self.close()

    async def _batch(self, batch: Batch, end: float) -> None:
        begun, before = time.monotonic(), self.account.stories
        self.close()
        for tale in batch.tales:
            if time.monotonic() >= end or not await self.story(tale):
                break
        account = self.account
        self.say(
            f"{batch.title}: {account.stories - before} stories in {time.monotonic() - begun:.0f} s; so far {account.stories} stories, "
            f"{account.steps} steps, {sum(account.explained.values())} explained, {len(account.unexplained)} unexplained"
        )

    async def story(self, tale: Tale) -> bool:
        """Tell a story; what differs is told again to new brokers, shrunk and written down. Returns whether it could be told at all."""
        told = await self._told(tale)
        if told is not None:
            await self._counted(tale, told)
        return told is not None

    async def _counted(self, tale: Tale, told: Told) -> None:
        self.account.told(tale)
        self.account.broken += told.broken
        if told.difference is None:
            return
        reason = explained(told.difference)
        if reason is not None:
            self.account.explained[reason] += 1
            return
        self.close()
        again = await self._told(tale)
        if again is None or again.difference is None or explained(again.difference) is not None:
            self.account.races += 1
            self.say(f"a race in {tale.name}: {told.difference.commands[-1]}")
            return
        path = self.folder / f"{tale.name.split()[0].replace('/', '-')}.txt"
        self.account.unexplained.append(path)
        self._write(path, tale, again)
        self.say(f"DIFFERENCE in {tale.name}: {path}; it is told again, shorter")
        self._write(path, *await self._shrunk(tale, again))
        self.say(path.read_text(encoding="utf-8"))

    async def _told(self, tale: Tale) -> Told | None:
        """Tell a story, a second time when the brokers were lost meanwhile; None when that helps nothing. A Klamm that dies differs."""
        for _ in range(2):
            try:
                pair = await self._ready(tale)
                async with asyncio.timeout(TELLING_S):
                    told, left = await pair.tell(tale)
                if left is not None:
                    self.say(f"{tale.name}: new brokers, {left[:300]}")
                    self.close()
                return told
            except PairLost as lost:
                self.close()
                self.say(f"{tale.name}: {lost}")
                if lost.side == "klamm":
                    return Told.lost(str(lost))
                self.account.kafka_lost += 1
            except TimeoutError:
                self.close()
                self.account.failed += 1
                self.say(f"{tale.name}: not told within {TELLING_S:.0f} s")
            except Exception as problem:  # noqa: BLE001 a run of hours goes on whatever one telling ends with; it is counted
                self.close()
                self.account.failed += 1
                self.say(f"{tale.name}: {type(problem).__name__}: {problem}")
        return None

    async def _ready(self, tale: Tale) -> Pair:
        if self._pair is None or self._pair.properties != tale.properties:
            self.close()
            self._pair = await asyncio.to_thread(Pair, jars(), tale.properties)
            self.account.pairs += 1
            await self._pair.start()
        return self._pair

    async def _shrunk(self, tale: Tale, told: Told) -> tuple[Tale, Told]:
        """A shorter story with the same difference, told to new brokers."""
        assert told.difference is not None
        word, end = told.difference.commands[-1].split()[0], time.monotonic() + SHRINK_S

        async def differs(candidate: Tale) -> bool:
            seen = None if time.monotonic() > end else await self._told(candidate)
            if seen is None or seen.difference is None or explained(seen.difference) is not None:
                return False
            return seen.difference.commands[-1].split()[0] == word and seen.difference.scene == len(candidate.scenes) - 1

        shorter = await shrunk(tale.with_scenes(tale.scenes[: told.difference.scene + 1]), differs, SHRINK_ATTEMPTS)
        self.close()  # so that the names are those of a first telling
        last = await self._told(shorter)
        return (tale, told) if last is None or last.difference is None else (shorter, last)

    def _write(self, path: Path, tale: Tale, told: Told) -> None:
        """A difference as a story file: the last scene has both outcomes."""
        difference = told.difference
        assert difference is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        outcomes = [*told.outcomes[: difference.scene], difference.kafka]
        file = tale.story_file(path, outcomes, f"Random story {tale.name}, as far as its difference.")
        file.stories[0].scenes[-1].klamm = ("not explained", difference.klamm)
        path.write_text(file.text(), encoding="utf-8")
