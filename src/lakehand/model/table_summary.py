"""A summary of a table: numbers of its files, to which new commits are applied.

It holds what decides whether maintenance is due, and no paths: about 20 bytes per file.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

#: Columns of the numbers of files, and how they are stored.
_COLUMNS = {"keys": "<u8", "sizes": "<i8", "rows": "<i8", "deleted": "<i8", "partitions": "<i4"}
#: The number of rows of a file that does not tell it.
UNKNOWN_ROWS = -1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What is known of one file."""

    key: int
    bytes: int
    rows: int
    deleted: int
    partition: str


def file_hash(path: str, deletes: str | None) -> int:
    """Return the key of a file: a hash of its path and of the id of its deleted rows."""
    identity = path if deletes is None else f"{path}\0{deletes}"
    return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, eq=False, slots=True)
class FileNumbers:
    """Numbers of the live files of a version, as arrays that are sorted by key."""

    keys: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    #: `UNKNOWN_ROWS` where the table does not record them.
    rows: NDArray[np.int64]
    deleted: NDArray[np.int64]
    #: Indices of `partition_names`.
    partitions: NDArray[np.int32]
    partition_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Sequence[FileEntry], known: Sequence[str] = ()) -> Self:
        """Return the numbers of some files; of a key that comes twice both are kept."""
        numbers = {name: number for number, name in enumerate(known)}
        for entry in entries:
            numbers.setdefault(entry.partition, len(numbers))
        keys = np.array([entry.key for entry in entries], np.uint64)
        order = np.argsort(keys, kind="stable")
        return cls(
            keys[order],
            np.array([entry.bytes for entry in entries], np.int64)[order],
            np.array([entry.rows for entry in entries], np.int64)[order],
            np.array([entry.deleted for entry in entries], np.int64)[order],
            np.array([numbers[entry.partition] for entry in entries], np.int32)[order],
            tuple(numbers),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __eq__(self, other: object) -> bool:
        """Say whether both know the same files; partitions are compared by name."""
        if not isinstance(other, FileNumbers) or len(self) != len(other):
            return False
        same = (np.array_equal(getattr(self, n), getattr(other, n)) for n in list(_COLUMNS)[:4])
        return all(same) and self._names() == other._names()

    __hash__ = None  # type: ignore[assignment]

    def _names(self) -> list[str]:
        return [self.partition_names[number] for number in self.partitions.tolist()]

    def apply(self, newest: Mapping[int, FileEntry | None]) -> FileNumbers:
        """Return the numbers after changes: by key the live file; None: it was removed."""
        if not newest:
            return self
        touched = np.fromiter(newest, np.uint64, len(newest))
        kept = ~np.isin(self.keys, touched)
        added = FileNumbers.of(
            [entry for entry in newest.values() if entry is not None], self.partition_names
        )
        columns = {
            name: np.concatenate([getattr(self, name)[kept], getattr(added, name)])
            for name in _COLUMNS
        }
        order = np.argsort(columns["keys"], kind="stable")
        sorted_columns = {name: column[order] for name, column in columns.items()}
        changed = FileNumbers(**sorted_columns, partition_names=added.partition_names)
        return changed.without_empty_partitions()

    def without_empty_partitions(self) -> FileNumbers:
        """Forget partitions without files once there are many: a table may get one per hour."""
        used = np.unique(self.partitions)
        if len(self.partition_names) <= 2 * len(used) + 16:
            return self
        numbers = np.searchsorted(used, self.partitions).astype(np.int32)
        names = tuple(self.partition_names[number] for number in used.tolist())
        return replace(self, partitions=numbers, partition_names=names)

    def sizes_of(self, keys: Iterable[int]) -> dict[int, int]:
        """Return the sizes of those files that are known."""
        wanted = np.isin(self.keys, np.fromiter(keys, np.uint64))
        found = zip(self.keys[wanted].tolist(), self.sizes[wanted].tolist(), strict=True)
        return dict(found)

    def encode(self) -> bytes:
        names = json.dumps(self.partition_names).encode()
        columns = (getattr(self, name).astype(kind).tobytes() for name, kind in _COLUMNS.items())
        head = f"{len(self)} {len(names)}\n".encode()
        return zlib.compress(b"".join((head, names, *columns)), 1)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote; ValueError if it is something else."""
        try:
            plain = zlib.decompress(data)
        except zlib.error as error:
            raise ValueError(f"not a summary of files: {error}") from error
        head, _, rest = plain.partition(b"\n")
        count, length = map(int, head.split())
        names, offset, columns = tuple(json.loads(rest[:length])), length, {}
        for name, kind in _COLUMNS.items():
            columns[name] = np.frombuffer(rest, kind, count, offset)
            offset += columns[name].nbytes
        return cls(**columns, partition_names=names)


NO_FILES = FileNumbers.of(())


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSummary:
    """Numbers of a table at one version."""

    version: int
    #: Tells the commit of `version` from that of another table at the same place.
    mark: str
    #: Identity of the table itself; a table that was replaced has another.
    table_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    #: Whether the table or some of its files have a clustering order.
    is_clustered: bool = False
    checkpoint_version: int | None = None
    #: Commits since the first summary, and what they removed.
    commits_applied: int = 0
    removed_file_count: int = 0
    removed_bytes: int = 0
    #: What only the table's format knows, as JSON.
    native: Mapping[str, Any] = field(default_factory=dict)
    files: FileNumbers = field(default_factory=lambda: NO_FILES)

    @property
    def commits_since_checkpoint(self) -> int:
        """Commits to replay when the table is opened; without a checkpoint, all."""
        return self.version - (-1 if self.checkpoint_version is None else self.checkpoint_version)

    def to_json(self) -> dict[str, Any]:
        """Return all but the files."""
        names = (name for name in self.__dataclass_fields__ if name != "files")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], files: bytes) -> Self:
        """Read what `to_json` and `FileNumbers.encode` wrote; ValueError if it is not usable."""
        try:
            values = {**document, "partition_columns": tuple(document["partition_columns"])}
            return cls(**values, files=FileNumbers.decode(files))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a summary of a table: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLook:
    """What one listing showed of a table's newest version."""

    version: int
    #: Of the commit of `version`, as `TableSummary.mark`.
    mark: str
    #: What the format saw, for `update_summary`.
    seen: Any = None
