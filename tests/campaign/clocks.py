"""Clocks that are wrong: a process whose time differs by up to ten minutes, and jumps.

Files keep the times of the machine, as on a server that several machines write to.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import Ended, Place, Process, Verb

if TYPE_CHECKING:
    import random
    from collections import Counter

_FARTHEST_SECONDS = 600
#: A clock jumps within this time after its process was started.
_JUMP_SECONDS = 2.0
_PLACES = (Path(__file__).parents[2] / ".cache" / "faketime", Path("/"))


def find_library() -> Path | None:
    """Return the library that changes the time of a process; scripts/install-faketime gets it."""
    for place in _PLACES:
        for found in place.glob("usr/lib/*/faketime/libfaketimeMT.so.1"):
            return found
    return None


class Clock:
    """The clock of the processes of a trial."""

    def __init__(self, file: Path, chance: random.Random, counts: Counter[str]) -> None:
        self._file, self._chance, self._counts = file, chance, counts
        library = find_library()
        if library is None:
            raise RuntimeError("libfaketime is missing: run scripts/install-faketime")
        self.environment = (
            ("LD_PRELOAD", str(library)),
            ("FAKETIME_TIMESTAMP_FILE", str(file)),
            # A process reads the file whenever it asks for the time, also one that was forked.
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        )

    def set(self) -> int:
        """Set the clock to another time, and return by how many seconds it is wrong."""
        seconds = self._chance.randint(-_FARTHEST_SECONDS, _FARTHEST_SECONDS)
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)
        self._counts["clocks_set"] += 1
        return seconds

    def jump_later(self) -> threading.Timer:
        timer = threading.Timer(self._chance.uniform(0, _JUMP_SECONDS), self.set)
        timer.start()
        return timer


class ClockedProcess(Process):
    """The process of a verb, with a clock of its own that jumps once."""

    def __init__(self, clock: Clock, place: Place, verb: Verb, folder: Path) -> None:
        clock.set()
        super().__init__(replace(place, environment=clock.environment), verb, folder)
        self._jump = clock.jump_later()

    def end(self) -> Ended:
        ended = super().end()
        self._jump.cancel()
        self._jump.join()
        return ended
