"""How much memory worker processes have at their peak, and how much disk tasks use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lakehand.engine.local_worker import end_idle_workers

if TYPE_CHECKING:
    from collections.abc import Iterable

_SAMPLE_SECONDS = 0.05
#: A process that is ready for its first task.
_IDLE = """
import duckdb, lakehand.formats.delta.worker, lakehand.rewrite.task
from pathlib import Path
duckdb.connect(config={"threads": 1}).execute("SELECT 1")
print(Path("/proc/self/status").read_text())
"""


def idle_worker_bytes() -> int:
    """Return what a worker takes before it has done anything: interpreter and libraries."""
    done = subprocess.run([sys.executable, "-c", _IDLE], capture_output=True, text=True, check=True)
    return _peak_bytes(done.stdout)


class WorkerWatch:
    """Looks at children that this process gets while the block runs, and at a directory."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        # One that has run other tasks would not be seen here, and holds memory of theirs.
        end_idle_workers()
        #: Servers and sessions of other tests.
        self._others = frozenset(_children())
        self.peak_bytes = 0
        self.peak_scratch_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            workers = set(_children()) - self._others
            self.peak_bytes = max([self.peak_bytes, *map(_peak_of, workers)])
            held = _bytes_below(self._scratch) + _nameless_bytes(workers, self._scratch)
            self.peak_scratch_bytes = max(self.peak_scratch_bytes, held)


def _children() -> list[int]:
    found = []
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        try:
            found += [int(pid) for pid in (thread / "children").read_text().split()]
        except OSError:
            continue  # the thread has ended
    return found


def _peak_of(pid: int) -> int:
    process = Path(f"/proc/{pid}")
    try:
        # Until it has begun its own program, a child seems to have the memory of its parent.
        if b"lakehand.engine" not in (process / "cmdline").read_bytes():
            return 0
        return _peak_bytes((process / "status").read_text())
    except OSError:
        return 0  # the process has ended


def _peak_bytes(status: str) -> int:
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def _bytes_below(directory: Path) -> int:
    total = 0
    # A walk passes over directories that are deleted meanwhile; `rglob` fails on them.
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(folder, name).stat().st_size
            except OSError:
                continue  # deleted since the listing
    return total


def _nameless_bytes(pids: Iterable[int], directory: Path) -> int:
    """Return what processes hold in files that have no name any more, each counted once."""
    sizes: dict[int, int] = {}
    for pid in pids:
        try:
            opened = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue  # the process has ended
        for file in opened:
            try:
                target, found = str(file.readlink()), file.stat()
            except OSError:
                continue  # closed since the listing
            if target.startswith(f"{directory}/") and target.endswith("(deleted)"):
                sizes[found.st_ino] = found.st_size
    return sum(sizes.values())
