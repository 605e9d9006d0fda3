"""Tables whose files have row groups of a wanted size, written by lakehand itself."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.formats.delta.table import DeltaFormat, DeltaTable
from lakehand.formats.delta.write.context import WriteContext
from lakehand.formats.delta.write.writer import write_files
from lakehand.formats.worker import WriteSpec
from lakehand.model.work import Change, Group, GroupResult, Replacement
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run
from lakehand.storage import open_store
from support.small_tables import commit_by_hand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa


def create(path: Path, schema: pa.Schema, **properties: str) -> DeltaTable:
    """Make an empty table; `delta__name` is the property `delta.name`."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return DeltaFormat().create(open_store(path), schema, properties=named)


def append_file(table: DeltaTable, rows: pa.Table, *, row_group_rows: int = 512 * 1024) -> None:
    """Commit one more file."""
    snapshot = table.snapshot()
    spec = WriteSpec(target_file_bytes=2**40, codec="snappy", row_group_rows=row_group_rows)
    context = WriteContext.of(snapshot.native)
    stem = f"part-{uuid.uuid4()}"
    files = write_files(context, rows.to_batches(), spec, stem=stem, partition_values={})
    change = Change(kind="append", base_version=snapshot.version, operation="WRITE", adds=files)
    table.commit(change, token=stem)


def delete_rows(table: DeltaTable, file: int, positions: Iterable[int]) -> None:
    """Hide rows of a file behind a deletion vector."""
    [data] = table.data_files(table.snapshot(), [file])
    add: dict[str, Any] = dict(data.native["add"])
    [vector] = write_deletion_vectors(table.store, [BitMap64(positions)])
    root = table.store.local_path(data.path).parent
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    commit_by_hand(root, {"remove": remove}, {"add": {**add, "deletionVector": vector.to_json()}})


def copy_files(table: DeltaTable, *, recoded: Sequence[int] = (), **options: Any) -> GroupResult:
    """Copy all files of a table as one group, in a task, and prove it; nothing is committed."""
    snapshot = table.snapshot()
    inputs = table.data_files(snapshot, range(snapshot.file_count))
    group = Group(id=0, inputs=inputs, method="copy", recoded=tuple(recoded), **options)
    run = Run.start(table.store, {"groups": [group.to_json()]}, snapshot=snapshot)
    spec = WriteSpec(target_file_bytes=group.target_file_bytes)
    task = RewriteTask(worker=table.worker(snapshot), run=run, spec=spec)
    payload = json.loads(json.dumps({"group": group.to_json()}))
    return GroupResult.from_json(task(payload))


def commit_copy(table: DeltaTable, result: GroupResult) -> None:
    """Let what `copy_files` made take the place of all files."""
    snapshot = table.snapshot()
    inputs = table.data_files(snapshot, range(snapshot.file_count))
    replacement = Replacement(group=0, removes=inputs, adds=result.outputs)
    change = Change(
        kind="rewrite",
        base_version=snapshot.version,
        operation="OPTIMIZE",
        replacements=(replacement,),
    )
    table.commit(change, token=result.attempt)
