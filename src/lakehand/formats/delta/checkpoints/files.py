"""The files of a checkpoint: written as a whole or not at all, then read back and counted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.checkpoints.checkpoint_rows import (
    ADD_FIELDS,
    NON_FILE_KINDS,
    REMOVE_FIELDS,
    as_pairs,
    in_groups,
)
from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.protocol.names import classic_checkpoint_key
from lakehand.parquet.footer import read_footer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakehand.formats.delta.checkpoints.last_checkpoint import CheckpointCheck
    from lakehand.storage import Store


def delete_hadoop_sum(store: Store, key: str) -> None:
    """Forget Hadoop's checksum of `key`; call this before overwriting `key`.

    Every Hadoop reader checks a file against `.<name>.crc` in its directory, so a checksum that
    outlives the bytes it was made from makes the file unreadable for delta-spark.
    """
    if store.local_path(key) is None:
        return
    folder, _, name = key.rpartition("/")
    sum_name = f".{name}.crc"
    store.delete([f"{folder}/{sum_name}" if folder else sum_name])


_MAGIC = b"PAR1"
#: Rows held in memory at a time, and rows of a row group.
ROW_GROUP_ROWS = 50_000
#: Actions that are left out once they are old enough, so that two writers may differ in them.
_EXPIRING = frozenset({"remove", "txn"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionFile:
    """A file with actions that was written."""

    key: str
    bytes: int
    #: Number of actions by kind: add, remove, txn, ...
    counts: Mapping[str, int] = field(default_factory=dict)


def total_counts(files: Iterable[ActionFile]) -> Counter[str]:
    """Return the number of actions by kind over all `files`."""
    return sum((Counter(file.counts) for file in files), Counter())


def write_parquet(
    store: Store, key: str, rows: Iterable[pa.Table], schema: pa.Schema
) -> ActionFile:
    """Write rows with the columns of `schema` as one Parquet file, whole or not at all."""
    counts: Counter[str] = Counter()
    delete_hadoop_sum(store, key)
    with store.open_writer(key) as sink:
        with _parquet_writer(sink, schema) as writer:
            for group in in_groups(rows, ROW_GROUP_ROWS):
                counts.update(_count(group))
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
        size = sink.tell()
    return ActionFile(key=key, bytes=size, counts=+counts)


def write_json(
    store: Store, key: str, actions: Sequence[tuple[str, Mapping[str, Any]]]
) -> ActionFile:
    """Write actions as JSON lines."""
    lines = [json.dumps({kind: value}, separators=(",", ":")) for kind, value in actions]
    data = "".join(f"{line}\n" for line in lines).encode("utf-8")
    delete_hadoop_sum(store, key)
    store.put(key, data)
    return ActionFile(key=key, bytes=len(data), counts=Counter(kind for kind, _ in actions))


def verify_actions(store: Store, written: ActionFile) -> None:
    """Read a file back and compare what it holds with what was written.

    A file that differs is deleted, because readers would take it for the table's state. One that
    says the same but for expired entries was written concurrently by another writer, and stays.
    """
    try:
        found = count_actions(store, written.key)
    except CorruptFileError:
        store.delete([written.key])
        raise
    if _lasting(found) == _lasting(written):
        return
    store.delete([written.key])
    raise CorruptFileError(
        f"{written.key} of {store.url} was written with {dict(written.counts)} but reads back as"
        f" {dict(found.counts)}; it was deleted",
        table=store.url,
        path=written.key,
        hint="the store returned other bytes than were written; the table is unchanged; check the"
        " disk or the store before you retry",
    )


def _lasting(file: ActionFile) -> dict[str, int]:
    """Return the counts that any writer must agree on, whenever it writes."""
    return {kind: count for kind, count in file.counts.items() if kind not in _EXPIRING}


def count_actions(store: Store, key: str) -> ActionFile:
    """Count the actions in a checkpoint's file by kind; CorruptFileError if it is not whole."""
    try:
        if key.endswith(".json"):
            return _count_json(key, store.get(key))
        return _count_parquet(store, key)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(
            f"{key} of {store.url} cannot be read as part of a checkpoint: {error}",
            table=store.url,
            path=key,
            hint="The table is still complete if its commits are; `lakehand checkpoint` writes a"
            " new checkpoint.",
        ) from error


def _parquet_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    # Half the size of snappy at the same speed; dictionaries only add to that, because nearly
    # every path and every statistic is different.
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        store_schema=False,
    )


def _count_json(key: str, data: bytes) -> ActionFile:
    actions = [load_json(line) for line in data.splitlines() if line.strip()]
    for action in actions:
        if not isinstance(action, dict):
            raise ValueError("it holds a line that is not an object")  # noqa: TRY004  as JSON
    kinds = [kind for action in actions for kind, value in action.items() if value is not None]
    return ActionFile(key=key, bytes=len(data), counts=Counter(kinds))


def _count_parquet(store: Store, key: str) -> ActionFile:
    if store.get_range(key, start=0, length=len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not start as a Parquet file does")
    read_footer(store, key)
    counts: Counter[str] = Counter()
    with store.open_reader(key) as source, pq.ParquetFile(source) as file:
        for batch in file.iter_batches(ROW_GROUP_ROWS, columns=_marker_columns(file.schema)):
            counts.update(_count(pa.Table.from_batches([batch])))
        return ActionFile(key=key, bytes=source.size, counts=+counts)


def _marker_columns(schema: pq.ParquetSchema) -> list[str]:
    """Return one leaf of each kind of action: enough to tell which kind a row is."""
    by_kind: dict[str, str] = {}
    for column in schema:
        kind, _, _member = column.path.partition(".")
        by_kind.setdefault(kind, column.path)
    return list(by_kind.values())


def _count(rows: pa.Table) -> dict[str, int]:
    return {name: rows.num_rows - rows[name].null_count for name in rows.column_names}


_TEXTS = pa.map_(pa.string(), pa.string())
_TOP_KINDS: Mapping[str, pa.DataType] = {
    "add": pa.struct([*ADD_FIELDS.items(), ("stats", pa.string())]),
    "remove": pa.struct(list(REMOVE_FIELDS.items())),
    **NON_FILE_KINDS,
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _TEXTS)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", _TEXTS),
        ]
    ),
}


def write_classic_copy(store: Store, checkpoint: CheckpointCheck) -> str | None:
    """Write the top file of a V2 checkpoint again as `V.checkpoint.parquet`; return its key.

    None where that name is taken, or the checkpoint has it already.
    """
    key = classic_checkpoint_key(checkpoint.version)
    if checkpoint.kind != "v2" or store.exists(key):
        return None
    top = checkpoint.keys[0]
    if top.endswith(".parquet"):
        delete_hadoop_sum(store, key)
        store.put(key, store.get(top))
        return key
    rows = read_json(store, top)
    verify_actions(store, write_parquet(store, key, [rows], rows.schema))
    return key


def read_json(store: Store, key: str) -> pa.Table:
    """Return the actions of a top file in JSON, one row each and one column for each kind."""
    lines = [load_json(line) for line in store.get(key).splitlines() if line.strip()]
    columns = {
        kind: pa.array([as_pairs(line.get(kind)) for line in lines], type_)
        for kind, type_ in _TOP_KINDS.items()
    }
    return pa.table(columns)
