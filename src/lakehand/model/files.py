"""What is known of the files of a table, as Arrow columns."""

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


SURVEY_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        # One entry a row group.
        ("row_group_bytes", pa.list_(pa.int64())),
        ("row_group_rows", pa.list_(pa.int64())),
        # Files of one class may share a file byte for byte; null if the file must not be copied.
        ("copy_class", pa.string()),
        # Why the file must not be copied.
        ("refusal", pa.string()),
        # Whether rows that are written anew could be row groups of one file with those of this one.
        ("joins_recoded", pa.bool_()),
        # By which calendar readers take dates of the file; null if nobody has looked.
        ("calendar", pa.string()),
        # Whether dates may be so old that this makes a difference.
        ("may_be_ancient", pa.bool_()),
    ]
)
