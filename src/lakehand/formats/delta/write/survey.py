"""What the footers of chosen files say, as one table for the planner."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import LakehandError
from lakehand.formats.delta.protocol.features import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.write.copier import why_not_of_file
from lakehand.formats.delta.write.file_schema import file_schema
from lakehand.model.file_columns import SURVEY_SCHEMA
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.parquet.calendar import may_contain_old_dates
from lakehand.parquet.copyable import CopyClass, copy_class, empty_file_footer
from lakehand.parquet.footer import (
    RowGroupField,
    fetch_footer,
    field,
    parse_footer,
    row_group_bytes,
)
from lakehand.parquet.leaves import INT96, leaves
from lakehand.parquet.rebase import recoded_calendar_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.write.context import WriteContext
    from lakehand.formats.worker import WriteSpec
    from lakehand.parquet.footer import Footer

_PARALLEL_READS = 16


def survey_files(
    context: WriteContext, paths: Sequence[str], spec: WriteSpec | None = None
) -> pa.Table:
    """Read the footers of `paths` in parallel; `spec` says how new files are to be.

    A file whose footer cannot be read is left out: the task that reads it will say what is wrong.
    """
    new = _new_file_class(context)

    def fetch(path: str) -> tuple[bytes, int] | None:
        store, key = context.store.resolve(path)
        try:
            return fetch_footer(store, key, table=context.store.url)
        except LakehandError:
            return None

    # Threads wait for bytes; taking them apart is work for one.
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        answers = zip(paths, pool.map(fetch, paths), strict=True)
        found = [
            facts
            for path, answer in answers
            if answer and (facts := _read_facts(context, path, answer, new, spec)) is not None
        ]
    return pa.Table.from_pylist(found, schema=SURVEY_SCHEMA)


def _read_facts(
    context: WriteContext,
    path: str,
    answer: tuple[bytes, int],
    new: CopyClass | None,
    spec: WriteSpec | None,
) -> dict[str, Any] | None:
    try:
        footer = parse_footer(answer[0], path=path, file_bytes=answer[1])
        return _facts(context, path, footer, new, spec)
    except LakehandError:
        return None


def _facts(
    context: WriteContext,
    path: str,
    footer: Footer,
    new: CopyClass | None,
    spec: WriteSpec | None,
) -> dict[str, Any]:
    why_not = why_not_of_file(context, footer, spec)
    found = None if why_not else copy_class(footer)
    return {
        "path": path,
        "rows": footer.rows,
        "row_group_bytes": [row_group_bytes(group) for group in footer.row_groups],
        "row_group_rows": [field(group, RowGroupField.ROWS) for group in footer.row_groups],
        "copy_class": None if found is None else _short_name(found),
        "refusal": why_not,
        "joins_recoded": new is not None and found is not None and _joins(found, new),
        **_calendar(footer),
    }


def _calendar(footer: Footer) -> dict[str, Any]:
    columns = leaves(footer.schema)
    has_int96 = any(leaf.physical_type == INT96 for leaf in columns)
    return {
        "calendar": recoded_calendar_name(footer.key_values, has_int96=has_int96),
        "may_have_old_dates": may_contain_old_dates(footer, columns),
    }


def _short_name(found: CopyClass) -> str:
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


def _joins(found: CopyClass, new: CopyClass) -> bool:
    """Compare classes without the codec, which a writer takes from the files that it joins."""
    return (found.leaves, found.field_ids, found.column_orders) == (
        new.leaves,
        new.field_ids,
        new.column_orders,
    )


def _new_file_class(context: WriteContext) -> CopyClass | None:
    """Return the class of rewritten files; None if lakehand cannot write any."""
    identity = ((ROW_ID, ROW_ID_PROPERTY), (ROW_VERSION, ROW_VERSION_PROPERTY))
    extras = [
        (name, context.configuration.get(key, name))
        for name, key in identity
        if context.tracks_rows
    ]
    try:
        schema = file_schema(context.data_fields(), mode=context.mode, extras=extras).arrow
    except LakehandError:
        return None
    return copy_class(empty_file_footer(schema))
