"""Which files still hold columns that the table has dropped: readers do not see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import LakehandError
from lakehand.formats.delta.files.projection import project_rows
from lakehand.formats.delta.files.row_identity import RowIdentity
from lakehand.parquet.columns import file_columns
from lakehand.parquet.reading import open_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.files.context import WriteContext

__all__ = ["hold_dropped_columns"]

_PARALLEL_READS = 16


def hold_dropped_columns(context: WriteContext, paths: Sequence[str]) -> pa.BooleanArray:
    """Say of each file whether it stores a column, or a part of one, that no reader asks for."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = list(pool.map(lambda path: _holds_more(context, path), paths))
    return pa.array(found, pa.bool_())


def _holds_more(context: WriteContext, path: str) -> bool:
    """Compare what a file stores with what is read of it; a file that cannot be read may."""
    try:
        file = open_file(context.store, path)
        if not file.rows:
            return False
        stored = file_columns(file.schema)
        wanted = project_rows(context.schema.fields, stored, context.mode).leaves
    except LakehandError:
        return True
    identity = RowIdentity.of({}, context.configuration, stored).leaves
    everything = {leaf for column in stored for leaf in column.leaves}
    return not everything <= {*wanted, *identity}
