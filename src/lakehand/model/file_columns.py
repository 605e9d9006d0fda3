"""Arrow schemas of file metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Columns of the `files` table of every snapshot. `partition` and `native` are structs whose
#: members depend on the table and its format; `bounds` is present only if requested.
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
        # One entry per row group.
        ("row_group_bytes", pa.list_(pa.int64())),
        ("row_group_rows", pa.list_(pa.int64())),
        # Files of one class may be concatenated byte for byte; null if the file must not be copied.
        ("copy_class", pa.string()),
        # Why the file must not be copied.
        ("refusal", pa.string()),
        # Whether re-encoded rows may share an output file with copied row groups of this file.
        ("joins_recoded", pa.bool_()),
        # Calendar in which readers interpret the file's dates; null if not checked.
        ("calendar", pa.string()),
        # Whether dates may be so old that the calendar makes a difference.
        ("may_have_old_dates", pa.bool_()),
    ]
)
