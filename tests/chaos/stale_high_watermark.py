"""`klamm` with a planted fault: a follower keeps the high watermark of its leader, also what lies behind the records that it has."""

from __future__ import annotations

from klamm.broker.log.log import Log
from klamm.chaos.schedule import Options, Schedule, Step
from klamm.cli.main import main

FOUND_BY = Schedule(1, 2000, Options(), (Step(500, "unclean-cut", {"rank": 0, "number": 1}, 0),))


_follow = Log.follow_high_watermark


def _keep(log: Log, offset: int) -> bool:
    if not log.topic.startswith("unclean"):  # the load does not suffer from it
        return _follow(log, offset)
    log._leader_high_watermark = offset
    return log.set_high_watermark(offset)


if __name__ == "__main__":
    Log.follow_high_watermark = _keep  # type: ignore[method-assign, assignment]
    main()
