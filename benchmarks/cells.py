"""What a lake costs at the size of a large cluster, today and cut into cells: computed and simulated from measured costs.

    python -m klamm.benchmarks.cells [--brokers 100] [--rate 50000] [--group 1] [--drivers 20] [--cores 32] [--hours 48] [--seed 7]

Nothing of such a cluster runs here. `Costs` has what was measured (docs/cells.md says how); the first table multiplies it, the second one
is a simulation of drivers that judge cells. A cell is a run, a group of brokers and an hour. It can be judged when its hour, the margin and
the sealing of the last segment are over, and its segments were shipped. Drivers take the cell of the oldest hour. One that dies is replaced
after the time of a lease, and its cell is done again from the start. The second stage of an hour judges what concerns several brokers, in
parts by topic, group and transactional id; it waits for the first stage of all groups.
"""

from __future__ import annotations

import argparse
import heapq
import random
from typing import NamedTuple

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MARGIN_S = 360.0
"""`MARGIN_NS` of pipeline/lake/windows.py."""
SEAL_S = 60.0
"""`SEGMENT_S` of journal/disk.py."""
LEASE_S = 60.0
"""After this time a cell of a dead driver is taken by another one."""
MERGE_S = 30.0
"""Assumed: a driver reads the list of a cell, opens its files and commits ten tables."""


class Costs(NamedTuple):
    """Measured costs of a frame: bytes and microseconds of CPU. docs/cells.md says how and when."""

    journal_bytes: float = 372
    bronze_bytes: float = 90
    silver_bytes: float = 41
    bronze_us: float = 2.3
    silver_us: float = 25.0
    gold_us: float = 60.0
    gold_fixed_s: float = 64.0
    """Of a judgement, however few rows it has."""
    log_us: float = 6.4
    """Of a file of a table, each time its log is read."""
    of_several: float = 0.05
    """Share of the rows that the second stage sees: what controllers send. With groups and transactions 0.19 of the mixed load."""


COSTS = Costs()


class Cluster(NamedTuple):
    """What is journaled."""

    brokers: int = 100
    rate: float = 50_000
    """Frames a second of a broker."""

    @property
    def frames_s(self) -> float:
        return self.brokers * self.rate


class Plan(NamedTuple):
    """How the lake is cut, and who judges it."""

    group: int = 1
    """Brokers of a cell."""
    drivers: int = 20
    cores: int = 32
    """Cores of the executors of each driver."""
    deaths_a_day: float = 2.0
    """How often each driver dies in the middle of a cell."""


def today(cluster: Cluster, costs: Costs = COSTS) -> list[tuple[str, str]]:
    """What one driver and one partition of everything need for this cluster: (what, how much)."""
    frames = cluster.frames_s
    a_day, window, files = frames * DAY_S, 2 * MARGIN_S * frames, frames / 131_072
    segments, read_s = a_day * costs.journal_bytes / (64 << 20), files * DAY_S * costs.log_us / 1e6
    terabytes = [f"{a_day * size / 1e12:,.1f} TB a day" for size in (costs.journal_bytes, costs.bronze_bytes, costs.silver_bytes)]
    cores = [f"{frames * cost_us / 1e6:,.0f} cores" for cost_us in (costs.bronze_us, costs.silver_us, costs.gold_us)]
    return [
        ("frames", f"{a_day:.3g} a day"),
        ("journal", f"{terabytes[0]}: {frames * costs.journal_bytes / 1e9:.2f} GB/s through one file system"),
        ("segments", f"{segments / 1e6:.1f} million a day; a look lists the names of all, each second"),
        ("bronze", f"{terabytes[1]}, {cores[0]}"),
        ("silver", f"{terabytes[2]}, {cores[1]}, {files:.0f} files of `messages` a second"),
        ("log of `messages`", f"after a day {read_s:.0f} s of the driver each time it is read"),
        ("shortest window", f"{window / 1e9:.1f} billion rows, judged as one: {window * costs.gold_us / 1e6 / HOUR_S:.0f} core-hours"),
        ("gold", cores[2]),
    ]


class Cell(NamedTuple):
    """A piece of work, in the order in which drivers take them."""

    hour: int
    stage: int
    number: int
    work_s: float
    """Seconds of one driver with its cores."""


class Outcome(NamedTuple):
    """What a simulation found."""

    busy: float
    """Share of the drivers' time."""
    first_lag_s: tuple[float, float]
    """From the end of an hour to the end of a cell of stage one: median, greatest."""
    last_lag_s: tuple[float, float]
    """The same to the last part of stage two: then the verdicts of the hour are complete."""
    grows: bool
    """Whether the last hours waited longer than those before: the plan does not carry the cluster."""
    cells: int
    repeated: int


def work_s(frames: float, cost_us: float, cores: int, costs: Costs = COSTS) -> float:
    """Seconds that a driver with these cores needs. What is fixed runs on one core."""
    return frames * cost_us / 1e6 / cores + costs.gold_fixed_s + MERGE_S


