"""Lists of files: those of a snapshot, and unreferenced ones.

They are made in batches, so that a million files take little memory.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.model.quantities import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakehand.model.snapshot import Snapshot
    from lakehand.rewrite.prepare import Work

_COLUMNS = ["path", "bytes", "rows", "deleted_rows", "modified_at", "partition"]
_BATCH_ROWS = 10_000
_HEADINGS = f"{'size':>10}  {'rows':>12}  {'deleted':>9}  {'modified':<19}"


def file_records(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Return one JSON value per file, smallest first."""
    return _records(snapshot.files.select(_COLUMNS))


def planned_file_records(planned: Work) -> Iterator[dict[str, Any]]:
    """Return one JSON value per file with its reason in the plan, smallest first."""
    return _records(_with_reasons(planned))


def file_lines(snapshot: Snapshot) -> Iterator[str]:
    """Return one line per file, smallest first; the path comes last and is never truncated."""
    yield ""
    yield f"{_HEADINGS}  path"
    for record in file_records(snapshot):
        yield f"{_facts(record)}  {record['path']}"


def planned_file_lines(planned: Work) -> Iterator[str]:
    """Return one line per file with its reason, smallest first."""
    yield ""
    yield f"{_HEADINGS}  {'reason':<19}  path"
    for record in planned_file_records(planned):
        yield f"{_facts(record)}  {record['reason']:<19}  {record['path']}"


def orphan_records(orphans: pa.Table) -> Iterator[dict[str, Any]]:
    """Return one JSON value per unreferenced file, by path."""
    for batch in orphans.to_batches(max_chunksize=_BATCH_ROWS):
        for record in batch.to_pylist():
            yield {**record, "modified_at": record["modified_at"].isoformat()}


def orphan_lines(orphans: pa.Table) -> Iterator[str]:
    """Return one line per unreferenced file, by path."""
    yield ""
    yield f"{'size':>10}  {'age':>10}  {'vacuum':<9}  orphan"
    for record in orphan_records(orphans):
        age = format_duration(timedelta(seconds=record["age_seconds"]))
        due = "due" if record["is_due"] else "too young"
        yield f"{format_bytes(record['bytes']):>10}  {age:>10}  {due:<9}  {record['path']}"


def _with_reasons(planned: Work) -> pa.Table:
    return planned.snapshot.files.select(_COLUMNS).append_column("reason", planned.reasons)


def _records(files: pa.Table) -> Iterator[dict[str, Any]]:
    ordered = files.sort_by([("bytes", "ascending"), ("path", "ascending")])
    for batch in ordered.to_batches(max_chunksize=_BATCH_ROWS):
        for record in batch.to_pylist():
            yield {**record, "modified_at": record["modified_at"].isoformat()}


def _facts(record: dict[str, Any]) -> str:
    rows = "?" if record["rows"] is None else f"{record['rows']:,}"
    modified = record["modified_at"][:19].replace("T", " ")
    size = format_bytes(record["bytes"])
    return f"{size:>10}  {rows:>12}  {record['deleted_rows']:>9,}  {modified}"
