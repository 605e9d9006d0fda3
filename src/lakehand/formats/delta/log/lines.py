"""The lines of commits, as one relation in DuckDB.

DuckDB spends over a millisecond on each file, and most logs are many small commits. So small ones
are put together into one file, each line with its version in front; large ones are read in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.log.files import quoted
from lakehand.formats.delta.protocol.actions import parse_commit
from lakehand.parquet.duckdb_view import quoted_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lakehand.formats.delta.log.discovery import ReplayedFile
    from lakehand.formats.delta.log.files import LogFiles
    from lakehand.storage import Store

__all__ = ["LogLines", "gather_lines"]

_SMALL_BYTES = 2**20
_FILES_AT_A_TIME = 256
_VERSION = "lakehandVersion"
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
            read = _read_json([self.merged], {**columns, _VERSION: "BIGINT"})
            parts.append(f"SELECT {_VERSION} AS version, {names} FROM {read}")
        if self.files:
            read = _read_json(list(self.files), columns)
            versions = ", ".join(f"({quoted(str(p))}, {v})" for p, v in self.files.items())
            known = f"(VALUES {versions}) AS line_files(filename, version)"
            parts.append(f"SELECT version, {names} FROM {read} JOIN {known} USING (filename)")
        return f"({' UNION ALL '.join(parts)})"

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


def _merge(store: Store, small: Sequence[ReplayedFile], target: Path) -> Path:
    with target.open("wb") as merged:
        for start in range(0, len(small), _FILES_AT_A_TIME):
            batch = small[start : start + _FILES_AT_A_TIME]
            texts = store.get_many([file.key for file in batch])
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
        members = action[1:].lstrip()
        if members and members != b"}":
            yield b'{"%s":%d,%s\n' % (_VERSION.encode(), file.version, members)


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