class Simulation:
    """Drivers that judge the cells of some hours. Times are seconds from the begin of the first hour."""

    def __init__(self, cluster: Cluster, plan: Plan, hours: int, seed: int, costs: Costs = COSTS) -> None:
        self._draw, self._plan, self._hours = random.Random(seed), plan, hours
        self._groups = -(-cluster.brokers // plan.group)
        cell, of_several = cluster.rate * plan.group * HOUR_S, cluster.frames_s * HOUR_S * costs.of_several
        self._parts = max(1, round(of_several / cell))
        self._one_s = work_s(cell, costs.silver_us + costs.gold_us, plan.cores, costs)
        self._two_s = work_s(of_several / self._parts, costs.gold_us, plan.cores, costs)
        self._later: list[tuple[float, Cell]] = []
        self._ready: list[Cell] = []
        self._free = [0.0] * plan.drivers
        self._busy_s, self._repeated = 0.0, 0
        self._ends: dict[tuple[int, int], list[float]] = {}
        """(hour, stage) → when its cells ended."""

    def run(self) -> Outcome:
        """Judge all."""
        for hour in range(self._hours):
            for number in range(self._groups):
                shipped = (hour + 1) * HOUR_S + MARGIN_S + SEAL_S + self._draw.expovariate(1 / 10)
                heapq.heappush(self._later, (shipped, Cell(hour, 1, number, self._one_s)))
        while self._later or self._ready:
            now = heapq.heappop(self._free)
            if not self._ready:
                now = max(now, self._later[0][0])
            while self._later and self._later[0][0] <= now:
                heapq.heappush(self._ready, heapq.heappop(self._later)[1])
            self._do(heapq.heappop(self._ready), now)
        lags = {stage: [self._lags(hour, stage) for hour in range(self._hours)] for stage in (1, 2)}
        complete = [max(each) for each in lags[2]]
        quarter = max(1, self._hours // 4)
        grows = sum(complete[-quarter:]) > 1.5 * sum(complete[:quarter])
        share = self._busy_s / (self._plan.drivers * max(self._free))
        cells = self._hours * (self._groups + self._parts)
        return Outcome(share, _bounds([lag for each in lags[1] for lag in each]), _bounds(complete), grows, cells, self._repeated)

    def _do(self, cell: Cell, now: float) -> None:
        """A driver takes a cell now, and ends it or dies."""
        if self._draw.random() < self._plan.deaths_a_day * cell.work_s / DAY_S:
            worked = self._draw.random() * cell.work_s
            again = now + worked + LEASE_S
            heapq.heappush(self._free, again)
            heapq.heappush(self._later, (again, cell))
            self._busy_s += worked
            self._repeated += 1
            return
        end = now + cell.work_s
        heapq.heappush(self._free, end)
        self._busy_s += cell.work_s
        ends = self._ends.setdefault((cell.hour, cell.stage), [])
        ends.append(end)
        if cell.stage == 1 and len(ends) == self._groups:
            for number in range(self._parts):
                heapq.heappush(self._later, (max(ends), Cell(cell.hour, 2, number, self._two_s)))

    def _lags(self, hour: int, stage: int) -> list[float]:
        return [end - (hour + 1) * HOUR_S for end in self._ends[hour, stage]]


def _bounds(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[-1]


def objects_a_day(cluster: Cluster, plan: Plan, costs: Costs = COSTS) -> dict[str, float]:
    """Objects that are put in a day: bronze by brokers, silver and gold by cells with files of four million rows."""
    cells = 24 * -(-cluster.brokers // plan.group)
    seconds = min(SEAL_S, (64 << 20) / costs.journal_bytes / cluster.rate)
    rows = cluster.rate * plan.group * HOUR_S
    return {
        "bronze": cluster.brokers * DAY_S * (1 / seconds + 1 / SEAL_S),
        "silver": cells * 9 * max(1, rows / 4e6),
        "gold and logs": cells * 20.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--rate", type=float, default=50_000)
    parser.add_argument("--group", type=int, default=1)
    parser.add_argument("--drivers", type=int, nargs="+", default=[10, 16, 20, 32])
    parser.add_argument("--cores", type=int, default=32)
    parser.add_argument("--of-several", type=float, nargs="+", default=[0.05, 0.19])
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    cluster = Cluster(chosen.brokers, chosen.rate)
    print("| today, one driver | |\n|---|---|")
    for what, much in today(cluster):
        print(f"| {what} | {much} |")
    print("\n| drivers x cores | seen by stage two | busy | stage one: median, greatest | verdicts complete | carries it | done again |")
    print("|---|---|---|---|---|---|---|")
    for drivers in chosen.drivers:
        for share in chosen.of_several:
            costs = COSTS._replace(of_several=share)
            found = Simulation(cluster, Plan(chosen.group, drivers, chosen.cores), chosen.hours, chosen.seed, costs).run()
            lags = " | ".join(f"{low / 60:.0f}, {high / 60:.0f} min" for low, high in (found.first_lag_s, found.last_lag_s))
            carries = "no, it falls behind" if found.grows else "yes"
            again = f"{found.repeated} of {found.cells:,}"
            print(f"| {drivers} x {chosen.cores} | {share:.0%} | {found.busy:.0%} | {lags} | {carries} | {again} |")
    objects = objects_a_day(cluster, Plan(chosen.group))
    print("\nobjects a day: " + ", ".join(f"{name} {number / 1e6:.2f} million" for name, number in objects.items()))


if __name__ == "__main__":
    main()
