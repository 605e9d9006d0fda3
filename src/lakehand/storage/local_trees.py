"""Many files of the local disk at once: listed and deleted by directory."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from lakehand.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


__all__ = ["Refusal", "remove_empty_directories", "unlink_all"]

#: A file that would not go, and why.
Refusal = tuple[str, OSError | StorageError]


def unlink_all(keys: Sequence[str], open_directory: Callable[[str], int]) -> list[Refusal]:
    """Delete files, directory by directory; return those that would not go.

    One after the other: file systems take deletions one at a time, and those who wait for each
    other only lose time. Nothing is made durable: a file that is back after a power failure is
    found again.
    """
    groups = groupby(keys, key=lambda key: key.rpartition("/")[0])
    return [
        failure
        for directory, group in groups
        for failure in _unlink_in(directory, list(group), open_directory)
    ]


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
