"""What empty partitions cost a broker that nobody uses: resident memory for each, and CPU while nothing happens.

    python -m klamm.benchmarks.idle [--partitions 10000] [--brokers 1] [--seconds 10]

Topics of a thousand partitions are created, with as many replicas as there are brokers, all in one process with a controller. Memory is
the growth of the process divided by partitions and by brokers; the controller's own state of each partition is in it. CPU is the share of
one core.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tempfile
import time

from klamm.benchmarks import data_clusters
from klamm.benchmarks.processes import note

PER_TOPIC = 1000


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long nothing happens")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        cluster = data_clusters.start_klamm(stack, folder, options.brokers)
        data_clusters.create_topic(cluster.addresses, "warm-up", PER_TOPIC, options.brokers, {})
        before = cluster.rss_mb()
        for number in range(options.partitions // PER_TOPIC):
            data_clusters.create_topic(cluster.addresses, f"idle-{number}", PER_TOPIC, options.brokers, {})
        note("created")
        time.sleep(2)
        grown, cpu = cluster.rss_mb() - before, cluster.cpu_s()
        time.sleep(options.seconds)
        cpu = cluster.cpu_s() - cpu
    each = grown * (1 << 20) / options.partitions / options.brokers
    print(
        f"{options.partitions} empty partitions on {options.brokers} brokers in one process: {grown:.0f} MB, {each:.0f} bytes each;"
        f" idle CPU {100 * cpu / options.seconds:.1f} % of a core"
    )


if __name__ == "__main__":
    main()
