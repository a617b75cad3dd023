"""Values that the shell completes: names of configs, APIs, errors and phases. Their tables are imported only when a shell requests them."""

from __future__ import annotations

from collections.abc import Iterable

import click


def complete_configs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Configs of brokers and topics that start with this text. The others complete in the same way."""
    from klamm.configs.tables.broker import BROKER, OWN, SWITCHES, TOPICS

    return _starting_with(incomplete, {*BROKER, *SWITCHES, *OWN, *TOPICS})


def complete_topic_configs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Configs of topics."""
    from klamm.configs.tables.broker import TOPICS

    return _starting_with(incomplete, TOPICS)


def complete_apis(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of APIs."""
    from klamm.protocol.apis import APIS

    return _starting_with(incomplete, (api.name for api in APIS.values()))


def complete_errors(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of error codes."""
    from klamm.protocol.errors import ErrorCode

    return _starting_with(incomplete, ErrorCode.__members__)


def complete_phases(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of phases that can be held."""
    from klamm.server.phases import PHASES

    return _starting_with(incomplete, PHASES)


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.lower().startswith(incomplete.lower()))
