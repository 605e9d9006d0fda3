"""What a table holds at one version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

#: Names under which a reader hands out the identity of a row, where the table tracks it.
ROW_ID = "__lakehand_row_id"
ROW_VERSION = "__lakehand_row_version"

#: Names under which a reader hands out where a row lies: the number of its file among those that
#: are read, and its position there, deleted rows counted.
FILE_NUMBER = "__lakehand_file"
POSITION = "__lakehand_position"

#: Marks a column, in the metadata of its field, whose texts are equal or not by a collation.
COLLATED = b"lakehand.collated"
# In a path of names, a dot leads into a struct and backticks hold a name together: also one with
# spaces or commas, because orders are read from texts.
_SPECIAL = re.compile(r"[\s,.`]")


def column_text(path: Sequence[str]) -> str:
    """Return the one spelling of a column, or of a member of a struct, by its path.

    >>> column_text(["point", "x"]), column_text(["point.x"]), column_text(["unit price"])
    ('point.x', '`point.x`', '`unit price`')
    """
    return ".".join(_quoted(name) if _SPECIAL.search(name) else name for name in path)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A table at one version. Its files are one Arrow table and never a list of objects."""

    #: URL of the table.
    table: str
    version: int
    #: When this version was committed (aware, UTC).
    at: datetime
    #: Logical columns, partition columns included, in the table's order.
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    #: One row a live file: FILE_COLUMNS, then `partition: struct`, `native: struct` and, if asked
    #: for, `bounds: struct<column: struct<min, max, nulls>>`. `rows` counts physical rows and is
    #: null where the table does not say; `deleted_rows` is how many of them are no longer visible.
    files: pa.Table
    #: Properties of the table, as written.
    properties: Mapping[str, str]
    #: What only the table's format understands.
    native: Any
    #: What tells this table from one that was created later at the same place; None: nothing does.
    table_id: str | None = None
    #: Fingerprint of what else the format asks of new files: equal where files written for one
    #: snapshot fit the other, as far as properties and columns do not say so already.
    rules: str = ""
    #: Newest checkpoint that this snapshot was built from; None where the format or table has none.
    checkpoint_version: int | None = None

    @property
    def file_count(self) -> int:
        return int(self.files.num_rows)

    @property
    def total_bytes(self) -> int:
        import pyarrow.compute as pc  # takes long, and tasks need it only where they decode

        return int(pc.sum(self.files["bytes"]).as_py() or 0)
