"""Builds the site of docs/: `python -m klamm.distributions.site`, or `make site`. It can be read without a network, also from its files.

Pages are staged in build/site-pages: those of docs/ (two with a list below them that is made from the tests), those of the root below
project/, and reference pages that are made from the code.
A link to a file of the source becomes its text, because the site has no sources. Two scripts that pages would load from elsewhere come from
npm: mermaid draws diagrams, iframe-worker lets the search work where pages are opened as files.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
DOCS, PAGES = ROOT / "docs", ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
_ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_RENAMED = {"docs/README.md": "pages.md"}
"""mkdocs takes README.md and index.md for the same page."""
FOUND_LATER = {"spec/": 0.01, "adr/": 0.01, "project/": 0.02, "reference/": 0.1} | dict.fromkeys(
    ("architecture.md", "compatibility.md", "conformance.md", "coverage.md", "documents.md", "pages.md", "phases.md", "pipeline_tables.md",
     "security_review.md", "spark_settings.md", "states.md", "testing.md", "walks.md"), 0.01,
)
"""Beginning of a page's place → weight of the page in the search. Who uses Klamm finds the pages for users first."""
SCRIPTS = {
    "mermaid@11.17.2": ("package/dist/mermaid.min.js", "mermaid.js"),
    "iframe-worker@1.0.4": ("package/shim/index.js", "iframe-worker.js"),
}
"""Package of npm → the file in it, and its name in the site."""


def stage(pages: Path = PAGES) -> None:
    """Write all pages to this folder."""
    from klamm.tests.pages import BUILT

    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.md", "*.txt", "*.toml"))
    texts = {_place(source): with_site_links(source.read_text(), source) for source in DOCS.rglob("*.md")}
    texts |= {name: f"{texts[name]}\n{with_site_links(text(), DOCS / name)}" for name, text in BUILT.items()}
    texts |= {_place(ROOT / name): with_site_links((ROOT / name).read_text(), ROOT / name) for name in _ROOT_PAGES}
    texts |= {"reference/commands.md": commands_page(), "reference/python.md": python_page(), "reference/configs.md": configs_page()}
    for place, text in texts.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_weight(place) + text)


def _weight(place: str) -> str:
    """What mkdocs reads before the text of a page: how much the search prefers it."""
    weights = [weight for beginning, weight in FOUND_LATER.items() if place.startswith(beginning)]
    return f"---\nsearch:\n  boost: {weights[0]}\n---\n" if weights else ""


def _place(source: Path) -> str:
    """Where a page of the checkout is in the site."""
    name = source.relative_to(ROOT).as_posix()
    if name in _RENAMED:
        return _RENAMED[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else f"project/{name}"


def with_site_links(text: str, source: Path) -> str:
    """The text with links that lead to pages of the site, or are plain text."""
    here = Path(_place(source)).parent
    up = "../" * len(here.parts)

    def link(match: re.Match[str]) -> str:
        said, target, anchor = match.groups()
        leads_to = (source.parent / target).resolve()
        if not leads_to.is_relative_to(ROOT) or leads_to.is_dir() or not leads_to.exists():
            return said
        if leads_to.suffix == ".md" and (leads_to.is_relative_to(DOCS) or (leads_to.name in _ROOT_PAGES and leads_to.parent == ROOT)):
            return f"[{said}]({up}{_place(leads_to)}{anchor or ''})"
        if leads_to.is_relative_to(DOCS / "examples"):
            return f"[{said}]({up}{leads_to.relative_to(DOCS)})"
        return said

    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(r"\[([^\]\[]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)", link, part) for part in parts
    )


def commands_page() -> str:
    """The help of every command."""
    from klamm.cli.main import klamm

    lines = ["# Command line\n", "What `klamm COMMAND --help` prints, for all commands.\n"]
    for path, command in _commands(click.Context(klamm, info_name="klamm", **klamm.context_settings), klamm):
        lines += [f"## {path.command_path}\n", "```", command.get_help(path), "```\n"]
    return "\n".join(lines)


def _commands(context: click.Context, command: click.Command) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _commands(click.Context(inner, info_name=name, parent=context), inner)


def python_page() -> str:
    """The classes that other programs use, with their public methods."""
    import klamm
    from klamm import admin, testing

    classes: list[tuple[str, type[object]]] = [
        ("klamm.Cluster", klamm.Cluster),
        ("klamm.testing.BlockingCluster", testing.BlockingCluster),
        ("klamm.admin.AdminClient", admin.AdminClient),
    ]
    lines = ["# Python\n", "Signatures and docstrings. `AsyncCluster` and `AsyncAdminClient` have the same methods as coroutines.\n"]
    for name, kind in classes:
        lines += [f"## {name}\n", _text(kind), ""]
        for method, member in inspect.getmembers(kind):
            if not method.startswith("_") or method == "__init__":
                lines += _member(method, member)
    return "\n".join(lines)


def _member(name: str, member: object) -> list[str]:
    if isinstance(member, property):
        return [f"### {name} (property)\n", _text(member), ""]
    if inspect.isfunction(member):
        return [f"### {name}\n", "```python", f"{name}{inspect.signature(member)}", "```\n", _text(member), ""]
    return []


def _text(member: object) -> str:
    return f"```text\n{inspect.getdoc(member) or ''}\n```"


def configs_page() -> str:
    """All configs of brokers and topics."""
    from klamm.configs.tables.broker import BROKER, TOPICS

    lines = ["# Configs\n", "All configs that a broker knows. Those that are not used are accepted, as in Apache Kafka.\n"]
    for title, table in (("Brokers", BROKER), ("Topics", TOPICS)):
        lines += [f"## {title}\n", "| config | type | default | used | meaning |", "|---|---|---|---|---|"]
        for key in sorted(table.values(), key=lambda each: each.name):
            used = "yes" if key.used else "no"
            default = ",".join(map(str, key.default)) if isinstance(key.default, tuple) else "" if key.default is None else str(key.default)
            meaning = " ".join(key.documentation.split()).replace("|", "\\|")
            lines.append(f"| `{key.name}` | {key.type.name.lower()} | {f'`{default}`' if default else ''} | {used} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def fetch_scripts(target: Path) -> None:
    """Let npm fetch the scripts, unless they are there. Raises subprocess.CalledProcessError, OSError."""
    kept = ROOT / ".venv" / "site-scripts"
    kept.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    for package, (member, name) in SCRIPTS.items():
        script = kept / f"{package}.js"
        if not script.exists():
            with tempfile.TemporaryDirectory() as folder:
                packed = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True)
                with tarfile.open(Path(folder, packed.stdout.split()[-1])) as archive:
                    held = archive.extractfile(member)
                    assert held is not None, member
                    script.write_bytes(held.read())
        shutil.copy(script, target / name)


def main() -> int:
    """Build the site; returns the exit code."""
    stage()
    fetch_scripts(PAGES / "assets")
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean"], cwd=ROOT, env=environ, check=False)
    if done.returncode == 0:
        print(SITE / "index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
