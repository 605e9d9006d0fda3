"""The OpenAPI document, from the endpoints and the frozen records that they take and return."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import LakehandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.web.endpoints import Endpoint

_SIMPLE: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "None": {"type": "null"},
    "Mapping": {"type": "object"},
    "dict": {"type": "object"},
    "Any": {},
}
_ARRAYS = {"Sequence", "list", "tuple"}
_TIME = {"type": "string", "format": "date-time"}
#: Fields that stand in the document itself, and not under their name.
_UNWRAPPED = {("TableEntry", "table"), ("JobEntry", "job"), ("TableDetails", "table")}
_UNWRAPPED |= {("JobDetails", "job")}
#: Properties that documents have in addition to fields.
_COMPUTED = {
    "Explanation": ("is_check_due", "score", "reasons"),
    "ServiceStatus": ("slots",),
    "Budget": ("left",),
    "JobEntry": ("waits_for",),
}
#: Fields that documents have under another name or in another form.
_RENAMED = {("Explanation", "choice"): "policy"}
_RESHAPED: dict[tuple[str, str], dict[str, Any]] = {
    ("Explanation", "settings"): {"type": "object"},
    ("Explanation", "obstacles"): {"type": "array", "items": {"type": "object"}},
    ("PolicyOfTable", "settings"): {"type": "object"},
    ("PolicyOfTable", "policy"): {"type": "object"},
}
#: Fields for pages alone.
_FOR_PAGES = {"filter", "treemap", "choices"}
_FOR_PAGES_OF = {("JobList", "running"), ("JobList", "queued"), ("WorkerList", "running")}


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the description of the API."""
    schemas: dict[str, Any] = {"Error": _error_schema()}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    paths["/events/stream"] = {"get": _stream_operation()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "lakehand", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    for parameter in endpoint.parameters:
        schema: dict[str, Any] = {"type": parameter.kind}
        if parameter.choices:
            schema["enum"] = list(parameter.choices)
        found = {"name": parameter.name, "in": "query", "description": parameter.help}
        parts.append({**found, "schema": schema})
    described: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": endpoint.view.__name__,
        "description": f"Role: {endpoint.role}.",
        "responses": {
            str(endpoint.status): _answer("Done.", _schema_of(endpoint.returns, schemas)),
            "default": _answer("An error.", {"$ref": "#/components/schemas/Error"}),
        },
    }
    if parts:
        described["parameters"] = parts
    if endpoint.body is not None:
        content = {"application/json": {"schema": _schema_of(endpoint.body, schemas)}}
        described["requestBody"] = {"content": content}
    return described


def _stream_operation() -> dict[str, Any]:
    known = [
        ("since", "query", "Number of an event: those after it come first."),
        ("Last-Event-ID", "header", "The same, as browsers send it when they come back."),
        ("kind", "query", "Only events of this kind, as job.failed or job.*."),
    ]
    return {
        "summary": "Events as they happen, as server-sent events.",
        "operationId": "stream_events",
        "description": "Role: viewer.",
        "parameters": [
            {"name": name, "in": place, "description": sentence, "schema": {"type": "string"}}
            for name, place, sentence in known
        ],
        "responses": {"200": {"description": "Events.", "content": {"text/event-stream": {}}}},
    }


