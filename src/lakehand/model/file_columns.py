"""What is known of every file of a table, as types of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE_COLUMNS"]

#: Columns that the `files` table of every snapshot has. `partition` and `native` are structs whose
#: members depend on the table and on its format; `bounds` is there only if it
#: was asked for.
FILE_COLUMNS: Mapping[str, pa.DataType] = {
    "path": pa.string(),
    "bytes": pa.int64(),
    "rows": pa.int64(),
    "deleted_rows": pa.int64(),
    "modified_at": pa.timestamp("ms", tz="UTC"),
}
