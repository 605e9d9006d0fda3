"""The rows of a table, read from no more files than the predicate needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakehand.expressions.facts import family_of
from lakehand.expressions.predicate import Predicate, parse_predicate
from lakehand.expressions.pruning import may_match
from lakehand.model.snapshot import column_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot

__all__ = ["columns_with_bounds", "scan"]


def scan(
    table: FormatTable,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> pa.RecordBatchReader:
    """Stream the visible rows of a version, under their logical names and current types."""
    snapshot = table.snapshot(version=version, timestamp=timestamp)
    table.require("read", snapshot)
    if where is None:
        chosen = np.arange(snapshot.file_count)
        text = None
    else:
        predicate = parse_predicate(where, snapshot.schema)
        names = columns_with_bounds(predicate, snapshot)
        if names:
            snapshot = table.snapshot(version=snapshot.version, statistics=names)
        chosen = np.flatnonzero(may_match(predicate, snapshot.files))
        text = predicate.text
    inputs = table.data_files(snapshot, chosen.tolist())
    return table.worker(snapshot).read(inputs, columns=columns, where=text)


def columns_with_bounds(predicate: Predicate, snapshot: Snapshot) -> list[str]:
    """Return the columns whose bounds help to decide `predicate`, as `statistics` wants them."""
    return [
        column_text(path)
        for path, type_ in zip(predicate.references, predicate.types, strict=True)
        if path[0] not in snapshot.partition_columns and family_of(type_) is not None
    ]
