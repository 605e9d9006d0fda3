"""Many local files at once: listed in separate processes, deleted by directory."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from array import array
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

from lakehand.errors import StorageError
from lakehand.storage import tree_listing
from lakehand.storage.tree_listing import Listing, list_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Fewer directories are listed in this process: a request to another one takes as long.
_WORTH_ASKING = 8


class TreeProcesses:
    """Lists directories; many at a time in worker processes, which end with the block."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._idle: queue.LifoQueue[_TreeProcess] = queue.LifoQueue()

    def list(self, directories: Sequence[str]) -> Listing:
        """List the entries of `directories`. Thread-safe; each thread uses its own process."""
        if len(directories) < _WORTH_ASKING:
            return list_directories(self._root, list(directories))
        process = self._take()
        try:
            found = process.list(self._root, directories)
        except OSError:
            process.close()
            raise
        self._idle.put(process)
        return found

    def _take(self) -> _TreeProcess:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return _TreeProcess()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


class _TreeProcess:
    def __init__(self) -> None:
        # Isolated and without site packages, so that no user code is imported.
        command = [sys.executable, "-I", "-S", tree_listing.__file__]
        self._process = subprocess.Popen(  # noqa: S603  lakehand's own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def list(self, root: str, directories: Sequence[str]) -> Listing:
        request = {"root": root, "directories": list(directories)}
        requests, answers = cast("IO[bytes]", self._process.stdin), self._answers
        requests.write(json.dumps(request).encode() + b"\n")
        requests.flush()
        header = answers.readline()
        if not header:
            raise OSError(f"the process that lists {root} has ended: {self._process.wait()}")
        return self._listing(json.loads(header))

    @property
    def _answers(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def _listing(self, header: dict[str, Any]) -> Listing:
        if failure := header.get("failure"):
            raise OSError(failure["errno"], os.strerror(failure["errno"]), failure["path"])
        listing = Listing()
        columns = [self._answers.read(length) for length in header["lengths"]]
        listing.keys = bytearray(columns[0])
        listing.ends = array("i", columns[1])
        listing.sizes = array("q", columns[2])
        listing.modified = array("q", columns[3])
        listing.hidden = header["hidden"]
        listing.directories = header["directories"]
        listing.links = header["links"]
        return listing

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()


#: A file that could not be deleted, and why.
Refusal = tuple[str, OSError | StorageError]


def unlink_all(keys: Sequence[str], open_directory: Callable[[str], int]) -> list[Refusal]:
    """Delete files, directory by directory; return those that could not be deleted.

    Sequentially: file systems serialize deletions, and parallel ones only wait for each other.
    Deletions are not synced: a file that reappears after a power failure is found again.
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
    """Remove empty `directories`, and parents that become empty; return how many.

    Only `rmdir` is used, which never removes a directory in which a file was just created.
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
