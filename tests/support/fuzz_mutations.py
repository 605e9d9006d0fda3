"""Ways to damage one file of a table: by what its JSON says, by its structure, by its bytes."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

#: JSON as it is written, because some of it cannot be made of Python values.
NASTY = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "NaN",
    "-Infinity",
    "1e400",
    "1000000000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "7" * 5_000,
    '""',
    '"x"',
    '"7"',
    '"NaN"',
    '"1e18"',
    '"' + "7" * 5_000 + '"',
    '"\\u0000"',
    '"\\ud800"',
    '"../../outside"',
    '"/etc/passwd"',
    '"s3://elsewhere/x"',
    '"%zz"',
    '"%ff"',
    '"%00"',
    '"a\\nb"',
    '"{}"',
    '"[]"',
    '"decimal(99,5)"',
    "[]",
    "{}",
    '["x"]',
    "[null]",
    "[[]]",
    '{"x":1}',
    '{"x":null}',
    "[" * 3_000 + "]" * 3_000,
    '{"a":' * 3_000 + "1" + "}" * 3_000,
)
_MARK = "@nasty@"
#: Members that hold JSON as a string.
_INNER = frozenset({"schemaString", "stats", "configuration"})
_MAX_SHOWN = 60


@dataclass(frozen=True)
class Mutation:
    """New content for one file of a table; None: a directory takes its place."""

    #: Relative to the table's root.
    path: str
    what: str
    data: bytes | None

    def apply(self, table: Path) -> None:
        target = table / self.path
        target.unlink()
        if self.data is None:
            target.mkdir()
        else:
            target.write_bytes(self.data)


def _shown(raw: str) -> str:
    return raw if len(raw) < _MAX_SHOWN else f"{raw[:20]}... ({len(raw)} characters)"


# JSON: every member of every action


def json_mutations(
    path: str, data: bytes, seen: set[tuple[Any, ...]] | None = None
) -> Iterator[Mutation]:
    """Yield the file with every member of every kind of its lines replaced, absent or doubled.

    Members that were `seen` before, in this file or in others, are left alone.
    """
    lines = data.decode().split("\n")
    seen = set() if seen is None else seen
    for number in reversed(range(len(lines))):
        document = json.loads(lines[number] or "{}")
        for place in _places(document):
            shape = tuple("*" if isinstance(step, int) else step for step in place)
            if shape in seen:
                continue
            seen.add(shape)
            for what, line in _changed(lines[number], place):
                text = "\n".join([*lines[:number], line, *lines[number + 1 :]])
                name = f"line {number + 1}, {'.'.join(map(str, place))} {what}"
                yield Mutation(path, name, text.encode("utf-8", "surrogatepass"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value within a document; `"json"` leads into a string of JSON."""
    if path:
        yield path
    if isinstance(value, str) and path and path[-1] in _INNER and value.startswith("{"):
        yield from _places(json.loads(value), (*path, "json"))
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield from _places(item, (*path, key))


