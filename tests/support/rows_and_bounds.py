"""Random rows in files, and the bounds that writers of different care state for them."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", tz="UTC")),
    ]
)

_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_TEXTS = ["", "a", "ab", "b", "x" * 32, "x" * 33, "x" * 32 + "y"]
_FLOATS = [math.nan, math.inf, 0.0, -0.0, -1.5, 2.0]
_MICROSECONDS = [0, 400, 800, 1000, 1500]

integers = st.sampled_from([None, *range(5)])
floats = st.sampled_from([None, *_FLOATS])
texts = st.sampled_from([None, *_TEXTS])
times = st.sampled_from(
    [None, *(_EPOCH + dt.timedelta(microseconds=shift) for shift in _MICROSECONDS)]
)


@st.composite
def files(draw):
    """Return the rows of one file; the partition value is the same in all of them."""
    partition = draw(st.sampled_from(["eu", "us", None]))
    rows = draw(st.lists(st.tuples(integers, floats, texts, times), min_size=1, max_size=3))
    columns = [[partition] * len(rows), *map(list, zip(*rows, strict=True))]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def facts(batches: list[pa.RecordBatch], *, known: list[set[str]]) -> pa.Table:
    """Return the table of files with bounds; `known` says of which columns each file states any."""
    stated = [
        {name: _bounds(batch, name) if name in columns else None for name in "ifst"}
        for batch, columns in zip(batches, known, strict=True)
    ]
    return pa.table(
        {
            "rows": [batch.num_rows for batch in batches],
            "partition": pa.array(
                [{"p": batch["p"][0].as_py()} for batch in batches], pa.struct([SCHEMA.field("p")])
            ),
            "bounds": pa.array(stated, pa.struct([_bounds_field(name) for name in "ifst"])),
        }
    )


def _bounds_field(name: str) -> pa.Field:
    type_ = SCHEMA.field(name).type
    return pa.field(name, pa.struct([("min", type_), ("max", type_), ("nulls", pa.int64())]))


def _bounds(batch: pa.RecordBatch, name: str) -> dict:
    values = [value for value in batch[name].to_pylist() if value is not None]
    nulls = batch.num_rows - len(values)
    if name == "f":
        values = [value for value in values if not math.isnan(value)]
    if not values:
        return {"min": None, "max": None, "nulls": nulls}
    low, high = min(values), max(values)
    if name == "s":  # cut as a careless writer does: the maximum without a mark
        low, high = min(values, key=str.encode)[:32], max(values, key=str.encode)[:32]
    if name == "t":
        low, high = (v.replace(microsecond=v.microsecond // 1000 * 1000) for v in (low, high))
    return {"min": low, "max": high, "nulls": nulls}


def _literal(value: object) -> str:
    if isinstance(value, float):
        return f"double('{value}')"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"timestamp '{value.isoformat()}'"
    return "null" if value is None else str(value)


_VALUES = {"i": integers, "f": floats, "s": texts, "t": times, "p": st.sampled_from(["eu", "us"])}


@st.composite
def _leaf(draw, names):
    name = draw(st.sampled_from(names))
    value = _VALUES[name].map(_literal)
    shape = draw(st.sampled_from(["compare", "mirror", "in", "between", "null"]))
    if shape == "compare":
        return f"{name} {draw(_operators)} {draw(value)}"
    if shape == "mirror":
        return f"{draw(value)} {draw(_operators)} {name}"
    if shape == "in":
        return f"{name} {draw(_maybe_not)} in ({', '.join(draw(st.lists(value, min_size=1)))})"
    if shape == "between":
        return f"{name} {draw(_maybe_not)} between {draw(value)} and {draw(value)}"
    if name == "s" and draw(st.booleans()):
        return f"s {draw(_maybe_not)} like '{draw(st.sampled_from(_PATTERNS))}'"
    return f"{name} is {draw(_maybe_not)} null"


_operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
_maybe_not = st.sampled_from(["", "not"])
_PATTERNS = ["a%", "ab%", "%", "x%", "a_%", "b", "x" * 32 + "y%", "%a"]


def predicates(names: str):
    """Return predicates over the columns `names`."""
    return st.recursive(
        _leaf(names),
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from(["and", "or"]), part).map(lambda t: f"({' '.join(t)})"),
            part.map(lambda text: f"not ({text})"),
        ),
        max_leaves=3,
    )
