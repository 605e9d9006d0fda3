"""Many files of the local disk at once: listed and deleted by directory."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import StorageError, UnsafePathError
from lakehand.storage.scanning import SCAN_SCHEMA, Scanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakehand.storage.tree_listing import Listing

__all__ = ["Refusal", "remove_empty_directories", "scanned", "unlink_all"]

#: A file that would not go, and why.
Refusal = tuple[str, OSError | StorageError]


def scanned(root: str, found: Listing, *, is_unfinished: Callable[[str], bool]) -> Scanned:
    """Return a listing as columns of Arrow.

    Links that leave the root are no part of it. One that stays inside gives a file two names, of
    which others may know the other: UnsafePathError.
    """
    for link in found.links:
        _refuse_inside(root, link)
    count = len(found)
    ends, keys = pa.py_buffer(found.ends.tobytes()), pa.py_buffer(bytes(found.keys))
    modified_at = SCAN_SCHEMA.field("modified_at").type
    columns = [
        pa.StringArray.from_buffers(count, ends, keys),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(found.sizes.tobytes())]),
        pa.Array.from_buffers(modified_at, count, [None, pa.py_buffer(found.modified.tobytes())]),
        _unfinished(found, is_unfinished),
    ]
    objects = pa.RecordBatch.from_arrays(columns, schema=SCAN_SCHEMA)
    return Scanned(objects=objects, directories=tuple(found.directories))


def _unfinished(found: Listing, is_unfinished: Callable[[str], bool]) -> pa.Array:
    flags = np.zeros(len(found), bool)
    for place in found.hidden:
        key = found.keys[found.ends[place] : found.ends[place + 1]].decode()
        flags[place] = is_unfinished(key.rpartition("/")[2])
    return pa.array(flags)


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
