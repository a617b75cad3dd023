"""Background tasks and loops go on after an exception, and the exception is in the log."""

from __future__ import annotations

import pytest

from klamm.controller.values import StoreLost
from klamm.server.ground.background import BackgroundTasks, Looking


async def test_a_background_task_that_fails_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise LookupError("nobody awaits me")

    background = BackgroundTasks()
    task = background.start(fail())
    with pytest.raises(LookupError):
        await task
    assert "nobody awaits me" in caplog.text


@pytest.mark.parametrize("fault", [LookupError("a fault of ours"), StoreLost("the session is over"), UnicodeError("a name")])
async def test_a_change_that_cannot_be_processed_does_not_end_the_looking(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    looked: list[int] = []

    async def look_at() -> None:
        looked.append(1)
        if len(looked) == 1:
            raise fault

    looking = Looking("changes", look_at, lambda _: None)
    await looking.look()
    await looking.look()
    assert len(looked) == 2
    assert str(fault) in caplog.text
