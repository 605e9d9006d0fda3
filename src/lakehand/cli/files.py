"""The files of a snapshot, one by one, for `--files`. Batches keep a million of them cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.model.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.model.snapshot import Snapshot

_COLUMNS = ["path", "bytes", "rows", "deleted_rows", "modified_at", "partition"]
_BATCH_ROWS = 10_000


def file_records(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Return one plain value a file, smallest first."""
    files = snapshot.files.select(_COLUMNS).sort_by([("bytes", "ascending"), ("path", "ascending")])
    for batch in files.to_batches(max_chunksize=_BATCH_ROWS):
        for record in batch.to_pylist():
            yield {**record, "modified_at": record["modified_at"].isoformat()}


def file_lines(snapshot: Snapshot) -> Iterator[str]:
    """Return one line a file, smallest first; the path comes last and is never cut."""
    yield ""
    yield f"{'size':>10}  {'rows':>12}  {'deleted':>9}  {'modified':<19}  path"
    for record in file_records(snapshot):
        rows = "?" if record["rows"] is None else f"{record['rows']:,}"
        modified = record["modified_at"][:19].replace("T", " ")
        size = format_bytes(record["bytes"])
        yield f"{size:>10}  {rows:>12}  {record['deleted_rows']:>9,}  {modified}  {record['path']}"
