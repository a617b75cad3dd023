"""The pictures of the report: rows in, a specification of Vega-Lite out. Altair makes the specifications, the page draws them.

Pictures set no colours for background, text and axes: the page sets them for its light or dark theme. A picture without rows is None, and
the page says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt

from klamm.pipeline.report.facts import COPY, REBALANCE, STABLE, Facts, Simulation
from klamm.pipeline.report.reading import Row

Spec = dict[str, Any]

ROW = 16
"""Height of a line of a timeline, in pixels."""
COLOURS = "tableau10"
LEGEND = 250
"""Height of a long legend, in pixels."""
PHASES = {
    "U": "the assignment is written to ZooKeeper, with the replicas that come and go",
    "A1": "all replicas get the assignment, in a new leader epoch",
    "A2": "the new replicas start",
    COPY: "the new replicas copy until they are in sync; the controller waits",
    "B1": "the new replicas are online",
    "B2": "the target is the assignment, in the controller's memory",
    "B3": "a replica of the target is the leader",
    "B4": "the old replicas stop, and leave the ISR",
    "B5": "the old replicas are deleted",
    "B6": "the target is written to ZooKeeper",
    "B7": "the reassignment is no longer listed",
    "B8": "all brokers get the metadata",
    "B9": "a deletion of the topic that waited goes on",
}
"""What each phase of a reassignment does, in their order (specification, controller 11.3)."""
THROTTLE = ["throttled", "not throttled"]


def leadership(facts: Facts) -> Spec | None:
    """Which broker led which partition when; bands in the background are the terms of controllers."""
    if not facts.leaders:
        return None
    bars = alt.Chart(_data(facts.leaders)).mark_bar(height=ROW - 5, cornerRadius=2).encode(
        x=_time("from_ms"),
        x2="to_ms:T",
        y=_lines(facts.leaders),
        color=alt.Color("leader:N", title="leader", scale=_by_broker(row["leader"] for row in facts.leaders)),
        tooltip=["topic_partition:N", "leader:N", "leader_epoch:Q", "controller_epoch:Q", _tip("from_ms"), _tip("to_ms")],
    )
    return _spec(alt.layer(_terms(facts), bars), len({row["topic_partition"] for row in facts.leaders}))


def led(facts: Facts) -> Spec | None:
    """How many partitions each broker leads."""
    if not facts.led:
        return None
    lines = alt.Chart(_data(facts.led)).mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=_time("at_ms"),
        y=alt.Y("partitions:Q", title="partitions led", axis=alt.Axis(tickMinStep=1)),
        color=alt.Color("leader:N", title="leader", scale=_by_broker(row["leader"] for row in facts.led)),
        tooltip=["leader:N", "partitions:Q", _tip("at_ms")],
    )
    return _spec(alt.layer(_terms(facts), lines), 12)


LEAST_WIDTH = 3
"""Pixels of a span."""


def balance(facts: Facts) -> list[Row]:
    """leader, when (most, least, at the end), partitions. The end is the one before the cluster was stopped."""
    rows: list[Row] = []
    for leader in sorted({row["leader"] for row in facts.led}):
        counts = [row["partitions"] for row in facts.led if row["leader"] == leader and row["at_ms"] <= facts.stopped_ms] or [0]
        rows += [
            {"leader": leader, "when": "most", "partitions": max(counts)},
            {"leader": leader, "when": "least", "partitions": min(counts)},
            {"leader": leader, "when": "at the end", "partitions": counts[-1]},
        ]
    return rows


def leaders_before_and_after(facts: Facts) -> Spec | None:
    """The most and the least leaders that each broker had, and those at the end."""
    rows = balance(facts)
    if not rows:
        return None
    bars = alt.Chart(_data(rows)).mark_bar().encode(
        x=alt.X("partitions:Q", title="partitions led", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("leader:N", title="broker"),
        yOffset=alt.YOffset("when:N", sort=["most", "at the end", "least"]),
        color=alt.Color("when:N", title=None, sort=["most", "at the end", "least"], scale=alt.Scale(scheme=COLOURS)),
        tooltip=["leader:N", "when:N", "partitions:Q"],
    )
    return _spec(bars, 3 * len({row["leader"] for row in rows}))


def reassignments(facts: Facts) -> Spec | None:
    """Phases of reassignments; changes of the leader epoch are ticks below them, and a thick outline is a throttle.

    A phase is shorter than a pixel: each begins with a tick of three, and the picture can be zoomed."""
    if not facts.phases:
        return None
    moving = {row["topic_partition"] for row in facts.phases}
    colour = alt.Color("phase:N", title="phase", scale=_by_phase({row["phase"] for row in facts.phases}))
    tips = ["topic_partition:N", "phase:N", "step:Q", "throttle:N", _tip("from_ms"), _tip("to_ms")]
    begins = alt.Chart(_data(facts.phases)).mark_tick(thickness=LEAST_WIDTH, height=ROW - 5).encode(
        x=_time("from_ms"), y=_lines(facts.phases), color=colour, tooltip=tips
    )
    bars = alt.Chart(_data(facts.phases)).mark_bar(height=ROW - 5).encode(
        x=_time("from_ms"),
        x2="to_ms:T",
        y=_lines(facts.phases),
        color=colour,
        stroke=alt.Stroke(
            "throttle:N",
            scale=alt.Scale(domain=THROTTLE, range=["#d62728", "transparent"]),
            legend=alt.Legend(title=None, values=THROTTLE[:1]),
        ),
        strokeWidth=alt.value(2),
        tooltip=tips,
    ).add_params(alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]"))
    epochs = [row for row in facts.leaders if row["topic_partition"] in moving]
    ticks = alt.Chart(_data(epochs)).mark_tick(thickness=2, height=ROW, color="#888").encode(
        x=_time("from_ms"),
        y=_lines(facts.phases),
        tooltip=["topic_partition:N", "leader:N", "leader_epoch:Q", _tip("from_ms")],
    )
    return _spec(alt.layer(*([ticks] if epochs else []), bars, begins), len(moving), least=LEGEND)


def _by_phase(phases: set[str]) -> alt.Scale:
    """Grey for copying, which takes longest; the steps of the controller have colours."""
    names = [name for name in PHASES if name in phases] + sorted(phases - PHASES.keys())
    colours = iter(_PHASE_COLOURS * (1 + len(names) // len(_PHASE_COLOURS)))
    return alt.Scale(domain=names, range=["#a9b4c0" if name == COPY else next(colours) for name in names])


_PHASE_COLOURS = (
    "#4c78a8", "#f58518", "#eeca3b", "#54a24b", "#88d27a", "#b79a20", "#439894", "#83bcb6", "#e45756", "#ff9d98", "#79706e", "#b279a2",
)


def groups(facts: Facts) -> Spec | None:
    """Rebalances and generations of groups; bands in the background are the terms of controllers."""
    if not facts.generations:
        return None
    names = sorted({row["group"] for row in facts.generations})
    bars = alt.Chart(_data(facts.generations)).mark_bar(height=ROW - 5, cornerRadius=2).encode(
        x=_time("from_ms"),
        x2="to_ms:T",
        y=alt.Y("group:N", title=None, sort=names, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("phase:N", title=None, scale=alt.Scale(domain=[REBALANCE, STABLE], range=["#e45756", "#4c78a8"])),
        stroke=alt.value("white"),
        tooltip=[
            "group:N", "generation:Q", "phase:N", "members:Q", "leader:N", "partitions:Q", "commits:Q", "broker:Q", _tip("from_ms"),
            _tip("to_ms"),
        ],
    )
    return _spec(alt.layer(_terms(facts), bars), len(names))


def errors(facts: Facts) -> Spec | None:
    """How often which API answered with which error code, over time."""
    if not facts.errors:
        return None
    cells = alt.Chart(_data(facts.errors)).mark_rect().encode(
        x=_time("at_ms"),
        x2="to_ms:T",
        y=alt.Y("what:N", title=None, axis=alt.Axis(labelLimit=380)),
        color=alt.Color("count:Q", title="errors", scale=alt.Scale(scheme="orangered", type="symlog")),
        tooltip=["what:N", "code:Q", "counted:N", "count:Q", _tip("at_ms")],
    )
    return _spec(cells, len({row["what"] for row in facts.errors}))


def latencies(facts: Facts) -> Spec | None:
    """Percentiles of the time from a request to its response, on a logarithmic axis."""
    if not facts.latencies:
        return None
    order = ["p50", "p99", "p99.9", "max"]
    base = alt.Chart(_data(facts.latencies)).encode(y=alt.Y("api:N", title=None, axis=alt.Axis(labelLimit=260)))
    line = base.mark_line(color="#888", strokeWidth=1).encode(x=_logarithmic("ms:Q"), detail="api:N")
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=_logarithmic("ms:Q"),
        color=alt.Color("percentile:N", title=None, sort=order, scale=alt.Scale(domain=order, scheme=COLOURS)),
        shape=alt.Shape("percentile:N", title=None, sort=order, scale=alt.Scale(domain=order)),
        tooltip=["api:N", "percentile:N", alt.Tooltip("ms:Q", format=",.3f"), alt.Tooltip("count:Q", title="responses")],
    )
    return _spec(alt.layer(line, points), len({row["api"] for row in facts.latencies}))


def matrix(facts: Facts) -> Spec | None:
    """Which client used which version of which API; a ring marks what was outside the advertised range or did not decode."""
    if not facts.matrix:
        return None
    rows = [
        row | {"used": f"{row['api']} {row['version']}", "odd": "outside the range" if row["outside"] else "does not decode"}
        for row in facts.matrix
    ]
    x = alt.X("client:N", title=None, axis=alt.Axis(labelAngle=-35, labelLimit=220, orient="top"))
    y = alt.Y("used:N", title=None, axis=alt.Axis(labelLimit=300))
    tooltip = ["client:N", "api:N", "version:N", "requests:Q", "errors:Q", "outside:Q", "quarantined:Q"]
    cells = alt.Chart(_data(rows)).mark_rect().encode(
        x=x, y=y, tooltip=tooltip, color=alt.Color("requests:Q", title="requests", scale=alt.Scale(scheme="blues", type="symlog"))
    )
    odd = [row for row in rows if row["outside"] or row["quarantined"]]
    rings = alt.Chart(_data(odd)).mark_point(size=90, strokeWidth=2.5, filled=False, color="#d62728").encode(
        x=x, y=y, tooltip=tooltip, shape=alt.Shape("odd:N", title="odd", scale=alt.Scale(range=["circle", "square"]))
    )
    lines = len({row["used"] for row in rows})
    return _spec(alt.layer(cells, rings) if odd else cells, lines, least=LEGEND)


def simulated(simulation: Simulation | None) -> Spec | None:
    """How many partitions each broker leads before the first step of a simulation and after its last one."""
    if simulation is None or not simulation.leaders:
        return None
    bars = alt.Chart(_data(simulation.leaders)).mark_bar().encode(
        x=alt.X("broker:O", title="broker", axis=alt.Axis(labelOverlap=True)),
        xOffset=alt.XOffset("when:N", sort=["before", "after"]),
        y=alt.Y("leaders:Q", title="partitions led"),
        color=alt.Color("when:N", title=None, sort=["before", "after"], scale=alt.Scale(scheme=COLOURS)),
        tooltip=["broker:O", "when:N", "leaders:Q"],
    )
    return _spec(bars, 16)


def sequence(arrows: list[Row], lifelines: list[str]) -> Spec | None:
    """Who sent what to whom, downwards in the order of time. `arrows`: order, from, to, text, kind."""
    if not arrows:
        return None
    x_scale = alt.Scale(domain=lifelines, padding=0.5)
    axis = alt.Axis(orient="top", labelAngle=0, labelLimit=170, title=None, grid=True, domain=False, ticks=False)
    y = alt.Y("order:O", axis=None)
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(scheme=COLOURS))
    rows = [row | {"heading": "right" if lifelines.index(row["to"]) >= lifelines.index(row["from"]) else "left"} for row in arrows]
    base = alt.Chart(_data(rows)).encode(y=y, tooltip=["at:N", "text:N", "from:N", "to:N"])
    place = alt.X("to:N", scale=x_scale, axis=axis)
    lines = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("from:N", scale=x_scale, axis=axis), x2="to:N", color=colour)
    heads = [
        base.transform_filter(f"datum.heading == '{heading}' && datum.from != datum.to")
        .mark_point(shape=f"triangle-{heading}", filled=True, size=70, opacity=1)
        .encode(x=place, color=colour)
        for heading in ("right", "left")
    ]
    dots = base.transform_filter("datum.from == datum.to").mark_point(filled=True, size=60, opacity=1).encode(x=place, color=colour)
    texts = base.mark_text(dy=-7, fontSize=10, align="left", dx=4, limit=300).encode(
        x=alt.X("left:N", scale=x_scale, axis=axis), text="text:N"
    )
    return _spec(alt.layer(lines, *heads, dots, texts), len(arrows), row=26)


def _data(rows: list[Row]) -> alt.Data:
    return alt.Data(values=rows)


def _lines(rows: list[Row]) -> alt.Y:
    """A line for each partition; partition 10 comes after partition 9."""
    names = {row["topic_partition"]: None for row in rows}
    order = sorted(names, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))
    return alt.Y("topic_partition:N", title=None, sort=order, axis=alt.Axis(labelLimit=260))


def _time(name: str) -> alt.X:
    axis = alt.Axis(format="%H:%M:%S", labelOverlap=True)
    return alt.X(f"{name}:T", title="UTC", scale=alt.Scale(type="utc", nice=False), axis=axis)


def _tip(name: str) -> alt.Tooltip:
    return alt.Tooltip(f"{name}:T", title=name.removesuffix("_ms"), format="%H:%M:%S.%L")


def _logarithmic(name: str) -> alt.X:
    return alt.X(name, title="milliseconds", scale=alt.Scale(type="log", nice=True))


def _by_broker(leaders: Iterable[str]) -> alt.Scale:
    """The same colour for a broker in every picture: grey is no leader."""
    names = sorted(set(leaders), key=lambda name: (name == "none", int(name) if name.isdigit() else 0))
    palette = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#eeca3b", "#b279a2", "#ff9da6", "#9d755d", "#2f6f9f"]
    colours = ["#9a9a9a" if name == "none" else palette[int(name) % len(palette)] for name in names]
    return alt.Scale(domain=names, range=colours)


def _terms(facts: Facts) -> alt.Chart:
    """The terms of controllers as bands; every second one is darker."""
    rows = [
        row | {"shade": number % 2, "label": f"controller {row['broker']}, epoch {row['controller_epoch']}"}
        for number, row in enumerate(facts.controllers)
    ]
    return alt.Chart(_data(rows)).mark_rect().encode(
        x=_time("from_ms"),
        x2="to_ms:T",
        opacity=alt.Opacity("shade:N", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.06, 0.16])),
        color=alt.value("#7f7f7f"),
        tooltip=["label:N", _tip("from_ms"), _tip("to_ms")],
    )


def _spec(chart: alt.TopLevelMixin, lines: int, *, row: int = ROW, least: int = 90) -> Spec:
    """As wide as its place on the page."""
    fitted = alt.AutoSizeParams(type="fit-x", contains="padding")
    sized = chart.properties(width="container", height=max(least, lines * row), autosize=fitted)
    spec: Spec = sized.configure_view(stroke=None).to_dict()
    spec["background"] = "transparent"
    return spec
