"""A third format, made of the core of the format protocol and nothing else.

Rows are in Arrow files below `data/`; every version is one JSON manifest that lists its files.
"""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import (
    CommitConflictError,
    CommitUnknownError,
    NotATableError,
    ObjectExistsError,
    RefusedError,
    StorageError,
    VersionNotFoundError,
)
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats import registry
from lakehand.formats.base import Capabilities, require_capability
from lakehand.formats.scan import unknown_bounds
from lakehand.formats.worker import require_any_decoder
from lakehand.model.file_columns import FILE_COLUMNS
from lakehand.model.reports import Difference, HistoryEntry
from lakehand.model.retention import Protection
from lakehand.model.snapshot import Snapshot
from lakehand.model.work import DataFile, Receipt, StagedFile
from lakehand.storage import open_store
from support.formats import open_here, tasks_inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lakehand.model.work import Change, Replacement
    from lakehand.storage import Store

NAME = "manifest"
DATA, MANIFESTS = "data", "_manifests"
NO_CHECKPOINTS = "every manifest is complete in itself"
_FILES = pa.schema([*FILE_COLUMNS.items(), ("partition", pa.struct([])), ("native", pa.struct([]))])


class ManifestFormat:
    """Finds and opens tables."""

    name = NAME
    defaults: Mapping[str, Any] = MappingProxyType({})
    root_directory = MANIFESTS

    def detect(self, store: Store) -> bool:
        return MANIFESTS in {name.rstrip("/") for name in store.list_directory()[0]}

    def open(self, store: Store, *, settings: object = None) -> ManifestTable:
        if not self.detect(store):
            raise NotATableError(f"there is no manifest at {store.url}", table=store.url)
        return ManifestTable(store)


