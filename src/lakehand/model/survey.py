"""What a look into files says that their table does not: one row a file."""

from __future__ import annotations

import pyarrow as pa

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
