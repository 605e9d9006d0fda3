"""What a process and everything it started use: memory at its peak, and the work of all cores."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_SAMPLE_SECONDS = 0.05
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Sums over a process and its descendants."""

    #: Resident memory; pages that processes share are counted for each of them.
    rss_bytes: int
    #: User and system time, that of ended and awaited children included.
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Process:
    parent: int
    ticks: int
    pages: int


def usage_of(pid: int) -> Usage:
    """Return what the process `pid` and its descendants use now."""
    processes = _all_processes()
    children: dict[int, list[int]] = {}
    for number, process in processes.items():
        children.setdefault(process.parent, []).append(number)
    family, waiting = [], [pid]
    while waiting:
        member = waiting.pop()
        family.append(processes.get(member))
        waiting += children.get(member, [])
    living = [process for process in family if process is not None]
    return Usage(
        rss_bytes=sum(process.pages for process in living) * _PAGE_BYTES,
        cpu_seconds=sum(process.ticks for process in living) * _TICK_SECONDS,
    )


def _all_processes() -> dict[int, _Process]:
    found = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = _parse(stat.read_text(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since the listing
    return found


def _parse(stat: str) -> _Process:
    # The name in parentheses may hold spaces and parentheses itself; the fields come after it.
    fields = stat.rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])
    return _Process(parent=int(fields[1]), ticks=ticks, pages=int(fields[21]))


def peak_mib() -> float:
    """Return the most memory that this process has had; `ru_maxrss` counts its parent's as well."""
    status = (_PROC / "self" / "status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


class Watch:
    """Watches a process while the block runs; what it found is there afterwards."""

    def __init__(self, pid: int, *, sample_seconds: float = _SAMPLE_SECONDS) -> None:
        self._pid = pid
        self._sample_seconds = sample_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_sampling, daemon=True)
        self.peak_rss_bytes = 0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Self:
        before = usage_of(self._pid)
        self.cpu_seconds = -before.cpu_seconds
        self.peak_rss_bytes = before.rss_bytes
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.cpu_seconds += self.sample().cpu_seconds

    def _keep_sampling(self) -> None:
        while not self._done.wait(self._sample_seconds):
            self.sample()

    def sample(self) -> Usage:
        usage = usage_of(self._pid)
        self.peak_rss_bytes = max(self.peak_rss_bytes, usage.rss_bytes)
        return usage
