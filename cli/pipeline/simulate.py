"""`klamm pipeline simulate`: what becomes of leaders when brokers end, return, are on a blacklist, and partitions move."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.journal.lake_folder import LakeFolder
from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import Bars, Spark, session_options
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import Decimal, Whole
from klamm.cli.shell.text_table import text_table

if TYPE_CHECKING:
    from klamm.pipeline.simulation.outcome import Outcome
    from klamm.pipeline.simulation.simulate import Partitions
    from klamm.pipeline.simulation.steps import Step
    from klamm.protocol.nouns import Ints, TopicPartition

_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


class Amount(click.ParamType[int]):
    """A whole number above 0, with K, M, G or T for thousands, millions, …"""

    name = "NUMBER"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = value.strip().lower()
        factor = _FACTORS.get(text[-1:], 1)
        try:
            number = float(text[:-1] if factor > 1 else text) * factor
        except ValueError:
            self.fail(f"{value!r} is not a number such as 500, 10K or 1.5M", param, ctx)
        if not number.is_integer() or not 0 < number < 2**62:
            self.fail(f"{value!r} is not a whole number above 0", param, ctx)
        return int(number)


class BrokerIds(click.ParamType[tuple[int, ...]]):
    """`1,2,3`, and `1-10` for a range; empty for none."""

    name = "IDS"

    def convert(self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The ids."""
        if isinstance(value, tuple):
            return value
        ids: list[int] = []
        for part in filter(None, (part.strip() for part in value.split(","))):
            first, dash, last = part.partition("-")
            if not first.isdigit() or (dash and not last.isdigit()):
                self.fail(f"{part!r} is no broker id and no range of them", param, ctx)
            if dash and int(last) - int(first) >= 1_000_000:
                self.fail(f"{part!r} is too long", param, ctx)
            ids.extend(range(int(first), int(last) + 1) if dash else (int(first),))
        return tuple(ids)


AMOUNT, IDS = Amount(), BrokerIds()
MOST_BROKERS = 20
"""Of more brokers the leaders of each are not printed."""
STEPS = ("kill", "return_", "shutdown", "blacklist", "unclean", "elect_preferred", "elect_unclean", "rebalance", "reassign")
"""The options that are steps: their sequence on the command line counts, and each may be there several times."""


