"""Excludes files by predicate, filter or recent writes: each function returns a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import PredicateError, ValidationError
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lakehand.expressions.predicate import Predicate
    from lakehand.planning.footer_survey import Flags

    FileFilter = Callable[[pa.Table], pa.Array | pa.ChunkedArray | np.ndarray]


def files_outside_predicate(
    predicate: Predicate, files: pa.Table, *, verdicts: pa.Array | None = None
) -> Flags:
    """Return for each file whether `predicate` matches none of its rows.

    Raises PredicateError if it matches only some rows of a file, or if that is not known: a file is
    rewritten as a whole or not at all. `files` needs bounds of the predicate's columns, unless
    there are `verdicts` from the rows themselves.
    """
    from lakehand.expressions.pruning import ALL, UNKNOWN, decide  # a slow import

    if verdicts is None:
        verdicts = decide(predicate, files)
    verdicts = verdicts.to_numpy(zero_copy_only=False)
    unknown = np.flatnonzero(verdicts == UNKNOWN)
    if len(unknown):
        raise _undecided(predicate, files, unknown)
    outside: Flags = verdicts != ALL
    return outside


def _undecided(predicate: Predicate, files: pa.Table, unknown: np.ndarray) -> PredicateError:
    example = files["path"][int(unknown[0])].as_py()
    partition = files.schema.field("partition").type if "partition" in files.schema.names else ()
    names = [member.name for member in partition]
    hint = f"use the partition columns ({', '.join(names)})" if names else "remove the predicate"
    others = ", ".join(name for name in predicate.columns if name not in names)
    return PredicateError(
        f"the predicate {predicate.shown!r} cannot be evaluated by statistics for "
        f"{format_count(len(unknown), 'file')}: for example, {example} may have both matching and "
        f"other rows by {others or 'its columns'}, and files are rewritten as a whole",
        field="where",
        value=predicate.shown,
        hint=f"{hint}, or select whole files in Python with file_filter",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class QuietRule:
    """Which files an automatic run leaves to other writers.

    A rewrite never conflicts with appends. A concurrent delete, update or merge would fail because
    of it, as with delta-spark, so partitions with such writes are skipped, but not forever.
    """

    #: Files that were written later are skipped.
    written_after: datetime
    #: A small file that was written earlier has waited long enough.
    waiting_since: datetime
    small_file_bytes: float
    #: Whether rows were deleted, updated or overwritten since `written_after`.
    rows_change: bool

    def left_alone(self, files: pa.Table, partition_keys: pa.Array) -> Flags:
        """Return for each file whether it is skipped."""
        recent = _compared(pc.greater, files, self.written_after)
        if not self.rows_change:
            return recent
        small = pc.less(files["bytes"], self.small_file_bytes).to_numpy()
        waiting = small & _compared(pc.less, files, self.waiting_since)
        return recent | (_shared(partition_keys, recent) & ~_shared(partition_keys, waiting))


def _compared(compare: Callable[..., pa.ChunkedArray], files: pa.Table, at: datetime) -> Flags:
    written = files["modified_at"]
    flags: Flags = compare(written, pa.scalar(at, written.type)).to_numpy().astype(np.bool_)
    return flags


def _shared(partition_keys: pa.Array, chosen: Flags) -> Flags:
    """Return for each file whether its partition has a marked file."""
    found = pc.is_in(partition_keys, partition_keys.filter(pa.array(chosen)))
    mask: Flags = found.to_numpy(zero_copy_only=False)
    return mask


def files_outside_filter(file_filter: FileFilter, files: pa.Table) -> Flags:
    """Return for each file whether `file_filter`, a function of the table of files, excludes it.

    The function returns one boolean per file; null counts as false.
    """
    column = _as_column(file_filter(files))
    if not pa.types.is_boolean(column.type) or len(column) != files.num_rows:
        message = f"file_filter returned {len(column)} values of type {column.type} "
        raise _bad_answer(message + f"for {format_count(files.num_rows, 'file')}")
    kept: Flags = column.fill_null(False).to_numpy().astype(np.bool_)  # noqa: FBT003
    return ~kept


def _as_column(answer: object) -> pa.ChunkedArray:
    if isinstance(answer, pa.ChunkedArray):
        return answer
    try:
        return pa.chunked_array([answer])
    except (pa.ArrowException, TypeError) as error:
        raise _bad_answer(f"file_filter returned a {type(answer).__name__}") from error


def _bad_answer(message: str) -> ValidationError:
    hint = "return one boolean per file, for example pc.less(files['bytes'], 1000)"
    return ValidationError(message, field="file_filter", hint=hint)
