"""Upserts of small tables, and a model of what they must leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

import lakehand
from support.deduplications import SCHEMA, in_order, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lakehand.model.reports import UpsertReport

Row = tuple[Any, ...]


def make(path: Path | str, *batches: Sequence[Row], **properties: str) -> Path | str:
    """Make a table of (id, at, value) with a file for each batch."""
    table = lakehand.create_table(path, SCHEMA, properties=properties, engine="local")
    for batch in batches:
        table.append(rows(*batch))
    return path


def upsert(path: Path | str, data: Any, **options: Any) -> UpsertReport:
    """Upsert by `id`, unless told otherwise; rows may be given as tuples."""
    given = data if isinstance(data, pa.Table) else rows(*data)
    options = {"key": ["id"], "takeover_after": "0s", **options}
    return lakehand.open_table(path, engine="local").upsert(given, **options)


def changelog(*changes: tuple[str | None, Row]) -> pa.Table:
    """Return rows with what happened to them."""
    words = pa.array([word for word, _ in changes], pa.string())
    return rows(*(row for _, row in changes)).append_column("_op", words)


def upserted(before: Iterable[Row], given: Iterable[Row]) -> list[Row]:
    """Return what rows (key first, one a key) leave of others."""
    given = list(given)
    keys = {row[0] for row in given}
    return in_order([*(row for row in before if row[0] not in keys), *given])


def fed_changes(path: Path | str, version: int) -> list[tuple[Any, ...]]:
    """Return what delta-rs reads of one version of the change feed: kind first, then the row."""
    feed = DeltaTable(str(path)).load_cdf(starting_version=version, ending_version=version)
    found = feed.read_all()
    names = ("_change_type", *SCHEMA.names)
    return in_order(zip(*(found[name].to_pylist() for name in names), strict=True))
