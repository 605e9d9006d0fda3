"""Upserts on the session of a runner's host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.rows import upsert as upserts
from lakehand.table import open_table
from support.deduplications import rows

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.engine.spark import SparkRunner


def upsert(runner: SparkRunner, place: Path, given: list[tuple[int, ...]]) -> dict[str, Any]:
    """Bring rows in by id, in tasks of the host's session; return the report as JSON."""
    # However small the table is.
    upserts.INLINE_BYTES = -1
    table = open_table(place, spark=runner._session())
    return table.upsert(rows(*given), key=["id"]).to_json()
