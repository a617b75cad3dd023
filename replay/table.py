"""All bugs that can be replayed."""

from __future__ import annotations

from klamm.replay import librdkafka, other_clients, sarama, servers
from klamm.replay.bug import Bug

BUGS: dict[str, Bug] = {bug.name: bug for module in (librdkafka, sarama, other_clients, servers) for bug in module.BUGS}
"""By name."""


def rows() -> list[str]:
    """The rows of the table in docs/museum.md: name, links, what is wrong, releases, rule, whether a mended release shows nothing."""
    return [
        f"| `{bug.name}` | {', '.join(_link(link) for link in bug.links)} | {bug.symptom} | {_releases(bug)} | {bug.rule} | {_flips(bug)} |"
        for bug in BUGS.values()
    ]


def _link(name: str) -> str:
    repository, _, number = name.partition("#")
    return f"[{name}](https://github.com/{repository}/issues/{number})"


def _releases(bug: Bug) -> str:
    if bug.response_fault is not None:
        return "server side, by an injected response"
    return f"{bug.client} {bug.broken}" + ("" if bug.mended is None else f", mended {bug.mended}")


def _flips(bug: Bug) -> str:
    if bug.response_fault is not None:
        return "yes, without the fault"
    return "yes" if bug.mended is not None else "no release without it"
