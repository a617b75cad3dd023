"""What `klamm pipeline watch` says of a look that found new segments."""

from __future__ import annotations

from klamm.cli.pipeline.watch import found_text, share_text
from klamm.pipeline.lake.bronze import Converted
from klamm.pipeline.run import Share


def test_a_row_has_the_segments_with_their_frames_and_events() -> None:
    found = [Converted(table, "r", "0", "", rows, None) for table, rows in (("frames", 1200), ("frames", 34), ("events", 1))]
    assert found_text(found) == "3 segments, 1,234 frames and 1 event"


def test_a_row_says_how_far_silver_is() -> None:
    assert share_text(Share(1230, 1235)) == "silver has 1,230 of 1,235 rows (99 %)"
    assert share_text(Share(0, 1)) == "silver has 0 of 1 row (0 %)"
