"""The simulation of cells: what falls behind and what does not."""

from __future__ import annotations

from klamm.benchmarks.cells import HOUR_S, Cluster, Plan, Simulation, work_s

SMALL = Cluster(brokers=4, rate=1_000)


def test_drivers_that_have_less_time_than_the_work_takes_fall_behind_and_others_do_not() -> None:
    cell = work_s(SMALL.rate * HOUR_S, 85, 1)
    assert 300 < cell < 600
    few, enough = (Simulation(Cluster(40, SMALL.rate), Plan(drivers=drivers, cores=1), 12, 7).run() for drivers in (4, 8))
    assert few.grows and few.busy > 0.9
    assert not enough.grows
    assert enough.last_lag_s[1] < HOUR_S < few.last_lag_s[1]


def test_cells_of_drivers_that_die_are_done_again_and_the_same_seed_gives_the_same_outcome() -> None:
    first, second = (Simulation(SMALL, Plan(drivers=2, cores=1, deaths_a_day=20), 24, 3).run() for _ in range(2))
    assert first == second
    assert first.repeated > 0
    assert first.cells == 24 * (4 + 1)
