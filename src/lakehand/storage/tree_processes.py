"""Processes that list directories: threads of one interpreter would wait for each other."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from array import array
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Self, cast

from lakehand.storage import tree_listing
from lakehand.storage.tree_listing import Listing, list_directories

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TreeProcesses"]

#: Fewer directories are listed here: to ask another process takes as long.
_WORTH_ASKING = 8


class TreeProcesses:
    """Lists directories; many at a time in processes, which end with the block."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._idle: queue.LifoQueue[_TreeProcess] = queue.LifoQueue()

    def list(self, directories: Sequence[str]) -> Listing:
        """Return what is right in `directories`. Several threads may ask; each has a process."""
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
        # Isolated and without site packages: nothing of the user's is imported.
        command = [sys.executable, "-I", "-S", tree_listing.__file__]
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
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
