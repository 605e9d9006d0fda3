"""Deduplications whose tasks run in their own process, and a model of what they must leave."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from lakehand.rows.deduplicate import DuplicateRequest, deduplicate
from lakehand.rows.delete import delete
from lakehand.settings import Settings
from support.compactions import open_table, tasks_inline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from lakehand.model.reports import DeduplicationReport, DeletionReport
    from lakehand.observe import OnProgress, Progress

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("value", pa.int64())])
#: What tables are made with so that rows go by copies, or by vectors.
PROPERTIES = {
    "copies": {"delta.enableDeletionVectors": "false"},
    "vectors": {"delta.enableDeletionVectors": "true"},
}


def deduplicate_inline(
    path: Path | str,
    *,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    storage_options: dict[str, str] | None = None,
    takeover_after: str = "2m",
    settings: dict[str, Any] | None = None,
    **request: Any,
) -> DeduplicationReport:
    """Deduplicate the table at `path`."""
    options = {"engine": "local", "takeover_after": takeover_after, **(settings or {})}
    with tasks_inline():
        return deduplicate(
            open_table(str(path), storage_options),
            settings=Settings(options, environment={}),
            request=DuplicateRequest(**request),
            dry_run=dry_run,
            on_progress=on_progress,
        )


def delete_inline(path: Path | str, where: str, **options: Any) -> DeletionReport:
    """Delete rows of the table at `path`."""
    chosen = Settings({"engine": "local"}, environment={})
    with tasks_inline():
        return delete(open_table(str(path)), settings=chosen, where=where, **options)


def rows(*values: tuple[int | None, ...]) -> pa.Table:
    columns = zip(*values, strict=True) if values else ((), (), ())
    return pa.table([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA)


def append(path: Path | str, data: pa.Table, **options: Any) -> None:
    """Add one file, and one version."""
    write_deltalake(str(path), data, mode="append", **options)


def contents(path: Path | str) -> list[tuple[Any, ...]]:
    """Return the rows that lakehand reads, sorted."""
    import lakehand

    table = lakehand.open_table(path).to_arrow()
    return in_order(zip(*(column.to_pylist() for column in table.columns), strict=True))


def in_order(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


def kept(
    batches: Sequence[Sequence[tuple[Any, ...]]], *, keep: str, order: int = 1
) -> list[tuple[Any, ...]]:
    """Return what is left of rows (key first) that came one batch after the other."""
    left: dict[Any, tuple[Any, ...]] = {}
    for row in (row for batch in batches for row in batch):
        if row[0] not in left or _wins(row, left[row[0]], keep=keep, order=order):
            left[row[0]] = row
    return in_order(left.values())


def _wins(row: tuple[Any, ...], other: tuple[Any, ...], *, keep: str, order: int) -> bool:
    """Say whether a row is kept rather than one that came before."""
    if keep != "latest":
        return keep == "last"
    ours, theirs = row[order], other[order]
    return theirs is None if ours is None else theirs is None or ours >= theirs


def extra_copies(batches: Sequence[Sequence[tuple[Any, ...]]]) -> dict[int, int]:
    """Return how many keys have so many rows too many."""
    counts = Counter(row[0] for batch in batches for row in batch)
    return dict(Counter(count - 1 for count in counts.values() if count > 1))


def once_at(phase: str, action: Callable[[], None]) -> OnProgress:
    """Do something when the work first reaches a phase."""
    done = False

    def tell(progress: Progress) -> None:
        nonlocal done
        if progress.phase == phase and not done:
            done = True
            action()

    return tell
