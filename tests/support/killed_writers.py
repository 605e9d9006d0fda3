"""Writers in processes of their own, which are killed again and again until their work is done."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError
from lakehand.observe.steps import Step, listen
from support.compactions import compact_inline
from support.sinks import write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A server that has imported what writers need, and started no thread, makes one in milliseconds.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["support.killed_writers", "lakehand.formats.delta.table"])

#: Longest life of a writer, in steps: more than it needs for all of its epochs.
_LONG_LIFE = 400


def write_until_killed(steps: int, place: str, epochs: int, writer: str, options: Any) -> None:
    """Bring epochs into a table, and die by SIGKILL after so many steps."""
    left = steps
    lock = threading.Lock()

    def die_in_the_end(_step: Step) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    listen(die_in_the_end)
    write_epochs(place, epochs, writer, **options)


class MortalWriter:
    """Brings its epochs into the table, however many lives it takes."""

    def __init__(self, place: str, epochs: int, name: str, chance: random.Random, **options: Any):
        self._arguments = (place, epochs, name, options)
        self._chance = chance
        self.lives = 0
        self._process: Any = None

    def is_done(self) -> bool:
        """Look after the writer; start it again if it was killed."""
        if self._process is not None:
            self._process.join(timeout=0.1)
            if self._process.is_alive():
                return False
            if self._process.exitcode == 0:
                return True
            assert self._process.exitcode == -signal.SIGKILL, f"exit {self._process.exitcode}"
        self.lives += 1
        steps = self._chance.choice([self._chance.randint(1, 30), _LONG_LIFE])
        self._process = _processes.Process(
            target=write_until_killed, args=(steps, *self._arguments)
        )
        self._process.start()
        return False


def run_mortal_writers(
    place: Path, seed: int, *, epochs: int, beside: Callable[[], None], **options: Any
) -> int:
    """Let two writers bring their epochs in, with something else going on; return their lives."""
    chance = random.Random(seed)
    names = ("writer-1", "writer-2")
    writers = [MortalWriter(str(place), epochs, name, chance, **options) for name in names]
    at_work = writers
    while at_work:
        at_work = [writer for writer in at_work if not writer.is_done()]
        beside()
    return sum(writer.lives for writer in writers)


def compact_now(place: Path) -> None:
    """Compact whatever there is; a table that is not there yet, or just changed, is no failure."""
    with suppress(LakehandError):
        compact_inline(place, "0s", min_files=2)
