"""The directory of a log: who has it open, and which table it is of."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from lakehand.errors import HotLogError, HotLogLockedError, ValidationError
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.quantities import parse_local_path
from lakehand.storage.local_files import TemporaryFile, make_directory, translated

__all__ = ["DirectoryLock", "Manifest", "claim", "log_directory", "new_writer_id"]

_LOCK = "lock"
_MANIFEST = "hot.json"
_FORMAT = 1


def log_directory(path: str | Path | None, *, field: str) -> Path | None:
    """Return where a log is kept; ValidationError if it is a URL of anything but a local disk."""
    if path is None:
        return None
    try:
        return Path(parse_local_path(path)).absolute()
    except ValueError as error:
        raise ValidationError(
            f"the log of a hot table cannot be kept there: {error}",
            field=field,
            value=str(path),
            hint="a log is synced with every change, which object stores cannot do; give a"
            " directory on a local disk",
        ) from error


class DirectoryLock:
    """Held by one process at a time; the system frees it when that ends, in whichever way."""

    def __init__(self, directory: Path) -> None:
        """Create the directory, if need be, and lock it; HotLogLockedError if somebody has."""
        path = str(directory / _LOCK)
        with translated("put", path):
            make_directory(str(directory))
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise HotLogLockedError(
                f"the log {directory} is open already, here or in another process",
                path=str(directory),
                hint="one process at a time has a log open; give each its own directory",
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a log is for. It stays the same as long as the log is there."""

    #: URL of the table.
    table: str
    #: What tells the table from one that was created later at the same place.
    table_id: str | None
    #: The name under which the log's epochs are in the table.
    writer_id: str
    #: Columns by which the newest row wins; empty: all rows count.
    key: tuple[str, ...]
    #: What tells the log from others of the same name; None where no other has made up the same.
    log_id: str | None = None

    @classmethod
    def of(cls, text: bytes, path: Path) -> Self:
        try:
            document = parse_object(text)
            if document.get("format") == _FORMAT:
                return read_value(cls, document)
        except DocumentError as error:
            raise _unreadable(path) from error
        raise _unreadable(path)


def claim(
    directory: Path,
    *,
    table: str,
    table_id: str | None,
    key: tuple[str, ...],
    writer_id: str | None,
) -> Manifest:
    """Return what the log in `directory` is for; a new one is for what is asked for.

    HotLogError if it is the log of another table, ValidationError if of another key or writer.
    """
    path = directory / _MANIFEST
    if not path.exists():
        _require_no_segments(directory, path)
        manifest = Manifest(
            table=table,
            table_id=table_id,
            writer_id=writer_id or new_writer_id(),
            key=key,
            log_id=uuid.uuid4().hex if writer_id else None,
        )
        _write(path, manifest)
        return manifest
    with translated("get", str(path)):
        manifest = Manifest.of(path.read_bytes(), path)
    if manifest.table_id != table_id:
        raise HotLogError(
            f"the log {directory} is of the table that was at {manifest.table}, and not of the one"
            f" that is at {table} now",
            path=str(directory),
            hint="nothing was changed; bring the table back, or begin with an empty directory",
        )
    _require("key", manifest.key, key, directory)
    _require("writer_id", manifest.writer_id, writer_id or manifest.writer_id, directory)
    return manifest


def _require_no_segments(directory: Path, path: Path) -> None:
    """Raise HotLogError if there are changes of which nobody knows under which name they went."""
    with translated("list", str(directory)):
        if any(directory.glob("*.wal")):
            raise _unreadable(path)


def new_writer_id() -> str:
    return f"hot-{uuid.uuid4().hex}"


def _require(field: str, there: object, asked: object, directory: Path) -> None:
    if there != asked:
        message = f"the log {directory} was begun with the {field} {there!r}, and not {asked!r}"
        raise ValidationError(message, field=field, value=asked)


def _write(path: Path, manifest: Manifest) -> None:
    text = json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1)
    with translated("put", str(path)):
        file = TemporaryFile(str(path))
        try:
            file.write(memoryview(text.encode()))
            file.replace_target()
        except BaseException:
            file.remove()
            raise


def _unreadable(path: Path) -> HotLogError:
    return HotLogError(
        f"{path} does not say which table its log is of, or is of another version of lakehand",
        path=str(path),
        hint="nothing was changed; restore it from a copy",
    )
