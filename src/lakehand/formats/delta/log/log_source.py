"""Commits (NDJSON) and checkpoints (Parquet) of one version, as relations in DuckDB."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.duckdb_pool import connect
from lakehand.errors import CorruptFileError, CorruptLogError, ObjectNotFoundError, UnsafePathError
from lakehand.expressions.literals import quote_string
from lakehand.formats.delta.log.short_log import MOST_BYTES, VERSION, Action, parse_lines
from lakehand.formats.delta.protocol.actions import checked_action, load_json, parse_commit
from lakehand.formats.delta.protocol.names import LOG_DIRECTORY, commit_key, sidecar_key
from lakehand.parquet.columns import quoted_list
from lakehand.parquet.footer import read_local_footer
from lakehand.storage.scratch import holds_wildcards
from lakehand.temporary import held_directory, scratch_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.delta.log.listing import LogSegment, ReplayedFile
    from lakehand.storage import Store

_PARALLEL_DOWNLOADS = 8


class LogFiles:
    """Gives keys of the log a local path: their own, or that of a copy."""

    def __init__(self, store: Store, scratch: Path) -> None:
        self._store = store
        self._scratch = scratch
        self._paths: dict[str, Path] = {}

    @property
    def scratch(self) -> Path:
        """A separate directory, for data that does not fit into memory."""
        return self._scratch

    def bring(self, keys: Sequence[str]) -> list[Path]:
        """Return a local path for each key; copies vanish with the `with` block."""
        missing = [key for key in keys if key not in self._paths]
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            self._paths.update(zip(missing, pool.map(self._bring_one, missing), strict=True))
        return [self._paths[key] for key in keys]

    def _bring_one(self, key: str) -> Path:
        local = self._store.local_path(key)
        if local is not None:
            # The errors of the store say more than those of DuckDB.
            self._store.get_range(key, start=0, length=1)
        if local is not None and not holds_wildcards(local):
            return local
        copy = self._scratch / Path(key).name
        if local is not None:
            copy.symlink_to(local.absolute())
        else:
            self._store.download(key, copy)
        return copy


@contextmanager
def open_log_files(store: Store) -> Iterator[LogFiles]:
    # Tables are opened all the time: those of killed processes go with the next rewrite.
    with held_directory(None, purpose="log", removes_abandoned=False) as scratch:
        yield LogFiles(store, Path(scratch))


_SMALL_BYTES = 2**20
_FILES_AT_A_TIME = 256
#: Contents of commits that are kept for each store in use.
_MAX_KNOWN_BYTES = 16 * 2**20
_USUAL_LINE_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLines:
    """Files of lines, and how to read them."""

    #: All small commits in one file, each line with its version; None if there are none.
    merged: Path | None
    #: Files that are read in place, each with the version it counts as.
    files: Mapping[Path, int]
    #: What `merged` was made of.
    sources: tuple[ReplayedFile, ...]

    def __bool__(self) -> bool:
        return self.merged is not None or bool(self.files)

    def relation(self, columns: Mapping[str, str]) -> str:
        """Return a relation over the lines: `version`, and a column of its type for each action."""
        names = ", ".join(columns)
        parts = []
        if self.merged is not None:
            read = _read_json([self.merged], {**columns, VERSION: "BIGINT"})
            parts.append(f"SELECT {VERSION} AS version, {names} FROM {read}")
        if self.files:
            read = _read_json(list(self.files), columns)
            versions = ", ".join(f"({quote_string(str(p))}, {v})" for p, v in self.files.items())
            known = f"(VALUES {versions}) AS line_files(filename, version)"
            parts.append(f"SELECT version, {names} FROM {read} JOIN {known} USING (filename)")
        return f"({' UNION ALL '.join(parts)})"

    def few_actions(self) -> list[Action] | None:
        """Return the actions of all lines if they are few, and all as usual; else None."""
        if self.merged is None or self.files:
            return None
        with scratch_errors(self.merged, "the copy of a log cannot be read"):
            is_short = self.merged.stat().st_size <= MOST_BYTES
            return parse_lines(self.merged.read_bytes()) if is_short else None

    def blame(self, store: Store) -> None:
        """Raise the error of the first small commit that cannot be read, if there is one."""
        for file in self.sources:
            parse_commit(file.version, store.get(file.key), table=store.url, key=file.key)


def gather_lines(store: Store, files: LogFiles, replayed: Sequence[ReplayedFile]) -> LogLines:
    """Bring commits to where DuckDB reads them."""
    small = tuple(file for file in replayed if file.bytes <= _SMALL_BYTES)
    large = [file for file in replayed if file.bytes > _SMALL_BYTES]
    paths = files.bring([file.key for file in large])
    return LogLines(
        merged=_merge(store, small, files.scratch / "lines.ndjson") if small else None,
        files={path: file.version for path, file in zip(paths, large, strict=True)},
        sources=small,
    )


class _Contents:
    """Contents of small commits in a bucket that were read before, for as long as a store is used.

    An operation replays the log several times, and every commit is a request. The tag of a listing
    tells whether a commit is still what was read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Store, dict[str, tuple[str, bytes]]] = WeakKeyDictionary()

    def get_many(self, store: Store, files: Sequence[ReplayedFile]) -> list[bytes]:
        """Return the contents of commits; those that are not known under their tag are read."""
        with self._lock:
            known = self._known.setdefault(store, {})
            missing = [file for file in files if known.get(file.key, ("",))[0] != file.etag]
            found = {file.key: known[file.key][1] for file in files if file not in missing}
        found |= zip(
            (file.key for file in missing),
            store.get_many([file.key for file in missing]),
            strict=True,
        )
        with self._lock:
            room = _MAX_KNOWN_BYTES - sum(len(text) for _, text in known.values())
            for file in missing:
                room -= len(found[file.key])
                # A commit that was replaced since it was listed has another size or another tag.
                if file.etag is not None and room > 0 and len(found[file.key]) == file.bytes:
                    known[file.key] = file.etag, found[file.key]
        return [found[file.key] for file in files]

    def get_known(self, store: Store, key: str, etag: str | None) -> bytes | None:
        """Return the content of a commit under this tag; None if it is not known."""
        with self._lock:
            tag, text = self._known.get(store, {}).get(key, ("", b""))
        return text if tag == etag else None


