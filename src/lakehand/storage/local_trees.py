"""Many files of the local disk at once: listed and deleted by directory."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from lakehand.errors import StorageError, UnsafePathError
from lakehand.storage.keys import join_key
from lakehand.storage.scanning import Scanned, batch_of_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Refusal", "remove_empty_directories", "scan_directory", "unlink_all"]

#: A file that would not go, and why.
Refusal = tuple[str, OSError | StorageError]
#: System calls let other threads run; more of them than this only wait for the same disk.
_THREADS = 4
_NANOSECONDS = 1000


class _Columns:
    """The files of one directory, column by column."""

    def __init__(self, directory: str, is_unfinished: Callable[[str], bool]) -> None:
        self._prefix = join_key(directory, "")
        self._is_unfinished = is_unfinished
        self._keys: list[str] = []
        self._sizes: list[int] = []
        self._modified_us: list[int] = []
        self._unfinished: list[bool] = []

    def take(self, entry: os.DirEntry[str]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            # A file that vanishes while the listing runs is not there.
            return
        self._keys.append(self._prefix + entry.name)
        self._sizes.append(status.st_size)
        self._modified_us.append(status.st_mtime_ns // _NANOSECONDS)
        self._unfinished.append(entry.name[0] == "." and self._is_unfinished(entry.name))

    def scanned(self, directories: Sequence[str]) -> Scanned:
        objects = batch_of_columns(self._keys, self._sizes, self._modified_us, self._unfinished)
        return Scanned(objects=objects, directories=tuple(directories))


def scan_directory(root: str, directory: str, *, is_unfinished: Callable[[str], bool]) -> Scanned:
    """Return the files right in `directory` and the directories below it.

    Links that leave the root are no part of it. One that stays inside gives a file two names, of
    which others may know the other: UnsafePathError. A name that is no text names no object.
    """
    columns, directories = _Columns(directory, is_unfinished), []
    try:
        entries = os.scandir(f"{root}/{directory}")
    except (FileNotFoundError, NotADirectoryError):
        return columns.scanned(())
    with entries:
        for entry in entries:
            if not _is_text(entry.name):
                continue
            if entry.is_file(follow_symlinks=False):
                columns.take(entry)
            elif entry.is_dir(follow_symlinks=False):
                directories.append(join_key(directory, entry.name))
            elif entry.is_symlink():
                _refuse_inside(root, entry.path)
    return columns.scanned(directories)


def _is_text(name: str) -> bool:
    """Say whether a name is valid UTF-8: Python keeps other bytes as lone surrogates."""
    return name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)


def _refuse_inside(root: str, link: str) -> None:
    target = os.path.realpath(link)
    if target == root or target.startswith(root.rstrip("/") + "/"):
        raise UnsafePathError(
            f"{link} is a symbolic link to {target}, so a file of {root} has two names",
            path=link,
            hint="put the file itself in place of the link: nobody can tell who uses which name",
        )


def unlink_all(keys: Sequence[str], open_directory: Callable[[str], int]) -> list[Refusal]:
    """Delete files, directory by directory; return those that would not go.

    Nothing is made durable: a file that is back after a power failure is found again.
    """
    groups = [
        (directory, list(group))
        for directory, group in groupby(keys, key=lambda key: key.rpartition("/")[0])
    ]

    def unlink_group(group: tuple[str, list[str]]) -> list[Refusal]:
        return list(_unlink_in(*group, open_directory))

    if len(groups) == 1:
        return unlink_group(groups[0])
    with ThreadPoolExecutor(min(_THREADS, len(groups) or 1)) as pool:
        return [failure for failures in pool.map(unlink_group, groups) for failure in failures]


def _unlink_in(
    directory: str, keys: list[str], open_directory: Callable[[str], int]
) -> Iterator[Refusal]:
    skip = len(directory) + 1 if directory else 0
    try:
        descriptor = open_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, StorageError) as error:
        yield from ((key, error) for key in keys)
        return
    try:
        for key in keys:
            try:
                os.unlink(key[skip:], dir_fd=descriptor)
            except FileNotFoundError:
                pass
            except OSError as error:
                yield key, error
    finally:
        os.close(descriptor)


def remove_empty_directories(root: str, directories: Sequence[str]) -> int:
    """Remove those of `directories` that are empty, and parents that become so; return how many.

    Only `rmdir` is used, which never removes a directory that somebody has just put a file into.
    """
    removed = 0
    for directory in sorted(directories, reverse=True):
        removed += sum(1 for _ in _remove_upwards(Path(root), Path(root) / directory))
    return removed


def _remove_upwards(root: Path, directory: Path) -> Iterator[Path]:
    while directory != root:
        try:
            directory.rmdir()
        except OSError:
            return
        yield directory
        directory = directory.parent
