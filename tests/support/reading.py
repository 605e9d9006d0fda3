"""Data files made by hand, and a worker that reads them as files of a table."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.formats.delta.protocol.schema import parse_schema
from lakehand.formats.delta.worker import DeltaWorker
from lakehand.formats.delta.write.context import WriteContext
from lakehand.model.work import DataFile
from lakehand.storage import MemoryStore

if TYPE_CHECKING:
    from lakehand.storage import Store

_names = itertools.count()


def fresh_store() -> MemoryStore:
    return MemoryStore(f"reading-{next(_names)}")


def column(name: str, type_: Any, *, id_: int | None = None, physical: str | None = None) -> dict:
    """Return a field of a Delta schema, mapped if `id_` is given."""
    mapping = {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": physical or name}
    metadata = {} if id_ is None else mapping
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def struct(*fields: dict) -> dict:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any) -> dict:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def worker_of(store: Store, *columns: dict, partition_by=(), **configuration: str) -> DeltaWorker:
    """Return a worker of a table with these columns; properties by their last word."""
    properties = {f"delta.{name.replace('__', '.')}": v for name, v in configuration.items()}
    context = WriteContext(
        store=store,
        schema=parse_schema(json.dumps(struct(*columns))),
        partition_columns=tuple(partition_by),
        configuration=properties,
        writer_features=frozenset(),
    )
    return DeltaWorker(store=store, context=context)


def put_file(store: Store, rows: pa.Table | dict, *, name="part.parquet", add=None, **options):
    """Write `rows` into a Parquet file and return it as a live file of the table."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"store_schema": False, **options})
    store.put(name, sink.getvalue())
    return DataFile(
        path=name,
        bytes=len(sink.getvalue()),
        rows=table.num_rows,
        native={"add": {"path": name, "partitionValues": {}, **(add or {})}},
    )


def read(worker: DeltaWorker, *files: DataFile, **options: Any) -> pa.Table:
    return worker.read(files, **options).read_all()
