"""A table at one version."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

#: Names of the columns in which a reader returns row tracking ids, if the table has them.
ROW_ID = "__lakehand_row_id"
ROW_VERSION = "__lakehand_row_version"

#: Names of the columns in which a reader returns the location of a row: the index of its file among
#: the files read, and its position in it, counting deleted rows.
FILE_NUMBER = "__lakehand_file"
POSITION = "__lakehand_position"

#: Key in the field metadata of string columns that are compared by a collation.
COLLATED = b"lakehand.collated"
# In a column path, a dot separates struct fields, and backticks quote a name: also one with spaces
# or commas, because sort orders are parsed from strings.
_SPECIAL = re.compile(r"[\s,.`]")


def quoted_column(path: Sequence[str]) -> str:
    """Return the canonical spelling of a column, or of a struct field, by its path.

    >>> quoted_column(["point", "x"]), quoted_column(["point.x"]), quoted_column(["unit price"])
    ('point.x', '`point.x`', '`unit price`')
    """
    return ".".join(_quoted(name) if _SPECIAL.search(name) else name for name in path)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A table at one version. Its files are one Arrow table, not a list of objects."""

    #: URL of the table.
    table: str
    version: int
    #: When this version was committed (timezone-aware, UTC).
    at: datetime
    #: Logical columns, including partition columns, in table order.
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    #: One row per live file: FILE_COLUMNS, then `partition: struct`, `native: struct` and, if
    #: requested, `bounds: struct<column: struct<min, max, nulls>>`. `rows` counts physical rows and
    #: is null if the table does not record it; `deleted_rows` is how many of them are deleted.
    files: pa.Table
    #: Table properties, as written.
    properties: Mapping[str, str]
    #: State that only the table's format interprets.
    native: Any
    #: Distinguishes this table from one created later at the same location; None if not possible.
    table_id: str | None = None
    #: Fingerprint of the format's other requirements for new files: if equal, files written for one
    #: snapshot are valid in the other, as far as properties and schema are equal, too.
    rules: str = ""
    #: Latest checkpoint that this snapshot was read from; None if there is none.
    checkpoint_version: int | None = None
    #: What else DESCRIBE DETAIL shows, by the names of the format.
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_count(self) -> int:
        return int(self.files.num_rows)

    @property
    def total_bytes(self) -> int:
        import pyarrow.compute as pc  # a slow import, which tasks need only if they decode

        return int(pc.sum(self.files["bytes"]).as_py() or 0)
