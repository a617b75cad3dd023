"""All benchmarks, one after the other: `make bench`, or `python -m klamm.benchmarks`. About ten minutes; each has options of its own."""

from __future__ import annotations

from klamm.benchmarks import controller, decode, metadata_log, records, requests, stalls, startup


def main() -> None:
    """Run them with their defaults."""
    for title, run, arguments in (
        ("From process start to ready", startup.main, []),
        ("Small requests, one broker", requests.main, []),
        ("Small requests, three brokers", requests.main, ["--brokers", "3", "--rounds", "3"]),
        ("Produce and Fetch of 1 KiB", records.main, []),
        ("Absurd requests, 10,000 partitions", stalls.main, []),
        ("The metadata log of 100,000 partitions", metadata_log.main, []),
        ("Decoding the frames of a journal", decode.main, []),
        ("The controller's work, 10,000 partitions", controller.main, ["--partitions", "10000"]),
        ("The controller's work, 100,000 partitions", controller.main, ["--partitions", "100000", "--rounds", "2"]),
    ):
        print(f"\n{title}\n", flush=True)
        run(arguments)


if __name__ == "__main__":
    main()
