"""How the commands of `klamm topics` report what became of each topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.tools.commands import fail_together

if TYPE_CHECKING:
    from klamm.admin import AdminError
    from klamm.protocol.errors import ErrorCode

json_outcomes_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


def report(outcomes: Mapping[str, AdminError | None], done: str, accepted: ErrorCode | None, instead: str, as_json: bool) -> None:
    """Print a line for each topic that was changed, `TOPIC: done`, and fail with the others.

    A topic with the code `accepted` is no failure; its line is `TOPIC: instead`.
    """
    from klamm.cli.tools.client import error_text

    rows = {
        topic: done if error is None else instead if error.code is accepted else None for topic, error in outcomes.items()
    }
    errors = {topic: error_text(error) for topic, error in outcomes.items() if error is not None and rows[topic] is None}
    if as_json:
        say(json.dumps({"topics": [{"topic": topic, "outcome": said, "error": errors.get(topic)} for topic, said in rows.items()]}))
    else:
        for topic, said in rows.items():
            if said is not None:
                say(printable(f"{topic}: {said}"))
    fail_together([f"{topic}: {reason}" for topic, reason in errors.items()])
