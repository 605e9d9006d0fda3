"""What the API and the pages are made of: an endpoint has one view, for both.

A view takes a `Call`, and returns a frozen record. The API answers with its JSON, a page with its
template. Bodies are frozen records too: their fields are what the request may have.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.service.client import ServiceClient
    from lakehand.service.job_states import AccessRole
    from lakehand.web.access import Identity
    from lakehand.web.table_content import TableReader

Method = Literal["GET", "POST", "PATCH", "DELETE"]
Record = TypeVar("Record")
Value = TypeVar("Value")
#: How long numbers over many rows are kept.
_SLOW_SECONDS = 60.0
#: Most rows of one answer, and those without a wish.
MAX_ROWS, DEFAULT_ROWS = 1000, 50
_MAX_TEXT = 2000
_LARGEST = 2**62


class SlowValues:
    """Numbers over many rows, which are read again after a minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, read: Callable[[], Value]) -> Value:
        # With the lock: other requests wait for the same numbers.
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or time.monotonic() - kept[0] > _SLOW_SECONDS:
                kept = self._kept[name] = (time.monotonic(), read())
        value: Value = kept[1]
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A parameter of the query."""

    name: str
    help: str
    kind: Literal["string", "integer"] = "string"
    #: Its values, if they are known.
    choices: tuple[str, ...] = ()


LIMIT = Parameter(name="limit", help=f"Rows, at most {MAX_ROWS:,}.", kind="integer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A request, for a view."""

    client: ServiceClient
    identity: Identity
    reader: TableReader
    #: Parts of the path.
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: The body as JSON, or the fields of a form.
    body: Mapping[str, Any]
    #: What is read once in a minute.
    slow_values: SlowValues
    #: Whether a page is made of it, which may show more than the API tells.
    is_page: bool = False

    def slow(self, name: str, read: Callable[[], Value]) -> Value:
        """Return what takes long to read, as it was at most a minute ago."""
        return self.slow_values.get(name, read)

    def text(self, name: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return a parameter of the query; None if it is not there or empty."""
        value = self.query.get(name) or None
        if value is None:
            return None
        if len(value) > _MAX_TEXT or "\0" in value:
            raise ValidationError(f"{name} is too long or has a null character", field=name)
        if choices and value not in choices:
            message = f"{name} cannot be {value!r}; it is one of {', '.join(choices)}"
            raise ValidationError(message, field=name, value=value)
        return value

    def number(self, name: str) -> int | None:
        """Return a parameter of the query that is a number of a row."""
        value = self.text(name)
        return None if value is None else whole_number(value, name)

    def limit(self, default: int = DEFAULT_ROWS) -> int:
        """Return how many rows are wanted."""
        wanted = self.number("limit")
        if wanted is None:
            return default
        if not 1 <= wanted <= MAX_ROWS:
            message = f"limit is from 1 to {MAX_ROWS:,}"
            raise ValidationError(message, field="limit", value=wanted)
        return wanted

    def id(self, name: str) -> int:
        """Return a part of the path that is a number."""
        return whole_number(self.path[name], name)

    def record(self, kind: type[Record]) -> Record:
        """Return the body as a record; ValidationError says what is wrong with it."""
        return read_record(kind, self.body)


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A resource of the API, and the page that shows it."""

    method: Method
    #: Below /api/v1; parts in braces are parameters.
    path: str
    view: Callable[[Call], Any]
    #: One sentence.
    summary: str
    #: Class of the record that the view returns.
    returns: type[Any]
    role: AccessRole = "viewer"
    parameters: tuple[Parameter, ...] = ()
    #: Class of the body.
    body: type[Any] | None = None
    status: int = 200
    #: Template of the page at the same path without /api/v1.
    template: str | None = None
    #: Path of the page, if it is another one.
    page: str | None = None
    #: Whether a form may send it, and the page that is shown after that.
    after_form: str | None = None


def whole_number(text: str, name: str) -> int:
    """Return a number of a row; ValidationError if it is not one."""
    if not (text.isascii() and text.isdigit()) or int(text[:30]) >= _LARGEST:
        raise ValidationError(f"{name} is not a whole number", field=name, value=text[:100])
    return int(text)


def read_record(kind: type[Record], given: Any) -> Record:
    """Return a body as a record of a class; ValidationError if a field is unknown or wrong."""
    if not isinstance(given, dict):
        raise ValidationError("the body of the request is not a JSON object", field="body")
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            hint = f"the body may have {', '.join(known) or 'nothing'}"
            raise ValidationError(f"the body has the unknown field {name!r:.100}", hint=hint)
    values = {}
    for name, item in known.items():
        value = given.get(name)
        if value is None or value == "":
            if item.default is MISSING and item.default_factory is MISSING:
                raise ValidationError(f"the body lacks the field {name}", field=name)
            continue
        values[name] = _checked(name, str(item.type), value)
    return kind(**values)


def _checked(name: str, annotation: str, value: Any) -> Any:
    """Return a value that fits an annotation: `str`, `bool`, `Mapping`, each optionally None."""
    kind = annotation.split(" | ", maxsplit=1)[0].partition("[")[0]
    if kind == "bool" and value in (True, False, "true", "false", "on"):
        return value in (True, "true", "on")
    if kind == "Mapping" and isinstance(value, str):  # A field of a form.
        value = _parsed(name, value)
    wanted: dict[str, type] = {"str": str, "Mapping": dict, "Sequence": list}
    if kind not in wanted or not isinstance(value, wanted[kind]):
        raise ValidationError(f"the field {name} is not of the type {annotation}", field=name)
    if isinstance(value, str) and (len(value) > _MAX_TEXT or "\0" in value):
        raise ValidationError(f"{name} is too long or has a null character", field=name)
    return value


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"the field {name} is not JSON", field=name) from error


def to_json(value: Any) -> Any:
    """Return a record as JSON, by its `to_json` where it has one."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return value
