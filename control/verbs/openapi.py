"""The OpenAPI description of the control API, computed from the table of routes and the types of the bodies."""

from __future__ import annotations

import msgspec

from klamm.control.json_object import JsonObject
from klamm.control.verbs.routes import NUMBERS, ROUTES, Route
from klamm.control.verbs.table import TABLE, operation_id

_TYPES = {int: "integer", str: "string", bool: "boolean"}


def openapi() -> JsonObject:
    """The description, as it is served at /openapi.json."""
    kinds = [route.body for route in ROUTES if route.body is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas["Error"] = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    paths: JsonObject = {}
    for (verb, place), route in zip(TABLE.items(), ROUTES, strict=True):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(operation_id(verb, place), route)
    events = "Events as they happen, as server-sent events"
    paths["/events"] = {"get": {"operationId": "getEvents", "summary": events, "responses": {"200": {"description": "events"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Klamm control API", "version": "1", "description": "Steers a cluster: docs/control.md."},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(name: str, route: Route) -> JsonObject:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if name in NUMBERS else "string"}}
        for name in route.names
    ]
    in_query = [{"name": name, "in": "query", "schema": {"type": _TYPES[kind]}} for name, kind in route.query.items()]
    error = {"description": "what is wrong", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    described: JsonObject = {
        "operationId": name,
        "summary": route.summary,
        "parameters": [*in_path, *in_query],
        "responses": {"200": {"description": "done", "content": {"application/json": {"schema": {"type": "object"}}}}, "4XX": error},
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        described["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return described
