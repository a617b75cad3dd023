"""The layout of every message as text, one structure a line: what `layouts.txt` records.

python -m klamm.tests.protocol.layouts      writes it anew; commit only what you understand
"""

from __future__ import annotations

from pathlib import Path

from klamm.protocol import messages
from klamm.protocol.schema import Field, Versions

FILE = Path(__file__).with_name("layouts.txt")


def span(versions: Versions) -> str:
    return f"{versions.low}" if versions.low == versions.high else f"{versions.low}-{versions.high}"


def field_text(field: Field, valid: Versions) -> str:
    """Name, type, and whatever is not as usual."""
    kind = field.type if field.struct is None else field.struct.name
    text = f"{field.name}:{'[]' if field.is_array else ''}{kind}"
    if field.versions != valid:
        text += f" {span(field.versions)}"
    for label, versions in (("null", field.nullable.cut(valid)), ("tagged", field.tagged)):
        if versions.low <= versions.high:
            text += f" {label}={span(versions)}"
    if field.tagged.low <= field.tagged.high:
        text += f" tag={field.tag}"
    if field.default not in (0, "", (), b"", bytes(16), False):
        text += f" default={field.default}"
    return text + (" ignorable" if field.ignorable else "")


def layouts() -> str:
    lines = []
    for api in messages.APIS.values():
        for suffix in ("Request", "Response"):
            schema = messages.message_type(api.name + suffix).schema
            lines.append(f"{schema.name} {schema.api_key} versions {span(schema.valid)}")
            for struct in sorted(schema.structs.values(), key=lambda each: each is not schema.root):
                fields = ", ".join(field_text(field, schema.valid) for field in struct.fields)
                lines.append(f"  {struct.name}({fields})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(layouts(), encoding="utf-8")
