"""Reads the JSON documents that lakehand stores into dataclasses.

A document may be written by a later lakehand, or damaged. Unknown members are ignored; a member
that is missing or has another type is an error, before any part of the document is used.
"""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lakehand.model.order import Curve
from lakehand.model.work import Method, Strategy

T = TypeVar("T")

#: Names in annotations that modules import only for type checkers.
_NAMES: Mapping[str, Any] = {
    "Mapping": Mapping,
    "datetime": datetime,
    "Curve": Curve,
    "Method": Method,
    "Strategy": Strategy,
}


class DocumentError(ValueError):
    """A document does not have the expected form. Callers turn this into a typed error."""


def parse_object(text: bytes | str) -> dict[str, Any]:
    """Parse the JSON object in `text`; DocumentError if it is not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise DocumentError("not a JSON object")
    return value


def read_value(kind: type[T], value: object, *, required: Collection[str] = ()) -> T:
    """Build the dataclass `kind` from `value`, parsed JSON.

    Raises DocumentError if a member does not have the declared type, or is missing although it has
    no default or is in `required`.
    """
    missing = [name for name in required if not isinstance(value, dict) or name not in value]
    if missing:
        raise DocumentError(f"{missing[0]} is missing")
    found: T = _reader(cast("Any", kind))(value, "")
    return found


class _Reader:
    """Converts parsed JSON into a value of one type; gets the member's path for messages."""

    def __call__(self, value: Any, path: str) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Plain(_Reader):
    kinds: tuple[type, ...]
    description: str

    def __call__(self, value: Any, path: str) -> Any:
        # In Python a boolean is an integer; in JSON it is not.
        if not isinstance(value, self.kinds) or (
            isinstance(value, bool) and bool not in self.kinds
        ):
            raise _mismatch(path, self.description, value)
        return value


class _Instant(_Reader):
    def __call__(self, value: Any, path: str) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            moment = None
        if moment is None or moment.tzinfo is None:
            raise _mismatch(path, "a timestamp with a UTC offset", value)
        return moment


@dataclass(frozen=True, slots=True)
class _Choice(_Reader):
    choices: tuple[Any, ...]

    def __call__(self, value: Any, path: str) -> Any:
        if value not in self.choices or isinstance(value, bool):
            raise _mismatch(path, f"one of {', '.join(map(str, self.choices))}", value)
        return value


@dataclass(frozen=True, slots=True)
class _Optional(_Reader):
    inner: _Reader

    def __call__(self, value: Any, path: str) -> Any:
        return None if value is None else self.inner(value, path)


@dataclass(frozen=True, slots=True)
class _Items(_Reader):
    inner: _Reader
    #: Required length; None: any.
    count: int | None = None

    def __call__(self, value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or self.count not in {None, len(value)}:
            raise _mismatch(
                path, "a list" if self.count is None else f"a list of {self.count}", value
            )
        return tuple(self.inner(item, f"{path}[{number}]") for number, item in enumerate(value))


@dataclass(frozen=True, slots=True)
class _Members(_Reader):
    inner: _Reader

    def __call__(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(path, "an object", value)
        return {name: self.inner(item, f"{path}.{name}") for name, item in value.items()}


class _Anything(_Reader):
    def __call__(self, value: Any, path: str) -> Any:  # noqa: ARG002  accepts every path
        return value


class _Record(_Reader):
    def __init__(self, kind: Any) -> None:
        self._kind = kind
        hints = get_type_hints(kind, localns=dict(_NAMES))
        self._readers = [
            (field.name, _reader(hints[field.name]), _is_required(field)) for field in fields(kind)
        ]

    def __call__(self, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(path, "an object", value)
        found: dict[str, Any] = {}
        for name, reader, is_required in self._readers:
            inner = f"{path}.{name}" if path else name
            if name in value:
                found[name] = reader(value[name], inner)
            elif is_required:
                raise DocumentError(f"{inner} is missing")
        return self._kind(**found)


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _reader(kind: Any) -> _Reader:
    if kind is Any or kind is object:
        return _Anything()
    if kind is datetime:
        return _Instant()
    if is_dataclass(kind):
        return _Record(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    return _composed(kind, get_origin(kind), get_args(kind))


def _composed(kind: Any, origin: Any, parts: tuple[Any, ...]) -> _Reader:
    if origin is Literal:
        return _Choice(parts)
    if origin in {Union, types.UnionType}:
        (inner,) = (part for part in parts if part is not type(None))
        return _Optional(_reader(inner))
    if origin in {tuple, Sequence}:
        is_any_length = origin is Sequence or parts[-1] is Ellipsis
        return _Items(_reader(parts[0]), None if is_any_length else len(parts))
    if origin is Mapping:
        return _Members(_reader(parts[1]))
    raise TypeError(f"unsupported type in a document: {kind}")


_PLAIN: Mapping[Any, _Reader] = {
    str: _Plain((str,), "a string"),
    bool: _Plain((bool,), "true or false"),
    int: _Plain((int,), "an integer"),
    float: _Plain((int, float), "a number"),
}


def _mismatch(path: str, expected: str, value: object) -> DocumentError:
    shown = repr(value)
    short = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
    return DocumentError(f"{path or 'the document'} is not {expected}: {short}")


#: Maximum number of characters of an invalid value in a message.
_MAX_SHOWN = 60