class ManifestTable:
    """A table as the driver sees it."""

    capabilities = Capabilities(lacking={"checkpoint": NO_CHECKPOINTS})

    def __init__(self, store: Store) -> None:
        self.store = store

    def with_settings(self, settings: Any) -> ManifestTable:
        return ManifestTable(self.store.with_settings(settings))

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
        statistics: Sequence[str] = (),
    ) -> Snapshot:
        if timestamp is not None:
            known = (self._manifest(number) for number in reversed(self._versions()))
            version = next(one["version"] for one in known if _moment(one) <= timestamp)
        manifest = self._manifest(version)
        schema = _schema(manifest)
        files = _file_table(manifest)
        if statistics:
            bounds = unknown_bounds(schema, statistics, count=files.num_rows)
            files = files.append_column("bounds", bounds)
        return Snapshot(
            table=self.store.url,
            version=manifest["version"],
            at=_moment(manifest),
            schema=schema,
            partition_columns=(),
            files=files,
            properties={},
            native=None,
            # Nothing is ever replayed.
            checkpoint_version=manifest["version"],
        )

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        versions = self._versions()[::-1][:limit]
        return [
            HistoryEntry(
                version=manifest["version"],
                at=_moment(manifest),
                operation=manifest["operation"],
                token=manifest["token"],
                proof=manifest["proof"],
            )
            for manifest in map(self._manifest, versions)
        ]

    def diff(self, from_version: int, to_version: int) -> Difference:
        old, new = self.snapshot(version=from_version), self.snapshot(version=to_version)
        return Difference(
            from_version=from_version,
            to_version=to_version,
            added=_without(new.files, old.files),
            removed=_without(old.files, new.files),
            schema_changed=old.schema != new.schema,
            properties_changed=False,
        )

    def require(self, operation: str, snapshot: object, *, force: bool = False) -> None:
        require_capability(self, operation)

    def partition_keys(self, snapshot: Snapshot, *, keeps_order: bool = True) -> pa.Array:
        return pa.array([""] * snapshot.file_count, pa.string())

    def data_files(self, snapshot: Snapshot, rows: Sequence[int]) -> tuple[DataFile, ...]:
        columns = ["path", "bytes", "rows", "deleted_rows"]
        chosen = snapshot.files.select(columns).take(pa.array(rows, pa.int64()))
        return tuple(DataFile(**file) for file in chosen.to_pylist())

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        return tuple(file.path for file in files if not self.store.exists(file.path))

    def worker(self, snapshot: Any) -> ManifestWorker:
        return ManifestWorker(store=self.store, schema=snapshot.schema)

    def commit(self, change: Change, *, token: str) -> Receipt:
        if change.kind != "rewrite":
            message = f"a {change.kind} cannot be committed to {self.store.url}"
            raise RefusedError(message, table=self.store.url, operation=change.kind)
        attempts = 0
        while True:
            attempts += 1
            newest = self._manifest()
            taken = _applicable(change.replacements, newest)
            if not taken:
                raise CommitConflictError(
                    f"files of every group were removed from {self.store.url} by others",
                    table=self.store.url,
                    actual_version=newest["version"],
                )
            if self._put(_next(newest, change, taken, token=token), token=token):
                return _receipt(newest["version"] + 1, change, taken, attempts=attempts)

    def _put(self, manifest: dict[str, Any], *, token: str) -> bool:
        """Say whether this manifest is the next version; False if another one is."""
        version = manifest["version"]
        try:
            self.store.put_if_absent(_key(version), json.dumps(manifest).encode())
        except ObjectExistsError:
            return self._is_ours(version, token)
        except StorageError as error:
            # What became of it is told by the store alone.
            try:
                return self._is_ours(version, token)
            except (StorageError, VersionNotFoundError):
                message = f"cannot tell whether version {version} was committed"
                raise CommitUnknownError(message, table=self.store.url) from error
        return True

    def _is_ours(self, version: int, token: str) -> bool:
        return self._manifest(version)["token"] == token

    def find_commit(self, token: str, *, after: int) -> int | None:
        later = (number for number in self._versions() if number > after)
        return next((number for number in later if self._is_ours(number, token)), None)

    def protected(
        self,
        *,
        since: datetime,
        pinned_versions: Sequence[int] = (),
        from_version: int | None = None,
    ) -> Protection:
        """Protect all versions: none is ever deleted."""
        versions = self._versions()
        paths = {file["path"] for number in versions for file in self._manifest(number)["files"]}
        nothing = pa.chunked_array([], pa.string())
        return Protection(
            oldest_version=versions[0],
            newest_version=versions[-1],
            keys=pa.chunked_array([sorted(paths)], pa.string()),
            pinned_keys=nothing,
            names=nothing,
        )

    def _versions(self) -> list[int]:
        listed = self.store.list_directory(MANIFESTS)[1]
        return sorted(int(info.key.rpartition("/")[2].removesuffix(".json")) for info in listed)

    def _manifest(self, version: int | None = None) -> dict[str, Any]:
        versions = self._versions()
        number = versions[-1] if version is None else version
        if number not in versions:
            message = f"{self.store.url} has no version {number}"
            raise VersionNotFoundError(message, table=self.store.url, version=number)
        found: dict[str, Any] = json.loads(self.store.get(_key(number)))
        return found


