"""How long simulations of generated clusters take, in one process: `python -m klamm.benchmarks.simulation --partitions 10M`.

Ten of 100 brokers are lost, five are on the blacklist, unclean elections are on, then preferred leaders are elected. The first line is the
session, the first simulation is cold, the others are warm.
"""

from __future__ import annotations

import argparse
import os
import time

from klamm.pipeline.simulation.generated_cluster import Generated
from klamm.pipeline.simulation.patterns import Scenario
from klamm.pipeline.simulation.steps import Blacklist, Brokers, Elect, Kill, Unclean
from klamm.pipeline.spark.session import open_session


def main() -> None:
    """Print a line for each simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="1M,10M")
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--placement", default="kafka,random")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    began = time.perf_counter()
    spark = open_session(options.master, variables=os.environ)
    print(f"session {time.perf_counter() - began:.1f} s")
    for text in options.partitions.split(","):
        partitions = int(text[:-1]) * {"K": 10**3, "M": 10**6}[text[-1].upper()]
        for placement in options.placement.split(","):
            cluster = Generated(partitions, options.brokers, 3, 0, placement, 1)
            took = [_simulated(spark, cluster) for _ in range(options.rounds)]
            print(f"{text} {placement}: " + ", ".join(f"{seconds:.2f}" for seconds in took) + " s")
    spark.stop()
    print(f"whole process {time.perf_counter() - began:.1f} s")


def _simulated(spark: object, cluster: Generated) -> float:
    """Seconds of one simulation."""
    from klamm.pipeline.simulation import generated_cluster
    from klamm.pipeline.simulation.simulate import Partitions, simulate

    steps = (Kill(tuple(range(1, 11))), Blacklist((20, 21, 22, 23, 24)), Unclean(True), Elect())
    began = time.perf_counter()
    patterns, draws = generated_cluster.grouped(spark, cluster), generated_cluster.ungrouped(spark, cluster)
    partitions = Partitions(patterns, None, cluster.rack_of, generated_cluster.expanding(cluster), draws)
    found = simulate(partitions, Scenario(Brokers(frozenset(cluster.ids)), steps, 2))
    assert found.summary[-1].partitions == cluster.partitions
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
