"""Directories of the local disk, listed as packed columns: here, or in a process of its own.

Run as a script, it answers requests on standard input until that ends. So it imports nothing but
a few modules of the standard library: such a process is there in hundredths of a second.
"""

from __future__ import annotations

import json
import os
import sys
from array import array

__all__ = ["Listing", "list_directories"]

_NANOSECONDS = 1000


class Listing:
    """The files right in some directories, column by column, and what else was found."""

    def __init__(self) -> None:
        #: All keys in one piece, in UTF-8, and where each of them ends.
        self.keys = bytearray()
        self.ends = array("i", [0])
        self.sizes = array("q")
        #: Microseconds since 1970.
        self.modified = array("q")
        #: Places of files whose names begin with a dot.
        self.hidden: list[int] = []
        self.directories: list[str] = []
        #: Paths of symbolic links.
        self.links: list[str] = []

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, root: bytes, directory: str) -> None:
        """Add what is right in `directory`; one that is gone holds nothing."""
        prefix = f"{directory}/".encode() if directory else b""
        try:
            entries = os.scandir(root + b"/" + prefix)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                if _is_text(entry.name):
                    self._take_entry(prefix, entry)

    def _take_entry(self, prefix: bytes, entry: os.DirEntry[bytes]) -> None:
        if entry.is_file(follow_symlinks=False):
            self._take_file(prefix, entry)
        elif entry.is_dir(follow_symlinks=False):
            self.directories.append((prefix + entry.name).decode())
        elif entry.is_symlink():
            self.links.append(os.fsdecode(entry.path))

    def _take_file(self, prefix: bytes, entry: os.DirEntry[bytes]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            # A file that vanishes while the listing runs is not there.
            return
        if entry.name[0] == b"."[0]:
            self.hidden.append(len(self.sizes))
        self.keys += prefix + entry.name
        self.ends.append(len(self.keys))
        self.sizes.append(status.st_size)
        self.modified.append(status.st_mtime_ns // _NANOSECONDS)


def list_directories(root: str, directories: list[str]) -> Listing:
    """Return what is right in `directories`, which are keys below `root`."""
    listing, place = Listing(), os.fsencode(root)
    for directory in directories:
        listing.take(place, directory)
    return listing


def _is_text(name: bytes) -> bool:
    """Say whether a name is valid UTF-8: nothing else can be a key."""
    if name.isascii():
        return True
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _answer(line: bytes) -> list[bytes]:
    """Return a line of JSON, and the packed columns whose lengths it tells."""
    request = json.loads(line)
    try:
        found = list_directories(request["root"], request["directories"])
    except OSError as error:
        failure = {"errno": error.errno, "path": os.fsdecode(error.filename or "")}
        return [json.dumps({"failure": failure}).encode() + b"\n"]
    columns = [bytes(found.keys), *(c.tobytes() for c in (found.ends, found.sizes, found.modified))]
    header = {
        "lengths": [len(column) for column in columns],
        "hidden": found.hidden,
        "directories": found.directories,
        "links": found.links,
    }
    return [json.dumps(header).encode() + b"\n", *columns]


def _serve() -> None:
    for line in sys.stdin.buffer:
        sys.stdout.buffer.writelines(_answer(line))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
