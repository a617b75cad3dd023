"""Writes the clients of the control API in other languages, from its OpenAPI description: `python -m klamm.distributions.modules`, or
`make pages`.

A client has one function for each operation, and one type for each body. What people want beside it (start a cluster, wait, explain a test
that fails) is written by hand in `modules/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klamm.control.json_object import JsonObject
from klamm.control.verbs.openapi import openapi
from klamm.testing.transcript import USUAL_ERRORS

ROOT = Path(__file__).resolve().parent.parent / "modules"
MADE = "Made by `python -m klamm.distributions.modules` from the table of verbs; do not edit."


class Operation(NamedTuple):
    """One operation. `path` has `{names}`; `names` and `query` have the OpenAPI type of each; `body` is the name of a schema."""

    id: str
    method: str
    path: str
    summary: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: str | None
    is_body_needed: bool


def operations(described: JsonObject) -> Iterator[Operation]:
    """All operations that have one response, in the order of the paths."""
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, each in methods.items():
            if "parameters" not in each:  # /events is a stream
                continue
            by_place: dict[str, dict[str, str]] = {"path": {}, "query": {}}
            for parameter in each["parameters"]:
                by_place[parameter["in"]][parameter["name"]] = parameter["schema"]["type"]
            body = None
            if "requestBody" in each:
                body = each["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            is_needed = body is not None and bool(schemas[body]["required"])
            yield Operation(
                each["operationId"], method.upper(), path, each["summary"], by_place["path"], by_place["query"], body, is_needed
            )


def bodies(described: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Name and schema of each body, and of what is in one."""
    return ((name, schema) for name, schema in described["components"]["schemas"].items() if name != "Error")


_USUAL = ", ".join(f'"{error}"' for error in sorted(USUAL_ERRORS))
"""What a transcript does not mark."""


def _first_line(schema: JsonObject) -> str:
    return " ".join(str(schema["description"]).split())


# --- TypeScript

