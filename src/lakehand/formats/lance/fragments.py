"""Fragments as files of a table: one row each, and as values that can be sent to tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptLogError, UnsafePathError
from lakehand.formats.lance.connect import DATA_DIRECTORY, open_dataset, reading
from lakehand.formats.lance.deletions import deleted_positions
from lakehand.model.file_columns import FILE_COLUMNS
from lakehand.model.work import DataFile
from lakehand.storage.location import check_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

if TYPE_CHECKING:
    Path = tuple[str, ...]


def column_numbers(dataset: Any) -> dict[Path, tuple[int, pa.DataType]]:
    """Return the number and the type of each column, and of all that is in it."""
    return dict(_columns(dataset.lance_schema.fields()))


def keeps_columns(before: Any, after: Any) -> bool:
    """Say whether files that were written for one version hold the same rows in a later one.

    Columns may have come and gone. One that has another number or type by now has not the values
    of the old one, though it may have its name.
    """
    old, new = column_numbers(before), column_numbers(after)
    path_of = {number: path for path, (number, _) in new.items()}
    return all(
        new.get(path, (number, kind)) == (number, kind) and path_of.get(number, path) == path
        for path, (number, kind) in old.items()
    )


def _columns(
    fields: Iterable[Any], above: Path = ()
) -> Iterator[tuple[Path, tuple[int, pa.DataType]]]:
    for field in fields:
        path = (*above, field.name())
        yield path, (field.id(), field.to_arrow().type)
        yield from _columns(field.children(), path)


def hold_dropped_columns(store: Store, snapshot: Snapshot) -> pa.BooleanArray:
    """Say of each fragment whether it still holds columns that the table has dropped."""
    dataset = open_dataset(store, snapshot.version)
    with reading(store, snapshot.version):
        known = set(_field_ids(dataset.lance_schema.fields()))
        fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    ids = [native["id"] for native in snapshot.files["native"].to_pylist()]
    return pa.array([_holds_others(fragments[id_], known) for id_ in ids], pa.bool_())


def _field_ids(fields: Any) -> Iterator[int]:
    for field in fields:
        yield field.id()
        yield from _field_ids(field.children())


def _holds_others(fragment: Any, known: set[int]) -> bool:
    return any(set(file.fields) - known for file in fragment.metadata.files)


#: What tells a fragment from every other state of it: a change of any of this is a conflict.
NATIVE_TYPE = pa.struct(
    {
        "id": pa.int64(),
        #: Keys of all data files, the first one included.
        "files": pa.list_(pa.string()),
        #: Key of the file of deleted rows.
        "deletions": pa.string(),
    }
)
#: Lance has no partitions.
_NO_MEMBERS = pa.struct([])


def file_table(store: Store, fragments: Iterable[Any], *, at: datetime) -> pa.Table:
    """Return one row per fragment, in the order of the table.

    When a fragment was written is not known: `at` is the latest possible time.
    """
    rows = [_row(store, fragment.metadata) for fragment in fragments]
    _require_safe(store, (key for row in rows for key in row["native"]["files"]))
    table = pa.Table.from_pylist(rows, schema=pa.schema([*_COLUMNS, ("native", NATIVE_TYPE)]))
    times = pa.array([at] * len(rows), FILE_COLUMNS["modified_at"])
    nothing = pa.array([{}] * len(rows), _NO_MEMBERS)
    return table.add_column(4, "modified_at", times).add_column(5, "partition", nothing)


def _require_safe(store: Store, keys: Iterable[str]) -> None:
    """Raise CorruptLogError if a fragment has files that cannot be in the table."""
    try:
        check_keys(keys)
    except UnsafePathError as error:
        raise CorruptLogError(
            f"a fragment of {store.url} has a file that is not in the table: {error.message}",
            table=store.url,
            path=error.attributes["path"],
            hint="the manifest is damaged: run `lakehand verify` on the table",
        ) from error


_COLUMNS = [(name, kind) for name, kind in FILE_COLUMNS.items() if name != "modified_at"]


def _row(store: Store, fragment: Any) -> dict[str, Any]:
    native = _native(fragment)
    if not native["files"]:
        raise CorruptLogError(
            f"fragment {fragment.id} of {store.url} has no data file",
            table=store.url,
            hint="the manifest is damaged: run `lakehand verify` on the table",
        )
    return {
        "path": native["files"][0],
        "bytes": sum(
            file.file_size_bytes or store.head(key).bytes
            for file, key in zip(fragment.files, native["files"], strict=True)
        ),
        "rows": fragment.physical_rows,
        "deleted_rows": _deleted_rows(store, fragment),
        "native": native,
    }


def _deleted_rows(store: Store, fragment: Any) -> int:
    """Return how many rows of a fragment are deleted; its file tells if the manifest does not."""
    if fragment.deletion_file is None:
        return 0
    return fragment.deletion_file.num_deleted_rows or len(deleted_positions(store, fragment))


def _native(fragment: Any) -> dict[str, Any]:
    """Return what tells a fragment from every other state of it (`NATIVE_TYPE`)."""
    deletions = fragment.deletion_file
    return {
        "id": fragment.id,
        "files": [f"{DATA_DIRECTORY}/{_name(file)}" for file in fragment.files],
        "deletions": deletions and deletions.path(fragment.id),
    }


def _name(file: Any) -> str:
    # Asked for its path, a file of the library makes a class each time.
    return str(vars(file).get("_path") or file.path)


def described(fragment: Any) -> dict[str, Any]:
    """Return how Lance describes a fragment; its own way copies every number of every file."""
    metadata = fragment.metadata
    files = [
        {name.removeprefix("_"): value for name, value in vars(file).items()}
        for file in metadata.files
    ]
    return {**replace(metadata, files=[]).to_json(), "files": files}


def data_files(files: pa.Table, rows: Sequence[int] | None = None) -> tuple[DataFile, ...]:
    """Turn rows of `file_table`, all of them if None, into values."""
    columns = files.select(["path", "bytes", "rows", "deleted_rows", "native"])
    chosen = columns if rows is None else columns.take(pa.array(rows, pa.int64()))
    return tuple(DataFile(**row) for row in chosen.to_pylist())


def fragment_keys(files: pa.Table) -> list[str]:
    """Return a text for each fragment that tells it from every other state of it."""
    return [json.dumps(native, sort_keys=True) for native in files["native"].to_pylist()]


def has_fragments(dataset: Any, inputs: Sequence[DataFile]) -> bool:
    """Return whether a dataset has all fragments of `inputs` unchanged."""
    return known_fragments(dataset, inputs) is not None


def known_fragments(dataset: Any, inputs: Sequence[DataFile]) -> list[Any] | None:
    """Return the fragments of `inputs` in the table's order; None unless all are unchanged."""
    known = fragments_by_number(dataset)
    return _wanted(inputs, known) if all(_is_known(file, known) for file in inputs) else None


def fragments_by_number(dataset: Any) -> dict[int, Any]:
    """Return the fragments of a dataset in its order."""
    return {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}


def _is_known(file: DataFile, known: Mapping[int, Any]) -> bool:
    fragment = known.get(file.native.get("id", -1))
    return fragment is not None and _native(fragment.metadata).items() <= file.native.items()


def find_fragments(
    dataset: Any,
    inputs: Sequence[DataFile],
    *,
    table: str,
    known: Mapping[int, Any] | None = None,
) -> list[Any]:
    """Return the fragments of `inputs` in the table's order; CorruptLogError if one is gone.

    `known` are those of the dataset, if the caller has read them already.
    """
    known = fragments_by_number(dataset) if known is None else known
    for file in inputs:
        if not _is_known(file, known):
            raise CorruptLogError(
                f"{file.path!r} is not in version {dataset.version} of {table}",
                table=table,
                version=dataset.version,
            )
    return _wanted(inputs, known)


def _wanted(inputs: Sequence[DataFile], known: Mapping[int, Any]) -> list[Any]:
    wanted = {file.native["id"] for file in inputs}
    return [fragment for id_, fragment in known.items() if id_ in wanted]
