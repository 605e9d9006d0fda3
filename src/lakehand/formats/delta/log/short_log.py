"""File actions of a short log, reconciled in Python: DuckDB needs 25 ms for a single line.

There is one reader of odd logs, and that is DuckDB: only lines that are spelled exactly as the
protocol says are taken here. If there is any other, or anything is wrong, the answer is None, and
DuckDB reads the log, with its conversions and its errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.protocol.names import decode_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    _Checks = Mapping[str, Callable[[Any], bool]]

#: Above this DuckDB is faster.
MOST_BYTES = 256 * 1024

#: Member of a line: the version that it counts as.
VERSION = "lakehandVersion"
#: An action of a line: its version, its kind and its members.
Action = tuple[int, str, dict[str, Any]]
FileKind = Literal["add", "remove"]
#: Decoded path and identity of the deletion vector, empty if there is none.
FileKey = tuple[str, str]

_FILE_KINDS = frozenset({"add", "remove"})
_KINDS = _FILE_KINDS | {"protocol", "metaData", "txn", "domainMetadata", "commitInfo", "cdc"}
_INTEGERS = range(-(2**31), 2**31)
_LONGS = range(-(2**63), 2**63)
#: Python takes numbers that are none in JSON, and libraries differ in strings with a zero.
_DOUBTFUL = re.compile(rb"[:,\[]\s*-?(?:NaN|Infinity)|\\u0000")
_PLAIN_PATH = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})+")
_TEXT_MAP = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_NUMPY_TYPES = {pa.int32(): np.int32, pa.int64(): np.int64, pa.bool_(): np.bool_}
_COMMON = [
    ("path", pa.string()),
    ("partitionValues", _TEXT_MAP),
    ("size", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", pa.string()),
    ("tags", _TEXT_MAP),
    ("deletionVector", _VECTOR),
    ("baseRowId", pa.int64()),
    ("defaultRowCommitVersion", pa.int64()),
]
_TYPES: Mapping[FileKind, pa.StructType] = {
    "add": pa.struct(
        [*_COMMON, ("modificationTime", pa.int64()), ("clusteringProvider", pa.string())]
    ),
    "remove": pa.struct(
        [*_COMMON, ("deletionTimestamp", pa.int64()), ("extendedFileMetadata", pa.bool_())]
    ),
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return type(value) is int and value in _INTEGERS


def _is_long(value: Any) -> bool:
    return type(value) is int and value in _LONGS


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        item is None or isinstance(item, str) for item in value.values()
    )


def _is_vector(value: Any) -> bool:
    is_named = isinstance(value, dict) and _is_spelled(value, _VECTOR_CHECKS)
    return is_named and None not in (value.get("storageType"), value.get("pathOrInlineDv"))


_CHECKS: Mapping[pa.DataType, Callable[[Any], bool]] = {
    pa.string(): _is_text,
    pa.bool_(): _is_boolean,
    pa.int32(): _is_integer,
    pa.int64(): _is_long,
    _TEXT_MAP: _is_text_map,
    _VECTOR: _is_vector,
}


def _checks_of(type_: pa.StructType) -> _Checks:
    return {member.name: _CHECKS[member.type] for member in type_}


_VECTOR_CHECKS = _checks_of(_VECTOR)
_MEMBER_CHECKS: Mapping[str, _Checks] = {kind: _checks_of(type_) for kind, type_ in _TYPES.items()}
_NAMES = frozenset(name for checks in (_VECTOR_CHECKS, *_MEMBER_CHECKS.values()) for name in checks)
_LOWER = frozenset(name.lower() for name in _NAMES)


def _is_spelled(value: Mapping[str, Any], checks: _Checks) -> bool:
    """Say whether known members have their types, and no other is one of them in other letters."""
    for name, item in value.items():
        check = checks.get(name)
        if check is None:
            if name.lower() in _LOWER and name not in _NAMES:
                return False
        elif item is not None and not check(item):
            return False
    return True


def parse_lines(lines: bytes) -> list[Action] | None:
    """Return the actions of lines that have their version; None if DuckDB has to read them."""
    if _DOUBTFUL.search(lines):
        return None
    try:
        return [action for line in lines.split(b"\n") if line for action in _actions(line)]
    except ValueError:
        return None


def _actions(line: bytes) -> Iterator[Action]:
    action = load_json(line)
    version = action.pop(VERSION)
    if not action.keys() <= _KINDS:
        raise ValueError("it has an action that is not known")
    if action.get("add") is not None and action.get("remove") is not None:
        raise ValueError("it adds and removes at once")
    for kind, value in action.items():
        if value is not None:
            yield version, kind, value


def file_actions(actions: Iterable[Action]) -> list[tuple[FileKey, Action]] | None:
    """Return the actions that name files; None if DuckDB has to read them."""
    named = []
    for action in actions:
        _, kind, value = action
        if kind in _FILE_KINDS:
            key = _key_of(value) if _is_file(kind, value) else None
            if key is None:
                return None
            named.append((key, action))
    return named


def newest_files(actions: Iterable[Action], kind: FileKind) -> pa.Table | None:
    """Return the last action for each file: `path_key`, `vector_key`, `kind`, and those of `kind`.

    None if DuckDB has to find them.
    """
    newest: dict[FileKey, Action] = {}
    named = file_actions(actions)
    if named is None:
        return None
    for key, action in named:
        before = newest.get(key)
        if before is not None and before[0] == action[0] and before[1] != action[1]:
            return None
        if before is None or before[0] < action[0]:
            newest[key] = action
    values = [value if found == kind else None for _, found, value in newest.values()]
    return pa.table(
        {
            kind: _structs(values, _TYPES[kind]),
            "kind": _strings([found for _, found, _ in newest.values()]),
            "path_key": _strings([path for path, _ in newest]),
            "vector_key": _strings([vector for _, vector in newest]),
        }
    )


def _is_file(kind: str, value: Any) -> bool:
    return isinstance(value, dict) and _is_spelled(value, _MEMBER_CHECKS[kind])


def _key_of(value: Mapping[str, Any]) -> FileKey | None:
    path, vector = value.get("path"), value.get("deletionVector")
    if not path or not _PLAIN_PATH.fullmatch(path):
        return None
    try:
        decoded = decode_path(path)
    except CorruptLogError:
        return None
    if vector is None:
        return decoded, ""
    offset = vector.get("offset")
    at = "" if offset is None else f"@{offset}"
    return decoded, f"{vector['storageType']}{vector['pathOrInlineDv']}{at}"


# Arrays of Python values. `pyarrow.array` would import pandas, which takes a quarter of a second.


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if type_ == _TEXT_MAP:
        return _maps(values)
    if pat.is_struct(type_):
        return _structs(values, type_)
    return _strings(values) if pat.is_string(type_) else _numbers(values, type_)


def _strings(values: Iterable[str | None]) -> pa.Array:
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish()


def _numbers(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    given: npt.NDArray[Any] = np.array([value or 0 for value in values], _NUMPY_TYPES[type_])
    stored = np.packbits(given, bitorder="little") if pat.is_boolean(type_) else given
    return pa.Array.from_buffers(type_, len(values), [_validity(values), pa.py_buffer(stored)])


def _maps(values: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    lengths = [len(value) if value else 0 for value in values]
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    items = [item for value in values if value for item in value.items()]
    pairs = pa.StructArray.from_arrays(
        [_strings([name for name, _ in items]), _strings([item for _, item in items])],
        fields=[_TEXT_MAP.key_field, _TEXT_MAP.item_field],
    )
    buffers = [_validity(values), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(_TEXT_MAP, len(values), buffers, children=[pairs])


def _structs(values: Sequence[Mapping[str, Any] | None], type_: pa.StructType) -> pa.Array:
    members = [
        _array([None if value is None else value.get(member.name) for value in values], member.type)
        for member in type_
    ]
    return pa.Array.from_buffers(type_, len(values), [_validity(values)], children=members)


def _validity(values: Sequence[object]) -> pa.Buffer:
    is_given = np.array([value is not None for value in values], np.bool_)
    return pa.py_buffer(np.packbits(is_given, bitorder="little"))