_LISTED = {"FaultBody": "FAULT_FIELDS", "EffectBody": "EFFECT_FIELDS"}
"""Bodies whose fields the module for Node needs as a list: its `fault` takes them in one object."""
_IN_TYPESCRIPT = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def _typescript(schema: JsonObject) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_typescript(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(f"'{value}'" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            if "prefixItems" in schema:
                return f"[{', '.join(_typescript(each) for each in schema['prefixItems'])}]"
            item = _typescript(schema["items"])
            return f"({item})[]" if "|" in item else f"{item}[]"
        case "object":
            values = schema.get("additionalProperties")
            return f"Record<string, {_typescript(values) if isinstance(values, dict) else 'unknown'}>"
        case str(kind):
            return _IN_TYPESCRIPT[kind]
    return "unknown"


def typescript(described: JsonObject) -> str:
    """`modules/node/src/operations.ts`."""
    lines = [
        f"// {MADE}", "",
        "/** A response, as docs/control_routes.md and GET /openapi.json describe it. */",
        "// eslint-disable-next-line @typescript-eslint/no-explicit-any", "export type Shown = Record<string, any>",
        "type Value = string | number | boolean", "",
        "/** Errors that every client meets, and goes on. */",
        f"export const USUAL_ERRORS: ReadonlyArray<string> = [{_USUAL.replace(chr(34), chr(39))}]", "",
    ]
    for name, schema in bodies(described):
        lines += [f"/** {_first_line(schema)} */", f"export interface {name} {{"]
        needed = schema["required"]
        lines += [f"  {key}{'' if key in needed else '?'}: {_typescript(of)}" for key, of in schema["properties"].items()]
        lines += ["}", ""]
        if name in _LISTED:
            listed = ", ".join(f"'{key}'" for key in schema["properties"])
            lines += [f"export const {_LISTED[name]}: ReadonlyArray<string> = [{listed}]", ""]
    lines += ["/** One method for each operation of the control API. */", "export abstract class Operations {"]
    sender = "method: string, path: string, query?: Record<string, Value | undefined>, body?: object"
    lines += [f"  protected abstract send ({sender}): Promise<Shown>"]
    for each in operations(described):
        arguments = [f"{name}: {_IN_TYPESCRIPT[kind]}" for name, kind in each.names.items()]
        if each.query:
            arguments.append(f"query: {{ {', '.join(f'{name}?: {_IN_TYPESCRIPT[kind]}' for name, kind in each.query.items())} }} = {{}}")
        if each.body is not None:
            arguments.append(f"body: {each.body}" if each.is_body_needed else f"body: {each.body} = {{}}")
        path = re.sub(r"{(\w+)}", r"${encodeURIComponent(\1)}", each.path)
        sent = [f"'{each.method}'", f"`{path}`" if each.names else f"'{path}'"]
        if each.query or each.body is not None:
            sent.append("query" if each.query else "undefined")
        if each.body is not None:
            sent.append("body")
        lines += ["", f"  /** {each.summary}. */", f"  {each.id} ({', '.join(arguments)}): Promise<Shown> {{"]
        lines += [f"    return this.send({', '.join(sent)})", "  }"]
    return "\n".join([*lines, "}", ""])


# --- Go

_IN_GO = {"integer": "int64", "number": "float64", "string": "string", "boolean": "bool"}


def _pascal(name: str) -> str:
    words = re.split(r"[_-]", name)
    return "".join({"id": "ID", "api": "API", "ms": "Ms"}.get(word, word[:1].upper() + word[1:]) for word in words)


def _go(schema: JsonObject, is_needed: bool) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return name if is_needed else f"*{name}"
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return _go(kinds[0], False) if len(kinds) == 1 else "any"
    if "enum" in schema:
        return "string"
    match schema.get("type"):
        case "array":
            item = schema["prefixItems"][0] if "prefixItems" in schema else schema["items"]
            return f"[]{_go(item, True)}"
        case "object":
            values = schema.get("additionalProperties")
            return f"map[string]{_go(values, True) if isinstance(values, dict) else 'any'}"
        case "string":
            return "string"
        case str(kind):
            is_left_out = kind == "boolean" and not schema.get("default")  # as false is what the API takes for it
            return _IN_GO[kind] if is_needed or is_left_out else f"*{_IN_GO[kind]}"
    return "any"


def _go_struct(name: str, about: str, fields: Sequence[tuple[str, str, bool]]) -> list[str]:
    """A type, in columns as `gofmt` writes them. Each field: its name in JSON, its type, whether it must be there."""
    named = max(len(_pascal(key)) for key, _, _ in fields)
    typed = max(len(kind) for _, kind, _ in fields)
    rows = [
        f"\t{_pascal(key):{named}} {kind:{typed}} `json:\"{key}{'' if is_needed else ',omitempty'}\"`" for key, kind, is_needed in fields
    ]
    return [f"// {name}: {about}", f"type {name} struct {{", *rows, "}", ""]


def go(described: JsonObject) -> str:
    """`modules/go/operations.go`."""
    lines = [
        "// Code generated by `python -m klamm.distributions.modules` from the table of verbs. DO NOT EDIT.", "", "package klamm", "",
        "import (", '\t"context"', '\t"fmt"', '\t"net/url"', ")", "",
        "// usualErrors are errors that every client meets, and goes on.", f"var usualErrors = []string{{{_USUAL}}}", "",
    ]
    for name, schema in bodies(described):
        fields = [(key, _go(of, key in schema["required"]), key in schema["required"]) for key, of in schema["properties"].items()]
        lines += _go_struct(name, _first_line(schema), fields)
    for each in operations(described):
        arguments = ["ctx context.Context", *(f"{name} {_IN_GO[kind]}" for name, kind in each.names.items())]
        if each.query:
            about = f"the optional parameters of {_pascal(each.id)}"
            fields = [(name, _go({"type": kind}, False), False) for name, kind in each.query.items()]
            lines += _go_struct(f"{_pascal(each.id)}Query", about, fields)
            arguments.append(f"query {_pascal(each.id)}Query")
        if each.body is not None:
            arguments.append(f"body {each.body}")
        path = f'"{each.path}"'
        if each.names:
            values = [name if kind == "integer" else f"url.PathEscape({name})" for name, kind in each.names.items()]
            form = each.path
            for name, kind in each.names.items():
                form = form.replace(f"{{{name}}}", "%d" if kind == "integer" else "%s")
            path = f'fmt.Sprintf("{form}", {", ".join(values)})'
        sent = f'ctx, "{each.method}", {path}, {"query" if each.query else "nil"}, {"body" if each.body is not None else "nil"}'
        signature = f"{_pascal(each.id)}({', '.join(arguments)}) (Shown, error)"
        lines += [f"// {_pascal(each.id)}: {each.summary}.", f"func (c *Control) {signature} {{", f"\treturn c.send({sent})", "}", ""]
    return "\n".join(lines)


# --- Java

_IN_JAVA = {"integer": "long", "number": "double", "string": "String", "boolean": "boolean"}
_BOXED = {"long": "Long", "double": "Double", "boolean": "Boolean"}
_JAVA_WORDS = frozenset(("while",))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    camel = first + "".join(word.capitalize() for word in rest)
    return f"{camel}_" if camel in _JAVA_WORDS else camel


def _java(schema: JsonObject) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return _java(kinds[0]) if len(kinds) == 1 else "Object"
    if "enum" in schema:
        return "String"
    match schema.get("type"):
        case "array":
            item = _java(schema["prefixItems"][0] if "prefixItems" in schema else schema["items"])
            return f"List<{_BOXED.get(item, item)}>"
        case "object":
            values = schema.get("additionalProperties")
            item = _java(values) if isinstance(values, dict) else "?"
            return f"Map<String, {_BOXED.get(item, item)}>"
        case str(kind):
            return _IN_JAVA[kind]
    return "Object"


def _setter(name: str, key: str, kind: str) -> list[str]:
    head = f"        public {name} {_camel(key)}({kind} value) {{"
    return [head, f'            set("{key}", value);', "            return this;", "        }"]


def java_bodies(described: JsonObject) -> str:
    """`modules/jvm/src/main/java/dev/klamm/Bodies.java`."""
    lines = [
        f"// {MADE}", "package dev.klamm;", "", "import java.util.List;", "import java.util.Map;", "",
        "/** What is sent to the control API: objects whose fields are set one after the other. What is not set is not sent. */",
        "public final class Bodies {", "    private Bodies() {}",
    ]
    for name, schema in bodies(described):
        lines += ["", f"    /** {_first_line(schema)} */", f"    public static final class {name} extends Body {{"]
        for key, of in schema["properties"].items():
            lines += _setter(name, key, _java(of))
        lines += ["    }"]
    for each in operations(described):
        if each.query:
            name = f"{_pascal(each.id)}Query"
            lines += ["", f"    /** The optional parameters of {each.id}. */", f"    public static final class {name} extends Body {{"]
            for key, kind in each.query.items():
                lines += _setter(name, key, _IN_JAVA[kind])
            lines += ["    }"]
    return "\n".join([*lines, "}", ""])


def java(described: JsonObject) -> str:
    """`modules/jvm/src/main/java/dev/klamm/Operations.java`."""
    lines = [
        f"// {MADE}", "package dev.klamm;", "", "import com.fasterxml.jackson.databind.JsonNode;", "import dev.klamm.Bodies.*;",
        "import java.util.Set;", "",
        "/** One method for each operation of the control API. Each throws ControlFailed. */", "public abstract class Operations {",
        "    /** Send a request; `query` and `body` may be null. */",
        "    protected abstract JsonNode send(String method, String path, Body query, Body body);", "",
        "    /** A name as it stands in a path. */", "    protected abstract String escaped(String name);", "",
        "    /** Errors that every client meets, and goes on. */",
        f"    static final Set<String> USUAL_ERRORS = Set.of({_USUAL});",
    ]
    for each in operations(described):
        arguments = [f"{_IN_JAVA[kind]} {name}" for name, kind in each.names.items()]
        if each.query:
            arguments.append(f"{_pascal(each.id)}Query query")
        if each.body is not None:
            arguments.append(f"{each.body} body")
        path = f'"{each.path}"'
        for name, kind in each.names.items():
            value = name if kind == "integer" else f"escaped({name})"
            path = path.replace(f"{{{name}}}", f'" + {value} + "')
        path = path.removesuffix(' + ""')
        sent = f'"{each.method}", {path}, {"query" if each.query else "null"}, {"body" if each.body is not None else "null"}'
        lines += ["", f"    /** {each.summary}. */", f"    public JsonNode {each.id}({', '.join(arguments)}) {{"]
        lines += [f"        return send({sent});", "    }"]
    return "\n".join([*lines, "}", ""])


_PACKAGE = "jvm/src/main/java/dev/klamm"
FILES: Mapping[str, Callable[[JsonObject], str]] = {
    "node/src/operations.ts": typescript, "go/operations.go": go,
    f"{_PACKAGE}/Operations.java": java, f"{_PACKAGE}/Bodies.java": java_bodies,
}
"""File below `modules/` → what is in it."""


def main() -> None:
    """Write all of them."""
    described: Any = openapi()
    for place, text in FILES.items():
        (ROOT / place).write_text(text(described))


if __name__ == "__main__":
    main()