class InSequence(click.Command):
    """Remembers in `ctx.meta["steps"]` the steps as (option, value), in the sequence of the command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        values, _, sequence = self.make_parser(ctx).parse_args(args=list(args))
        taken: dict[str, int] = {}
        steps: list[tuple[str, Any]] = []
        for param in sequence:
            if param.name in STEPS:
                at = taken.get(param.name, 0)
                taken[param.name] = at + 1
                given = values[param.name]
                value = given[at] if isinstance(given, list | tuple) else None
                steps.append((param.name, None if value is None else param.type.convert(value, param, ctx)))
        ctx.meta["steps"] = steps
        return super().parse_args(ctx, args)


def _step(name: str, kind: click.ParamType[Any] | None, text: str) -> Callable[[Any], Any]:
    if kind is None:
        return click.option(f"--{name}", name.replace("-", "_"), count=True, help=text)
    parameter = {"return": "return_"}.get(name, name)
    return click.option(f"--{name}", parameter, type=kind, multiple=True, help=text)


@click.command("simulate", cls=InSequence, short_help="Predict leaders after lost brokers, blacklists, elections and reassignments.")
@click.argument("lake", type=LakeFolder(), required=False)
@click.option("--zookeeper", metavar="HOST:PORT[,…][/CHROOT]", help="Begin with the state of the cluster of this ZooKeeper.")
@click.option("--metadata-log", type=click.Path(path_type=Path), metavar="FILE", help="Begin with the end of a dumped metadata log.")
@click.option("--run", metavar="RUN", help="Begin with the end of this run of LAKE's journal. Default: the last run.")
@click.option("--partitions", type=AMOUNT, help="Generate a cluster with this many partitions, such as 10M.")
@click.option("--brokers", type=Whole(1, 100_000), default=100, show_default=True, help="Number of brokers in the generated cluster.")
@click.option("--replication-factor", type=Whole(1, 100), default=3, show_default=True, help="Replicas of each generated partition.")
@click.option("--racks", type=Whole(0), default=0, help="Number of racks in the generated cluster. Default: none.")
@click.option("--placement", type=click.Choice(["kafka", "random"]), default="kafka", show_default=True, help="How replicas are placed.")
@click.option("--topic-partitions", type=AMOUNT, default=100, show_default=True, help="Partitions of each generated topic.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the generated cluster and sizes.")
@_step("kill", IDS, "Step: these brokers are lost, all at once.")
@_step("return", IDS, "Step: these brokers start again, and their replicas catch up.")
@_step("shutdown", IDS, "Step: controlled shutdown of these brokers, one after the other.")
@_step("blacklist", IDS, "Step: these brokers and no others are on preferred_leader_blacklist; empty for none.")
@_step("unclean", click.Choice(["on", "off"]), "Step: unclean.leader.election.enable of all brokers.")
@_step("elect-preferred", None, "Step: preferred leaders are elected for all partitions.")
@_step("elect-unclean", None, "Step: unclean leaders are elected for all partitions without a leader.")
@_step("rebalance", Whole(0, 100), "Step: one automatic rebalance; the value is leader.imbalance.per.broker.percentage.")
@_step("reassign", click.Path(path_type=Path), "Step: reassignments of a file, as kafka-reassign-partitions has it.")
@click.option("--min-isr", type=Whole(1), default=1, show_default=True, help="min.insync.replicas of topics without their own.")
@click.option("--sizes", metavar="FILE", help="Table (Parquet, CSV, JSON) with topic, partition and bytes. Default: lognormal sizes.")
@click.option("--mean-bytes", type=AMOUNT, default=10**9, help="Mean of lognormal sizes. Default: 1G.")
@click.option("--sigma", type=Decimal(0, 5), default=1.0, show_default=True, help="Spread of lognormal sizes.")
@click.option("--throttle", type=AMOUNT, help="Bytes per second for each broker and direction. Shows how many hours the copying takes.")
@click.option("--rows", is_flag=True, help="Write each partition before and after the steps to LAKE's table sim_partitions.")
@click.option("--name", metavar="NAME", help="Name of the simulation in LAKE's tables. Default: sim- and the time.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as one line of JSON.")
@session_options
@click.pass_context
@interruptible
def command(ctx: click.Context, lake: Path | None, as_json: bool, name: str | None, spark: Spark, **given: Any) -> None:
    """Say what becomes of the leaders of a cluster, by the controller's own rules.

    The cluster comes from one of --partitions (generated), --zookeeper, --metadata-log, or the journal of LAKE. Steps are taken in the
    sequence of the command line. With LAKE the tables sim_summary, sim_leaders and sim_movement are written there.

    \b
    klamm pipeline simulate --partitions 10M --kill 1-10 --blacklist 20-24 --unclean on --elect-preferred
    klamm pipeline simulate --zookeeper localhost:2181 --shutdown 1 --return 1 --rebalance 10
    klamm pipeline simulate LAKE --reassign plan.json --throttle 50M --rows
    """
    from klamm.cli.tools.files import read_reassignment
    from klamm.pipeline.simulation.simulate import finished_rows, simulate
    from klamm.pipeline.simulation.tables import write_outcome, write_rows
    from klamm.pipeline.spark.workers import cluster_failures

    if given["rows"] and lake is None:
        raise click.UsageError("--rows needs LAKE to write to")
    steps: list[Step] = []
    plans: list[dict[TopicPartition, Ints]] = []
    for option, value in ctx.meta["steps"]:
        if option == "reassign":
            plans.append({key: move.replicas for key, move in read_reassignment(value).items()})
        steps.append(_as_step(option, value, len(plans) - 1))
    source = _source(lake, given, tuple(steps))
    with Bars() as bars, cluster_failures():
        bars.begin("spark", None)
        session = spark.open(lake)
        try:
            bars.begin("read", None)
            partitions, scenario = source(session, tuple(steps), plans, [str(v) for o, v in ctx.meta["steps"] if o == "reassign"])
            bars.begin("simulate", None)
            outcome = simulate(partitions, scenario, given["throttle"])
            if lake is not None:
                chosen = name if name is not None else datetime.now(UTC).strftime("sim-%Y%m%dT%H%M%SZ")
                write_outcome(lake, chosen, outcome)
                if given["rows"]:
                    bars.begin("rows", None)
                    write_rows(lake, chosen, finished_rows(partitions, scenario))
        finally:
            session.stop()
    if as_json:
        say(json.dumps(outcome.as_json()))
    else:
        for line in lines(outcome):
            say(printable(line))


def _as_step(option: str, value: Any, plan: int) -> Step:
    from klamm.pipeline.simulation import steps

    match option:
        case "kill":
            return steps.Kill(value)
        case "return_":
            return steps.Return(value)
        case "shutdown":
            return steps.Shutdown(value)
        case "blacklist":
            return steps.Blacklist(value)
        case "unclean":
            return steps.Unclean(value == "on")
        case "elect_preferred" | "elect_unclean":
            return steps.Elect(unclean=option == "elect_unclean")
        case "rebalance":
            return steps.Rebalance(value)
        case _:
            return steps.Reassign(plan, value.name)


def _source(lake: Path | None, given: dict[str, Any], taken: tuple[Step, ...]) -> Callable[..., tuple[Partitions, Any]]:
    """Check what the cluster is made of, and read and check what needs no Spark, before it starts."""
    from klamm.pipeline.simulation import sources
    from klamm.pipeline.simulation.generated_cluster import Generated
    from klamm.pipeline.simulation.metadata_log import read_metadata_log
    from klamm.pipeline.simulation.steps import Brokers, check

    named = [option for option in ("partitions", "zookeeper", "metadata_log") if given[option] is not None]
    if len(named) > 1 or (named and given["run"] is not None):
        raise click.UsageError("name one source: --partitions, --zookeeper, --metadata-log or --run")
    if not named and lake is None:
        raise click.UsageError("name the cluster: --partitions, --zookeeper, --metadata-log, or a LAKE with a journal")
    sizes = sources.Sizes(given["sizes"], given["mean_bytes"], given["sigma"], given["seed"])
    if given["partitions"] is not None:
        if given["replication_factor"] > given["brokers"]:
            raise click.UsageError(f"--replication-factor {given['replication_factor']} is more than --brokers {given['brokers']}")
        if given["racks"] > given["brokers"]:
            raise click.UsageError(f"--racks {given['racks']} are more than --brokers {given['brokers']}")
        fields = ("partitions", "brokers", "replication_factor", "racks", "placement", "seed", "topic_partitions")
        cluster = Generated(**{field: given[field] for field in fields})
        check(Brokers(frozenset(cluster.ids)), cluster.ids, taken)
        return lambda spark, steps, plans, names: sources.generated(spark, cluster, steps, plans, names, sizes, given["min_isr"])
    if given["zookeeper"] is not None:
        from klamm.cli.pipeline.zookeeper import read_zookeeper

        snapshot = asyncio.run(read_zookeeper(given["zookeeper"]))
        check(Brokers(snapshot.registered), snapshot.racks, taken)
        return lambda spark, steps, plans, names: sources.read(spark, snapshot, steps, plans, names, sizes, given["min_isr"])
    if given["metadata_log"] is not None:
        logged = read_metadata_log(given["metadata_log"])
        check(Brokers(logged.registered), logged.racks, taken)
        return lambda spark, steps, plans, names: sources.read(spark, logged, steps, plans, names, sizes, given["min_isr"])
    from klamm.pipeline.lake.access.driver import existing

    assert lake is not None
    existing(lake)
    journal, run = lake.resolve(), given["run"]
    return lambda spark, steps, plans, names: sources.journal(spark, journal, run, steps, plans, names, sizes, given["min_isr"])


def lines(outcome: Outcome) -> list[str]:
    """The summary for people: a line for each step, then the leaders of each broker where there are not many."""
    found = [f"{outcome.summary[0].partitions:,} partitions, {outcome.patterns:,} patterns"]
    heads = ("step", "brokers", "leaderless", "under-min-isr", "led elsewhere", "leaders moved", "epochs", "unclean", "refused",
             "copied", "hours", "leaders of a broker")
    rows: list[tuple[str, ...]] = [heads]
    rows += [
        (
            s.action if len(s.action) <= 40 else f"{s.action[:39]}…", str(s.brokers), f"{s.leaderless:,}", f"{s.under_min_isr:,}",
            f"{s.led_elsewhere:,}", f"{s.leaders_moved:,}", f"{s.leader_epochs:,}", f"{s.unclean_elections:,}", f"{s.refused:,}",
            f"{s.bytes_moved / 1e9:,.1f} GB" if s.replicas_moved else "-", "-" if s.hours is None else f"{s.hours:,.1f}",
            f"{s.fewest_leaders:,} to {s.most_leaders:,}",
        )
        for s in outcome.summary
    ]
    found += text_table(rows, numbers=True)[0]
    last = len(outcome.summary) - 1
    before = {row.broker: row for row in outcome.leaders if row.step == 0}
    if last > 0 and len(before) <= MOST_BROKERS:
        table: list[tuple[str, ...]] = [("broker", "leaders before", "behind", "replicas before", "behind", "")]
        for row in outcome.leaders:
            if row.step == last:
                was, runs = before[row.broker], "" if row.runs else "does not run"
                table.append((str(row.broker), f"{was.leaders:,}", f"{row.leaders:,}", f"{was.replicas:,}", f"{row.replicas:,}", runs))
        found += ["", *text_table(table, numbers=True)[0]]
    return found
