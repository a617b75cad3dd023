"""What rules say of requests of controllers that are too long to be kept decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.pipeline.decode import batches
from klamm.tests.pipeline.in_duckdb import judged, silver
from klamm.tests.pipeline.rules.controllers import State
from klamm.tests.pipeline.rules.fixtures import Run
from klamm.tests.pipeline.rules.fixtures_controller_answers import create, led


def test_nobody_is_accused_of_what_a_long_request_may_have_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of the new partition is in a long UpdateMetadata."""
    monkeypatch.setattr(batches, "MAX_BODY", 10_000)
    run = Run(tmp_path, "r")
    channel = led(run)
    many = [State(topic=f"t{number}", topic_id=number.to_bytes(16, "big")) for number in range(1, 100)]
    create(channel.journal, 1, between=lambda: channel.update(State(), *many))
    run.close()
    said = judged(silver(tmp_path), ["C-24"])
    assert [row["detail"] for row in said if row["detail"] is not None] == []
