"""Lists local directories as packed columns, in this or in a separate process.

As a script, it answers requests on standard input until end of file. It imports only a few modules
of the standard library, so that such a process starts in hundredths of a second.
"""

from __future__ import annotations

import json
import os
import sys
from array import array

_NANOSECONDS = 1000


class Listing:
    """The files directly in some directories, as columns, and other entries."""

    def __init__(self) -> None:
        #: All keys concatenated, in UTF-8, and where each of them ends.
        self.keys = bytearray()
        self.ends = array("i", [0])
        self.sizes = array("q")
        #: Microseconds since 1970.
        self.modified = array("q")
        #: Indexes of files whose names start with a dot.
        self.hidden: list[int] = []
        self.directories: list[str] = []
        #: Paths of symbolic links.
        self.links: list[str] = []

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, root: bytes, directory: str) -> None:
        """Add the entries of `directory`; a missing one has none."""
        prefix = f"{directory}/".encode() if directory else b""
        try:
            entries = os.scandir(root + b"/" + prefix)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                if _is_utf8(entry.name):
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
            # A file that is deleted during the listing does not exist.
            return
        if entry.name[0] == b"."[0]:
            self.hidden.append(len(self.sizes))
        self.keys += prefix + entry.name
        self.ends.append(len(self.keys))
        self.sizes.append(status.st_size)
        self.modified.append(status.st_mtime_ns // _NANOSECONDS)


def list_directories(root: str, directories: list[str]) -> Listing:
    """Return the entries of `directories`, which are keys below `root`."""
    listing, directory_root = Listing(), os.fsencode(root)
    for directory in directories:
        listing.take(directory_root, directory)
    return listing


def _is_utf8(name: bytes) -> bool:
    """Return whether a name is valid UTF-8: others cannot be keys."""
    if name.isascii():
        return True
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _answer(line: bytes) -> list[bytes]:
    """Return a line of JSON, and the packed columns whose lengths it contains."""
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
