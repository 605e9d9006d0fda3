"""Rows of fragments: as readers see them, and as the digest counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.expressions.evaluate import keep_true
from lakehand.formats.lance.files.plain import plain_batch, plain_schema
from lakehand.model.snapshot import ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.expressions.predicate import Predicate

__all__ = ["digested_rows", "digested_schema", "read_rows"]

_LANCE_ROW_ID = "_rowid"
#: Payloads of blob columns, which readers otherwise get as places in files that change.
_WITH_PAYLOADS = "all_binary"
_GATHERED_ROWS = 16 * 1024


def read_rows(
    dataset: Any,
    fragments: Sequence[Any],
    *,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    row_identity: bool = False,
) -> pa.RecordBatchReader:
    """Stream the visible rows of `fragments`, in their order."""
    extra = [name for name in predicate.columns if name not in columns] if predicate else []
    scanner = dataset.scanner(
        columns=[*columns, *extra], fragments=list(fragments), with_row_id=row_identity
    )
    schema = pa.schema([scanner.projected_schema.field(name) for name in columns])
    if row_identity:
        schema = schema.append(pa.field(ROW_ID, pa.uint64()))
    batches = _selected(scanner, schema, predicate) if fragments else iter(())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _selected(
    scanner: Any, schema: pa.Schema, predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    names = [_LANCE_ROW_ID if name == ROW_ID else name for name in schema.names]
    for batch in scanner.to_batches():
        wanted = batch if predicate is None else keep_true(predicate, batch)
        if wanted.num_rows:
            columns = [wanted.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def digested_schema(dataset: Any) -> pa.Schema:
    """Return the columns of `digested_rows`: all of the table's, and ids that rows keep."""
    return plain_schema(_counting_scanner(dataset, None).projected_schema)


def digested_rows(dataset: Any, fragments: Sequence[Any] | None) -> Iterator[pa.RecordBatch]:
    """Stream the visible rows of `fragments`, all of the dataset's if None, in plain types."""
    if fragments is not None and not fragments:
        return
    for batch in _gathered(_counting_scanner(dataset, fragments).to_batches()):
        yield plain_batch(batch)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: fragments of a few rows come one by one."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= _GATHERED_ROWS:
            yield pa.concat_batches(held)
            held, count = [], 0
    if held:
        yield pa.concat_batches(held)


def _counting_scanner(dataset: Any, fragments: Sequence[Any] | None) -> Any:
    return dataset.scanner(
        columns=dataset.schema.names,
        fragments=None if fragments is None else list(fragments),
        with_row_id=dataset.has_stable_row_ids,
        blob_handling=_WITH_PAYLOADS,
        scan_in_order=False,
    )