@dataclass(frozen=True, kw_only=True)
class ManifestWorker:
    """Reads and writes Arrow files."""

    store: Store
    schema: pa.Schema

    @property
    def moved_rows(self) -> pa.Schema:
        return self.schema

    @property
    def streamed_rows(self) -> pa.Schema:
        return self.schema

    def read(
        self,
        inputs: Sequence[DataFile],
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        row_identity: bool = False,
    ) -> pa.RecordBatchReader:
        names = list(columns or self.schema.names)
        predicate = None if where is None else parse_predicate(where, self.schema)
        batches = self._batches(inputs)
        if predicate is not None:
            batches = (keep_true(predicate, batch) for batch in batches)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, (b.select(names) for b in batches))

    def read_digested(
        self,
        inputs: Sequence[DataFile],
        digester: Any,
        *,
        limits: object,
        decoder: Any = "duckdb",
        dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        require_any_decoder(decoder, format_name=NAME)
        for batch in self._batches(inputs):
            digester.add(batch)
            yield batch

    def digest_rows(
        self, inputs: Sequence[Any], digester: Any, *, limits: object, decoder: Any = "duckdb"
    ) -> None:
        require_any_decoder(decoder, format_name=NAME)
        digester.add_all(self._batches(inputs))

    def digest_staged(
        self, files: Sequence[Any], digester: Any, *, limits: object, decoder: Any = "duckdb"
    ) -> None:
        self.digest_rows(files, digester, limits=limits, decoder=decoder)

    def count_rows(self, inputs: Sequence[DataFile]) -> int:
        return sum(self._stored_rows(file) if file.rows is None else file.rows for file in inputs)

    def _stored_rows(self, file: DataFile) -> int:
        return sum(batch.num_rows for batch in self._batches([file]))

    def staged_difference(self, inputs: object, outputs: Sequence[StagedFile]) -> str | None:
        return None

    def output_directory(self, like: object) -> str | None:
        return DATA

    def write(
        self, batches: Iterable[pa.RecordBatch], spec: object, *, like: object, stem: str
    ) -> tuple[StagedFile, ...]:
        return (write_rows(self.store, f"{DATA}/{stem}.arrow", self.schema, batches),)

    def _batches(self, files: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for file in files:
            reader = pa.ipc.open_file(pa.py_buffer(self.store.get(file.path)))
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def write_rows(
    store: Store, key: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> StagedFile:
    """Write one Arrow file."""
    rows, sink = 0, pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    data = sink.getvalue().to_pybytes()
    store.put(key, data)
    return StagedFile(path=key, bytes=len(data), rows=rows)


def append_rows(path: Path | str, rows: pa.Table) -> None:
    """Add rows in one file and one version, as another writer of this format would."""
    store = open_store(path)
    table = ManifestTable(store)
    versions = table._versions()
    files = table._manifest()["files"] if versions else []
    version = versions[-1] + 1 if versions else 0
    file = write_rows(store, f"{DATA}/{version}.arrow", rows.schema, rows.to_batches())
    manifest = {
        "version": version,
        "at": datetime.now(UTC).isoformat(),
        "schema": base64.b64encode(rows.schema.serialize()).decode(),
        "files": [*files, _entry(file)],
        "operation": "append",
        "token": None,
        "proof": None,
    }
    store.put_if_absent(_key(version), json.dumps(manifest).encode())


@contextmanager
def registered() -> Iterator[None]:
    """Let lakehand know the format inside of the block."""
    registry.register_format(NAME, ManifestFormat)
    try:
        yield
    finally:
        del registry.FORMATS[NAME]


def compact_and_die(path: str) -> None:
    """Compact, with all tasks in this process; to be killed."""
    with registered(), tasks_inline():
        open_here(path, min_files=2).compact()


def _key(version: int) -> str:
    return f"{MANIFESTS}/{version:020d}.json"


def _schema(manifest: dict[str, Any]) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifest["schema"])))


def _moment(manifest: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(manifest["at"])


def _entry(file: StagedFile) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat()
    return {"path": file.path, "bytes": file.bytes, "rows": file.rows, "at": at}


def _file_table(manifest: dict[str, Any]) -> pa.Table:
    rows = [
        {
            **file,
            "deleted_rows": 0,
            "modified_at": datetime.fromisoformat(file["at"]),
            "partition": {},
            "native": {},
        }
        for file in manifest["files"]
    ]
    return pa.Table.from_pylist(rows, _FILES)


def _without(files: pa.Table, others: pa.Table) -> pa.Table:
    is_known = pc.is_in(files["path"], value_set=others["path"].combine_chunks())
    return files.filter(pc.invert(is_known))


def _applicable(replacements: Sequence[Replacement], newest: dict[str, Any]) -> list[Replacement]:
    live = {file["path"] for file in newest["files"]}
    return [one for one in replacements if all(file.path in live for file in one.removes)]


def _next(
    newest: dict[str, Any], change: Change, taken: Sequence[Replacement], *, token: str
) -> dict[str, Any]:
    gone = {file.path for one in taken for file in one.removes}
    kept = [file for file in newest["files"] if file["path"] not in gone]
    return {
        **newest,
        "version": newest["version"] + 1,
        "at": datetime.now(UTC).isoformat(),
        "files": kept + [_entry(file) for one in taken for file in one.adds],
        "operation": change.operation,
        "token": token,
        "proof": dict(change.proof or {}),
    }


def _receipt(
    version: int, change: Change, taken: Sequence[Replacement], *, attempts: int
) -> Receipt:
    groups = {one.group for one in taken}
    return Receipt(
        version=version,
        dropped=tuple(one.group for one in change.replacements if one.group not in groups),
        attempts=attempts,
        files_added=sum(len(one.adds) for one in taken),
        files_removed=sum(len(one.removes) for one in taken),
    )
