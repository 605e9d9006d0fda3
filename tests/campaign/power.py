"""Power cuts: of a local directory survives what was synced, and of the rest whatever chance keeps.

A process that runs beneath `remember_syncs` copies what it syncs: contents of files, and entries of
directories, both by inode. A cut builds the directory again from these copies.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import Death, Ended, Place, Process, Verb

if TYPE_CHECKING:
    import random
    from collections import Counter

#: Of entries and of contents that were not synced: which share survives.
_LUCK = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.5))


class Disk:
    """A directory on a disk whose power fails."""

    def __init__(self, root: Path, memory: Path, chance: random.Random) -> None:
        self.root, self.memory, self._chance = root, memory, chance
        self.counts: Counter[str] | None = None

    def sync(self) -> None:
        """Make everything survive that is there now."""
        shutil.rmtree(self.memory, ignore_errors=True)
        self.memory.mkdir(parents=True)
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):  # noqa: PTH118
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    remember(self.memory, descriptor)
                finally:
                    os.close(descriptor)

    def cut(self) -> int:
        """Set the directory back to what a power cut leaves; return how many things were lost."""
        cut = _Cut(self)
        rebuilt = self.root.with_name("rebuilt")
        cut.build_directory(self.root.stat().st_ino, rebuilt)
        shutil.rmtree(self.root)
        rebuilt.rename(self.root)
        return cut.lost

    def draw_luck(self) -> tuple[float, float]:
        return self._chance.choice(_LUCK)

    def draw(self, share: float) -> bool:
        return self._chance.random() < share


class _Cut:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._entries, self._contents = disk.draw_luck()
        self._now: dict[int, Path] = {}
        for folder, _, names in os.walk(disk.root):
            for path in (Path(folder), *(Path(folder, name) for name in names)):
                self._now[path.stat().st_ino] = path
        self.lost = 0

    def build_directory(self, inode: int, place: Path) -> None:
        place.mkdir()
        stored = self._disk.memory / f"{inode}.directory"
        synced = json.loads(stored.read_text()) if stored.exists() else {}
        now = _entries_of(self._now[inode]) if inode in self._now else {}
        for name in sorted({*synced, *now}):
            kept, found = synced.get(name), now.get(name)
            if kept != found:
                is_lucky = self._disk.draw(self._entries)
                self.lost += not is_lucky
                kept = found if is_lucky else kept
            if kept is not None:
                build = self.build_directory if kept["is_directory"] else self._build_file
                build(kept["inode"], place / name)

    def _build_file(self, inode: int, place: Path) -> None:
        stored, path = self._disk.memory / str(inode), self._now.get(inode)
        synced = stored.read_bytes() if stored.exists() else b""
        now = path.read_bytes() if path is not None else synced
        if now != synced:
            is_lucky = self._disk.draw(self._contents)
            self.lost += not is_lucky
            synced = now if is_lucky else synced
        place.write_bytes(synced)
        times = path if path is not None else stored
        if times.exists():
            found = times.stat()
            os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))


def _entries_of(folder: Path | int) -> dict[str, dict[str, int | bool]]:
    with os.scandir(folder) as entries:
        return {
            entry.name: {
                "inode": entry.inode(),
                "is_directory": entry.is_dir(follow_symlinks=False),
            }
            for entry in entries
        }


_numbers = itertools.count()


def _hold(memory: Path, name: str, folder: int, inode: int) -> None:
    """Keep a file alive that an entry names: another one must not get its inode."""
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.link(name, memory / f"{inode}.held", src_dir_fd=folder)


def remember(memory: Path, descriptor: int) -> None:
    """Copy what a descriptor has now; nothing of it counts if this is interrupted."""
    found = os.fstat(descriptor)
    temporary = memory / f"new-{os.getpid()}-{next(_numbers)}"
    if stat.S_ISDIR(found.st_mode):
        entries = _entries_of(descriptor)
        for name, entry in entries.items():
            if not entry["is_directory"]:
                _hold(memory, name, descriptor, int(entry["inode"]))
        temporary.write_text(json.dumps(entries))
        temporary.replace(memory / f"{found.st_ino}.directory")
        return
    content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
    temporary.write_bytes(content)
    os.utime(temporary, ns=(found.st_atime_ns, found.st_mtime_ns))
    temporary.replace(memory / str(found.st_ino))


def remember_syncs(memory: Path, root: Path) -> None:
    """Copy from now on what this process syncs on the disk of `root`, in place of syncing it."""
    disk = root.stat().st_dev
    # Of two threads that sync a directory, the one that saw less of it must not be the last.
    alone = threading.Lock()

    def sync(descriptor: int) -> None:
        if os.fstat(descriptor).st_dev == disk:
            with alone:
                remember(memory, descriptor)

    os.fsync = os.fdatasync = sync  # type: ignore[assignment]


class PoweredProcess(Process):
    """The process of a verb, after whose end the power fails."""

    def __init__(
        self, disk: Disk, place: Place, verb: Verb, folder: Path, *, death: Death | None = None
    ) -> None:
        self._disk = disk
        disk.sync()
        super().__init__(place, verb, folder, death=death)

    def end(self) -> Ended:
        ended = super().end()
        lost = self._disk.cut()
        if self._disk.counts is not None:
            self._disk.counts["power_cuts"] += 1
            self._disk.counts["unsynced changes lost"] += lost
        return ended
