"""A lake with runs that break rules, and what `klamm pipeline check` prints of them, with either engine."""

from __future__ import annotations

from pathlib import Path

from click.testing import Result

from klamm.tests.pipeline.journals import write
from klamm.tests.pipeline.rules.fixtures import Run
from klamm.tests.pipeline.rules.fixtures_wire import an_answer_overtakes, an_id_twice


def write_runs(lake: Path) -> None:
    """A run in which the server breaks W-01, one in which a client breaks W-10, and one in which all is right."""
    for run_id, fixture in (("server", an_answer_overtakes), ("client", an_id_twice)):
        run = Run(lake, run_id)
        fixture(run)
        run.close()
    write(lake, "right").close()


def assert_w_01_is_shown(result: Result) -> None:
    """Of all runs, with the rules W-01 and W-06."""
    assert result.exit_code == 3
    assert "W-01 error: Responses leave in the order of their requests" in result.output
    assert "broker 1, connection 1, seq 6: answers the request of seq 3 after that of seq 4" in result.output
    assert "seq 6  response out  connection 1  Metadata v12  correlation id 1" in result.output
    assert '"clusterId":"c"' in result.output
    assert "not exercised: W-06" in result.output
    assert result.output.endswith("1 of 2 rules exercised in 3 runs: 1 error, 0 warnings\n")