_CONTENTS = _Contents()


def known_commit(store: Store, segment: LogSegment) -> bytes | None:
    """Return the commit of the version of `segment` as it was read; None if it is not kept."""
    return _CONTENTS.get_known(
        store, commit_key(segment.version), segment.commit_tags.get(segment.version)
    )


def _merge(store: Store, small: Sequence[ReplayedFile], target: Path) -> Path:
    failure = f"the log of {store.url} cannot be copied to scratch"
    with scratch_errors(target, failure), target.open("wb") as merged:
        for start in range(0, len(small), _FILES_AT_A_TIME):
            batch = small[start : start + _FILES_AT_A_TIME]
            texts = _CONTENTS.get_many(store, batch)
            for file, text in zip(batch, texts, strict=True):
                merged.writelines(_with_version(store, file, text))
    return target


def _with_version(store: Store, file: ReplayedFile, text: bytes) -> Iterator[bytes]:
    if not text.strip():
        raise unreadable(store, file, f"{file.key} is empty")
    for number, line in enumerate(text.split(b"\n"), start=1):
        action = line.strip()
        if action and not action.startswith(b"{"):
            raise unreadable(store, file, f"line {number} of {file.key} is not an object")
        if action == b"{":
            raise unreadable(store, file, f"line {number} of {file.key} is cut off")
        members = action[1:].lstrip()
        if members and members != b"}":
            yield b'{"%s":%d,%s\n' % (VERSION.encode(), file.version, members)


def unreadable(store: Store, file: ReplayedFile, reason: str) -> CorruptLogError:
    return CorruptLogError(
        f"version {file.version} of {store.url} cannot be read: {reason}",
        table=store.url,
        version=file.version,
        path=file.key,
        hint="restore the commit from a backup; without it the content cannot be known",
    )


