"""Which files an overwrite takes out of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakehand.errors import ReplanError
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.scan import columns_with_bounds
from lakehand.planning.restriction import files_outside_predicate

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.work import DataFile

__all__ = ["replaced_files"]


def replaced_files(
    table: FormatTable, where: str | None, *, rules: str
) -> tuple[int, tuple[DataFile, ...]]:
    """Return the newest version and those of its files whose rows all fulfil `where`.

    PredicateError if a file may hold rows on both sides of it, ReplanError if the table asks for
    other files and rows by now than `rules` said.
    """
    snapshot = table.snapshot()
    if snapshot.rules != rules:
        raise ReplanError(
            f"version {snapshot.version} of {snapshot.table} asks for other rows or files than"
            " those that were written to overwrite it",
            table=snapshot.table,
            actual_version=snapshot.version,
            hint="nothing was written; try again on the newest version",
        )
    if where is None:
        chosen = np.arange(snapshot.file_count)
    else:
        predicate = parse_predicate(where, snapshot.schema)
        names = columns_with_bounds(predicate, snapshot)
        if names:
            snapshot = table.snapshot(version=snapshot.version, statistics=names)
        verdicts = table.read_verdicts(snapshot, predicate)
        outside = files_outside_predicate(predicate, snapshot.files, verdicts=verdicts)
        chosen = np.flatnonzero(~outside)
    return snapshot.version, table.data_files(snapshot, chosen.tolist())
