"""What the footers of chosen files say, as one table for the planner."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import LakehandError
from lakehand.formats.delta.files.copier import why_not_of_file
from lakehand.model.survey import SURVEY_SCHEMA
from lakehand.parquet.copyable import copy_class
from lakehand.parquet.footer import RowGroupField, field, read_footer, row_group_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.files.writer import WriteContext
    from lakehand.parquet.footer import Footer

__all__ = ["survey_files"]

_PARALLEL_READS = 16


def survey_files(context: WriteContext, paths: Sequence[str]) -> pa.Table:
    """Read the footers of `paths` in parallel.

    A file whose footer cannot be read is left out: the task that reads it will say what is wrong.
    """

    def read(path: str) -> dict[str, Any] | None:
        store, key = context.store.resolve(path)
        try:
            footer = read_footer(store, key, table=context.store.url)
        except LakehandError:
            return None
        return _facts(context, path, footer)

    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = [facts for facts in pool.map(read, paths) if facts is not None]
    return pa.Table.from_pylist(found, schema=SURVEY_SCHEMA)


def _facts(context: WriteContext, path: str, footer: Footer) -> dict[str, Any]:
    name, why_not = _copy_class(context, footer)
    return {
        "path": path,
        "rows": footer.rows,
        "row_group_bytes": [row_group_bytes(group) for group in footer.row_groups],
        "row_group_rows": [field(group, RowGroupField.ROWS) for group in footer.row_groups],
        "copy_class": name,
        "refusal": why_not,
    }


def _copy_class(context: WriteContext, footer: Footer) -> tuple[str | None, str | None]:
    """Return a short name of the file's class, or why its row groups must not be moved."""
    why_not = why_not_of_file(context, footer)
    if why_not is not None:
        return None, why_not
    return hashlib.blake2b(repr(copy_class(footer)).encode(), digest_size=8).hexdigest(), None