def _answer(sentence: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": sentence, "content": {"application/json": {"schema": schema}}}


def _error_schema() -> dict[str, Any]:
    known = LakehandError("").to_json()
    kinds = {"retryable": {"type": "boolean"}, "hint": {"type": ["string", "null"]}}
    error = {name: kinds.get(name, {"type": "string"}) for name in known}
    inner = {"type": "object", "properties": error, "required": ["code", "message"]}
    return {"type": "object", "properties": {"error": inner}, "required": ["error"]}


def _schema_of(record: type[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of a record, and add that one if it is new."""
    name = record.__name__
    if name not in schemas:
        schemas[name] = {}  # A record may refer to itself.
        schemas[name] = _object(record, schemas)
    return {"$ref": f"#/components/schemas/{name}"}


def _object(record: type[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    parents = []
    comments = _comments(record)
    for item in fields(record):
        is_hidden = item.name in _FOR_PAGES or (record.__name__, item.name) in _FOR_PAGES_OF
        if is_hidden:
            continue
        key = (record.__name__, item.name)
        schema = _RESHAPED.get(key) or _kind(item.name, str(item.type), record, schemas)
        if key in _UNWRAPPED:
            parents.append(schema)
            continue
        if item.name in comments:
            schema = {**schema, "description": comments[item.name]}
        properties[_RENAMED.get(key, item.name)] = schema
        if item.default is MISSING and item.default_factory is MISSING:
            required.append(_RENAMED.get(key, item.name))
    for name in _COMPUTED.get(record.__name__, ()):
        properties[name] = _of_property(getattr(record, name), record, schemas)
    own: dict[str, Any] = {"type": "object", "properties": properties}
    own["description"] = inspect.cleandoc(record.__doc__ or "").partition("\n")[0]
    if required:
        own["required"] = required
    return {"allOf": [*parents, own]} if parents else own


def _of_property(computed: property, record: type[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    annotation = str(computed.fget.__annotations__["return"])
    schema = _of_expression(ast.parse(annotation, mode="eval").body, record, schemas)
    return {**schema, "description": computed.__doc__} if computed.__doc__ else schema


def _kind(name: str, annotation: str, record: type[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field; times of the store are strings."""
    is_time = name.endswith(("_at", "_until")) or name in {"not_before", "at"}
    parsed = ast.parse(annotation, mode="eval").body
    schema = _of_expression(parsed, record, schemas)
    if is_time and "number" in str(schema):
        return {"anyOf": [_TIME, {"type": "null"}]} if "null" in str(schema) else _TIME
    return schema


def _of_expression(node: ast.expr, record: type[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    match node:
        case ast.BinOp(left=left, right=right):
            kinds = [_of_expression(one, record, schemas) for one in (left, right)]
            return {"anyOf": kinds}
        case ast.Subscript(value=ast.Name(id=name), slice=inside) if name in _ARRAYS:
            member = inside.elts[0] if isinstance(inside, ast.Tuple) else inside
            return {"type": "array", "items": _of_expression(member, record, schemas)}
        case ast.Subscript(value=value):
            return _of_expression(value, record, schemas)
    name = ast.unparse(node)
    if name in _SIMPLE:
        return dict(_SIMPLE[name])
    found = _find(name, record)
    return _schema_of(found, schemas) if found is not None else {"type": "string"}


def _find(name: str, record: type[Any]) -> type[Any] | None:
    """Return a record by the name that the module of another one uses for it."""
    for module_name in (record.__module__, *_MODULES):
        found = getattr(sys.modules.get(module_name), name, None)
        if isinstance(found, type) and is_dataclass(found):
            return found
    return None


#: Where records are that a module imports for types alone.
_MODULES = (
    "lakehand.service.store.records",
    "lakehand.service.store.budgets",
    "lakehand.service.store.listings",
    "lakehand.service.store.service_state",
    "lakehand.service.store.table_registry",
    "lakehand.service.store.worker_registry",
    "lakehand.service.client_values",
    "lakehand.service.store.job_waits",
    "lakehand.assess.inspection",
    "lakehand.assess.health_score",
    "lakehand.model.reports",
)


def _comments(record: type[Any]) -> dict[str, str]:
    """Return what the comments above its fields say."""
    try:
        lines = inspect.getsource(record).splitlines()
    except (OSError, TypeError):
        return {}
    found: dict[str, str] = {}
    comment: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("#:"):
            comment.append(line.removeprefix("#:").strip())
        elif comment:
            if named := re.match(r"(\w+):", line):
                found[named.group(1)] = " ".join(comment)
            comment = []
    return found