def _changed(line: str, place: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for raw in NASTY:
        yield f"= {_shown(raw)}", with_value(line, place, raw)
    if place[-1] != "json" and not isinstance(place[-1], int):
        yield "is absent", _rebuilt(line, place, lambda parent, key: parent.pop(key))
        yield "comes twice", with_value(line, place, f'1,{json.dumps(place[-1])}:"x"')


def with_value(line: str, place: Sequence[Any], raw: str) -> str:
    """Return a line of JSON in which the value at `place` is `raw`, whatever that is."""
    inner = place.index("json") if "json" in place else None
    if inner is not None:
        outer, rest = place[:inner], place[inner + 1 :]
        text = _at(json.loads(line), outer)
        changed = with_value(text, rest, raw) if rest else raw
        return with_value(line, outer, json.dumps(changed))

    def put(parent: Any, key: Any) -> None:
        parent[key] = _MARK

    return _rebuilt(line, place, put).replace(json.dumps(_MARK), raw, 1)


def _rebuilt(line: str, place: Sequence[Any], change: Callable[[Any, Any], Any]) -> str:
    if "json" in place:
        inner = place.index("json")
        outer, rest = place[:inner], place[inner + 1 :]
        changed = _rebuilt(_at(json.loads(line), outer), rest, change)
        return with_value(line, outer, json.dumps(changed))
    document = json.loads(line)
    change(_at(document, place[:-1]), place[-1])
    return json.dumps(document, separators=(",", ":"))


def _at(value: Any, place: Sequence[Any]) -> Any:
    for step in place:
        value = value[step]
    return value


# Text: what is wrong with a file of lines as such


def text_mutations(path: str, data: bytes) -> Iterator[Mutation]:
    lines = data.rstrip(b"\n").split(b"\n")
    last, middle = lines[-1], len(data) // 2
    changes = {
        "is empty": b"",
        "is blank": b"\n \n",
        "begins with a BOM": b"\xef\xbb\xbf" + data,
        "is UTF-16": data.decode().encode("utf-16"),
        "has CRLF": data.replace(b"\n", b"\r\n"),
        "has CR alone": data.replace(b"\n", b"\r"),
        "ends with NULs": data + bytes(512),
        "is all NULs": bytes(len(data)),
        "holds NUL": data[:middle] + b"\0" + data[middle:],
        "holds a byte that is no UTF-8": data[:middle] + b"\xff" + data[middle:],
        "is cut within its last line": data[: -len(last) // 2 - 1],
        "is cut after its first line": lines[0] + b"\n",
        "lacks its first line": b"\n".join(lines[1:]),
        "has each line twice": b"\n".join([*lines, *lines]),
        "has its lines in the reverse order": b"\n".join(reversed(lines)),
        "has an array of its lines": b"[" + b",".join(lines) + b"]",
        "has all in one line": b"".join(lines),
        "has a line that is a number": data + b"\n7\n",
        "has a line that is null": data + b"\nnull\n",
        "has a line that is an array": data + b"\n[]\n",
        "has an empty object": data + b"\n{}\n",
        "has an unknown action": data + b'\n{"unheard":{"of":1}}\n',
        "has actions that are null": data + b'\n{"add":null,"metaData":null,"txn":null}\n',
        "has actions that are strings": data + b'\n{"add":"x","protocol":"x","txn":"x"}\n',
        "has actions that are arrays": data + b'\n{"add":[],"metaData":[],"domainMetadata":[1]}\n',
        "has empty actions": data + b'\n{"add":{},"remove":{}}\n{"txn":{}}\n{"domainMetadata":{}}',
        "has a very long line": data + b'\n{"x":"' + b"y" * 2**21 + b'"}\n',
        "is followed by garbage": data + b"\n}}}garbage{{{",
    }
    for what, changed in changes.items():
        yield Mutation(path, what, changed)
    yield Mutation(path, "is a directory", None)


# Parquet: columns of other types, rows that lack what they need


def parquet_mutations(path: str, data: bytes) -> Iterator[Mutation]:
    """Yield a checkpoint, or a part of one, whose columns or rows are not what they should be."""
    table = pq.read_table(pa.BufferReader(data))
    for name in table.column_names:
        column, rest = table[name], table.drop_columns([name])
        yield _parquet(path, f"lacks {name}", rest)
        for type_ in (pa.string(), pa.int64(), pa.list_(pa.string())):
            values = pa.nulls(len(column), type_)
            yield _parquet(path, f"{name} is all null, {type_}", rest.append_column(name, values))
        texts = pa.array(["x" if item.is_valid else None for item in column], pa.string())
        yield _parquet(path, f"{name} is a string", rest.append_column(name, texts))
        for what, changed in _changed_members(column.combine_chunks()):
            yield _parquet(path, f"{name}.{what}", rest.append_column(name, changed))
    yield _parquet(path, "has each row twice", pa.concat_tables([table, table]))
    yield _parquet(path, "has no rows", table.slice(0, 0))
    yield _parquet(path, "lacks its first row", table.slice(1))
    yield _parquet(path, "is of another table", pa.table({"id": [1, 2, 3]}))


def _changed_members(column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if not pa.types.is_struct(column.type):
        return
    members = {field.name: column.field(i) for i, field in enumerate(column.type)}
    is_null = column.is_null()

    def packed(changed: dict[str, pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(list(changed.values()), list(changed), mask=is_null)

    for name, values in members.items():
        rest = {other: array for other, array in members.items() if other != name}
        if rest:
            yield f"{name} is absent", packed(rest)
        count = len(values)
        yield f"{name} is null", packed({**rest, name: pa.nulls(count, values.type)})
        yield f"{name} is a string", packed({**rest, name: pa.array(["x"] * count)})
        yield f"{name} is a number", packed({**rest, name: pa.array([-(2**63)] * count)})
        yield f"{name} is a double", packed({**rest, name: pa.array([float("nan")] * count)})
        yield f"{name} is a list", packed({**rest, name: pa.array([["x"]] * count)})
        yield f"{name} is bytes", packed({**rest, name: pa.array([b"\xff\x00"] * count)})
        for what, changed in _changed_members(values):
            yield f"{name}.{what}", packed({**rest, name: changed})


def _parquet(path: str, what: str, table: pa.Table) -> Mutation:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return Mutation(path, what, sink.getvalue())


# Bytes: what a disk or a cable does


def random_mutation(path: str, data: bytes, seed: random.Random) -> Mutation:
    """Return the file with some bytes flipped, overwritten, cut out, doubled or swapped."""
    if path.endswith(".json") and seed.random() < 0.5:
        return _random_value(path, data, seed)
    changed = bytearray(data)
    start = seed.randrange(max(len(data), 1))
    length = min(seed.choice((1, 1, 2, 4, 16, 64, 256)), len(data) - start)
    match seed.choice(("flip", "flip", "overwrite", "cut", "truncate", "double", "swap", "zero")):
        case "flip":
            bit = seed.randrange(8)
            changed[start : start + 1] = bytes(byte ^ 1 << bit for byte in data[start : start + 1])
            what = f"bit {bit} of byte {start} flipped"
        case "overwrite":
            changed[start : start + length] = seed.randbytes(length)
            what = f"{length} bytes from {start} on overwritten"
        case "cut":
            del changed[start : start + length]
            what = f"{length} bytes from {start} on cut out"
        case "truncate":
            del changed[start:]
            what = f"cut off after {start} bytes"
        case "double":
            changed[start:start] = changed[start : start + length]
            what = f"{length} bytes from {start} on come twice"
        case "swap":
            other = seed.randrange(max(len(data), 1))
            changed[start : start + 1], changed[other : other + 1] = (
                data[other : other + 1],
                data[start : start + 1],
            )
            what = f"bytes {start} and {other} swapped"
        case _:
            changed[start : start + length] = bytes(length)
            what = f"{length} bytes from {start} on are zero"
    return Mutation(path, what, bytes(changed))


def _random_value(path: str, data: bytes, seed: random.Random) -> Mutation:
    """Return lines of JSON with one value that is another of the same file, or a nasty one."""
    lines = data.decode().rstrip("\n").split("\n")
    number = seed.randrange(len(lines))
    place = seed.choice(list(_places(json.loads(lines[number]))))
    donor = json.loads(seed.choice(lines))
    values = [_value_at(donor, other) for other in _places(donor)]
    raw = json.dumps(seed.choice(values)) if seed.random() < 0.5 else seed.choice(NASTY)
    lines[number] = with_value(lines[number], place, raw)
    name = f"line {number + 1}, {'.'.join(map(str, place))} = {_shown(raw)}"
    return Mutation(path, name, "\n".join([*lines, ""]).encode("utf-8", "surrogatepass"))


def _value_at(value: Any, place: Sequence[Any]) -> Any:
    for step in place:
        value = json.loads(value) if step == "json" else value[step]
    return value