def _read_json(paths: Sequence[Path], columns: Mapping[str, str]) -> str:
    types = ", ".join(f"'{name}': '{type_}'" for name, type_ in columns.items())
    return (
        f"read_json({quoted_list(paths)}, format = 'newline_delimited', columns = {{{types}}}, "
        f"filename = true, hive_partitioning = false, maximum_object_size = {_line_limit(paths)})"
    )


def _line_limit(paths: Iterable[Path]) -> int:
    """Return what DuckDB must be ready for; it reserves several times as much memory.

    Twice the longest line, because DuckDB 2.0 misreads a long last line that has no line end if the
    limit is tight.
    """
    limit = _USUAL_LINE_BYTES
    for path in paths:
        if path.stat().st_size > _USUAL_LINE_BYTES:
            with path.open("rb") as file:
                limit = max(limit, *(2 * len(line) for line in file))
    return limit


_OTHER_KINDS = ("protocol", "metaData", "txn", "domainMetadata", "commitInfo")
_KINDS = frozenset({*_OTHER_KINDS, "add", "remove", "sidecar", "checkpointMetadata"})
_STRUCTS = frozenset({"deletionVector", "stats_parsed", "format"})
_COUNTED = ("add.path", "add.stats_parsed.numRecords")
#: What a checkpoint that is damaged makes of its reading.
_UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    CorruptFileError,
    ObjectNotFoundError,
    UnsafePathError,
)
_LOCAL_PATH = re.compile(r'"[^"]*/([^"/]+)"')


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPart:
    """Parquet files of a checkpoint that have one schema."""

    paths: tuple[Path, ...]
    schema: pa.Schema
    #: Whether the typed statistics of every add say how many rows it has.
    has_row_counts: bool = False

    @property
    def relation(self) -> str:
        return f"read_parquet({quoted_list(self.paths)}, hive_partitioning = false)"

    def member(self, kind: str, name: str) -> pa.Field | None:
        """Return the field of a member of the actions of `kind`; None if there is none here."""
        if kind not in self.schema.names:
            return None
        type_ = self.schema.field(kind).type
        index = type_.get_field_index(name)
        return None if index < 0 else type_.field(index)


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherAction:
    """An action that names no file."""

    version: int
    kind: str
    value: dict[str, Any]


