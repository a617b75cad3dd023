"""All stories of one folder, told to one kind of broker; and what is written into their files when that is asked for.

`--record` tells them to a real Kafka and writes down what it does; a file whose stories were all recorded in one run is signed.
`--rewrite` tells them to Klamm and writes down what it does instead, in those places only that are marked as known differences.
"""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

from klamm.tests.reference.jars import VERSION
from klamm.tests.stories.both.stage import Grounds, Target
from klamm.tests.stories.both.story_file import Story, StoryFile, read_all
from klamm.tests.stories.both.telling import Otherwise, record, replay

REPLAY, RECORD, REWRITE = "replay", "record", "rewrite"


class Library:
    """The stories of a folder by id, and the grounds of the file whose stories are just told."""

    def __init__(self, folder: Path, zookeeper: str, target: Target, mode: str = REPLAY) -> None:
        self.zookeeper, self.target, self.mode = zookeeper, target, mode
        self.by_id = {story.id: (file, story) for file in read_all(folder) for story in file.stories}
        self._recorded: dict[Path, int] = {}
        self._open: Grounds | None = None

    def _grounds(self, file: StoryFile) -> Grounds:
        if self._open is None or self._open.file is not file:
            self.close()
            self._open = Grounds(self.target, self.zookeeper, file)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    async def tell(self, story_id: str) -> None:
        """Tell one story. When replaying, raises Otherwise where the target does not do what the story says.

        A real Kafka has races of its own: what it does differently is asked once more, of new brokers on an empty ZooKeeper path.
        """
        try:
            await self._tell(story_id)
        except Otherwise as difference:
            if self.mode != REPLAY or self.target.name != "kafka":
                raise
            warnings.warn(f"{story_id}: told again, {difference}", stacklevel=1)
            self.close()
            await self._tell(story_id)

    async def _tell(self, story_id: str) -> None:
        file, story = self.by_id[story_id]
        stage = await asyncio.to_thread(self._grounds(file).stage)
        try:
            if self.mode == REPLAY:
                await replay(story, stage)
                return
            outcomes = await record(story, stage)
        finally:
            await stage.close()
        if self.mode == RECORD:
            self._write_down(file, story, outcomes)
        else:
            for scene, outcome in zip(story.scenes, outcomes, strict=True):
                if scene.klamm is not None:
                    scene.klamm = (scene.klamm[0], outcome)
            file.path.write_text(file.text(), encoding="utf-8")

    def _write_down(self, file: StoryFile, story: Story, outcomes: list[str]) -> None:
        signed = file.is_recorded()
        for scene, outcome in zip(story.scenes, outcomes, strict=True):
            scene.outcome = outcome
        self._recorded[file.path] = self._recorded.get(file.path, 0) + 1
        if signed or self._recorded[file.path] == len(file.stories):
            file.recorded = file.signature(f"Apache Kafka {VERSION}")
        file.path.write_text(file.text(), encoding="utf-8")