class LogSource:
    """The files of one log segment within a DuckDB connection."""

    def __init__(
        self,
        store: Store,
        segment: LogSegment,
        *,
        lines: LogLines,
        parts: Sequence[CheckpointPart],
    ) -> None:
        self.segment = segment
        self.table = store.url
        #: Commits after the checkpoint; also the top file of a V2 checkpoint in JSON.
        self.lines = lines
        #: Parquet files of the checkpoint; their adds are reconciled already.
        self.parts = tuple(parts)
        self._store = store
        self.connection = connect()

    @cached_property
    def few_actions(self) -> list[Action] | None:
        """See `LogLines.few_actions`."""
        return self.lines.few_actions()

    def other_actions(self) -> list[OtherAction]:
        """Return every action that names no file, oldest first."""
        found = [*self._others_in_parts(), *self._others_in_lines()]
        return sorted(found, key=lambda action: action.version)

    def _others_in_lines(self) -> Iterator[OtherAction]:
        if not self.lines:
            return
        if self.few_actions is not None:
            for version, kind, value in self.few_actions:
                if kind in _OTHER_KINDS:
                    yield OtherAction(
                        version=version, kind=kind, value=self.checked_line(kind, value, version)
                    )
            return
        relation = self.lines.relation(dict.fromkeys(_OTHER_KINDS, "JSON"))
        rows = self.run(f"SELECT * FROM {relation} WHERE {_any_of(_OTHER_KINDS)}")
        for version, *texts in rows:
            for kind, text in zip(_OTHER_KINDS, texts, strict=True):
                action = None if text is None else self.parse(kind, text, version)
                if action is not None:
                    yield OtherAction(version=version, kind=kind, value=action)

    def parse(self, kind: str, text: str, version: int) -> dict[str, Any] | None:
        """Return an action of a line; None if the line says that there is none."""
        try:
            value = load_json(text)
        except ValueError as error:
            raise self.corrupt_log(str(error), version=version) from error
        return None if value is None else self.checked_line(kind, value, version)

    def checked_line(self, kind: str, value: Any, version: int) -> dict[str, Any]:
        """Return an action of a line; CorruptLogError if it cannot be used."""
        try:
            return checked_action(kind, value)
        except ValueError as error:
            raise self.corrupt_log(str(error), version=version) from error

    def _others_in_parts(self) -> Iterator[OtherAction]:
        checkpoint = self.segment.checkpoint
        for part in self.parts:
            kinds = [kind for kind in _OTHER_KINDS if kind in part.schema.names]
            if checkpoint is None or not kinds:
                continue
            query = f"SELECT {', '.join(kinds)} FROM {part.relation} WHERE {_any_of(kinds)}"
            for row in self.stream(query).read_all().to_pylist(maps_as_pydicts="strict"):
                for kind, value in row.items():
                    if value is not None:
                        present = {name: item for name, item in value.items() if item is not None}
                        yield OtherAction(
                            version=checkpoint.version, kind=kind, value=self.checked(kind, present)
                        )

    def checked(self, kind: str, value: dict[str, Any]) -> dict[str, Any]:
        """Return an action of the checkpoint; CorruptFileError if it cannot be used."""
        try:
            return checked_action(kind, value)
        except ValueError as error:
            raise _corrupt_checkpoint(self.table, self.segment, error) from error

    def run(self, statement: str) -> list[Any]:
        """Run a statement that reads commits; what cannot be read is an error that names them."""
        try:
            return self.connection.execute(statement).fetchall()
        except duckdb.Error as error:
            self.lines.blame(self._store)
            # DuckDB names the local path, which may be that of a copy.
            reason = _LOCAL_PATH.sub(rf"{LOG_DIRECTORY}/\1", _first_line(error))
            raise self.corrupt_log(reason) from error

    def corrupt_log(self, reason: str, *, version: int | None = None) -> CorruptLogError:
        """Return the error of commits that cannot be used: those of one version, or some."""
        which = "the log" if version is None else f"version {version}"
        return CorruptLogError(
            f"{which} of {self.table} cannot be read: {reason}",
            table=self.table,
            version=self.segment.version if version is None else version,
            hint="restore the commit from a backup; without it the content cannot be known",
        )

    def unusable(self, reason: str) -> CorruptFileError | CorruptLogError:
        """Return the error of what was read of commits and checkpoint together.

        The commits are looked at one by one; if nothing is wrong with them, the checkpoint is.
        """
        try:
            self.lines.blame(self._store)
        except CorruptLogError as error:
            return error
        if self.segment.checkpoint is None:
            return self.corrupt_log(reason)
        return _corrupt_checkpoint(self.table, self.segment, ValueError(reason))

    def stream(self, query: str, *, batch_rows: int = 1_000_000) -> pa.RecordBatchReader:
        """Run a query that reads the checkpoint, batch by batch."""
        with self._checkpoint_errors():
            reader = self.connection.sql(query).to_arrow_reader(batch_rows)
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._checkpoint_errors():
            yield from reader

    @contextmanager
    def _checkpoint_errors(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self.unusable(_first_line(error)) from error


@contextmanager
def open_log_source(store: Store, segment: LogSegment) -> Iterator[LogSource]:
    """Bring the files of a segment together. A checkpoint that is damaged: CorruptFileError."""
    with open_log_files(store) as files:
        lines = gather_lines(store, files, segment.replayed)
        try:
            top, parts = _open_checkpoint(files, segment)
        except _UNREADABLE as error:
            raise _corrupt_checkpoint(store.url, segment, error) from error
        lines = replace(lines, files={**lines.files, **top})
        source = LogSource(store, segment, lines=lines, parts=parts)
        with source.connection:
            yield source


def _open_checkpoint(
    files: LogFiles, segment: LogSegment
) -> tuple[dict[Path, int], list[CheckpointPart]]:
    """Return the checkpoint's files of lines (a V2 top file may be one) and its Parquet files."""
    if segment.checkpoint is None:
        return {}, []
    tops = files.bring(segment.checkpoint.keys)
    if tops[0].suffix == ".json":
        names = list(_sidecars_in_lines(tops[0]))
        return {tops[0]: segment.checkpoint.version}, _parts(_bring_sidecars(files, names))
    parts = _parts(tops)
    names = [name for part in parts for name in _sidecars_in_part(part)]
    return {}, [*parts, *_parts(_bring_sidecars(files, names))]


def _bring_sidecars(files: LogFiles, names: Sequence[str]) -> list[Path]:
    return files.bring([sidecar_key(name) for name in names])


def _sidecars_in_lines(path: Path) -> Iterator[str]:
    is_checkpoint = False
    # Bytes, because a text would also be cut at other characters that end a line.
    for line in path.read_bytes().splitlines():
        action = load_json(line) if line.strip() else {}
        if not isinstance(action, dict):
            raise ValueError("it holds a line that is not an object")  # noqa: TRY004  as JSON
        is_checkpoint |= "checkpointMetadata" in action
        if action.get("sidecar") is not None:
            yield checked_action("sidecar", action["sidecar"])["path"]
    if not is_checkpoint:
        raise ValueError("it lacks the action checkpointMetadata, so it may be cut off")


def _sidecars_in_part(part: CheckpointPart) -> list[str]:
    if part.member("sidecar", "path") is None:
        return []
    tables = [pq.ParquetFile(path).read(columns=["sidecar"]) for path in part.paths]
    rows = [row for table in tables for row in table.column("sidecar").to_pylist()]
    return [checked_action("sidecar", row)["path"] for row in rows if row is not None]


def _parts(paths: Iterable[Path]) -> list[CheckpointPart]:
    by_kind: dict[tuple[str, bool], CheckpointPart] = {}
    for path in paths:
        # What Arrow cannot make sense of in the statistics of a column would end the process.
        read_local_footer(path)
        footer = pq.read_metadata(path)
        schema = footer.schema.to_arrow_schema().remove_metadata()
        _require_structs(schema)
        kind = (str(schema), _has_row_counts(footer))
        before = by_kind[kind].paths if kind in by_kind else ()
        by_kind[kind] = CheckpointPart(paths=(*before, path), schema=schema, has_row_counts=kind[1])
    return list(by_kind.values())


def _require_structs(schema: pa.Schema) -> None:
    """Refuse columns that are read member by member and have none."""
    kinds = {field.name: field.type for field in schema if field.name in _KINDS}
    inner = {
        f"{kind}.{member.name}": member.type
        for kind, type_ in kinds.items()
        if pa.types.is_struct(type_)
        for member in type_
        if member.name in _STRUCTS
    }
    for name, type_ in (kinds | inner).items():
        if not pa.types.is_struct(type_):
            raise ValueError(f"its column {name} is of the type {type_}")


def _has_row_counts(footer: pq.FileMetaData) -> bool:
    """Say whether typed row counts are null only where there is no add: then text is not needed."""
    indexes = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    counts = [_null_count(footer, indexes.get(path)) for path in _COUNTED]
    return counts[0] is not None and counts[0] == counts[1]


def _null_count(footer: pq.FileMetaData, index: int | None) -> int | None:
    if index is None:
        return None
    chunks = [footer.row_group(i).column(index) for i in range(footer.num_row_groups)]
    if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks):
        return None
    return int(sum(chunk.statistics.null_count for chunk in chunks))


def _corrupt_checkpoint(table: str, segment: LogSegment, error: Exception) -> CorruptFileError:
    key = segment.checkpoint.keys[0] if segment.checkpoint else None
    return CorruptFileError(
        f"the checkpoint {key} of {table} cannot be read: {_first_line(error)}",
        table=table,
        path=key,
        hint="delete the damaged checkpoint if the commits before it are still in the log",
    )


def _any_of(kinds: Iterable[str]) -> str:
    return " OR ".join(f"{kind} IS NOT NULL" for kind in kinds)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
