"""Writers that append without a pause beside operations, and are killed and started again.

Each writer is a process of its own with rows of its own. It notes how many of its commits were
acknowledged. One that is killed is started again: a writer of lakehand's with the same epoch, which
must not be written twice; one of delta-rs behind the commit of which it got no answer.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from campaign.rounds import BLOCK_IDS, BLOCK_ROWS
from campaign.timed_kill import kill_after
from campaign.verbs import END_SECONDS, Place, rows_of
from campaign.warm import warm_process
from lakehand.errors import LakehandError
from lakehand.sink import TableSink
from support.compactions import tasks_inline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from campaign.warm import ForkedProcess

_FIRST_BLOCK = 1_000_000
#: Most blocks of one writer.
_BLOCKS = 100_000
#: Writers have ids from here on; rounds stay below.
FIRST_ID = _FIRST_BLOCK * BLOCK_IDS
#: Processor time until a writer is killed.
_LIFE_SECONDS = (0.05, 3.0)
#: What a user lets a writer do again.
_ATTEMPTS = 100


@dataclass(frozen=True, kw_only=True)
class Task:
    """Commits of one writer, from the `first` on."""

    place: Place
    engine: str
    number: int
    first: int
    last: int
    life_seconds: float

    def rows(self, commit: int) -> pa.Table:
        return rows_of([_block_of(self.number, commit)])


def _block_of(writer: int, commit: int) -> int:
    return _FIRST_BLOCK + writer * _BLOCKS + commit


@dataclass(kw_only=True)
class _Notes:
    """What a writer tells about itself in a file: its next commit, and how many were refused."""

    path: Path
    commit: int = 0
    refused: int = 0

    def write(self, file: int) -> None:
        # One short write at the beginning of a file is not seen in part.
        os.pwrite(file, f"{self.commit:>12} {self.refused:>12}\n".encode(), 0)

    def read(self) -> Self:
        told = self.path.read_text().split() if self.path.exists() else []
        if told:
            self.commit, self.refused = (int(number) for number in told)
        return self


def write(task: Task, noted: str) -> None:
    """Commit until the last, or until this process is killed."""
    kill_after(task.life_seconds)
    notes = _Notes(path=Path(noted)).read()
    file = os.open(noted, os.O_CREAT | os.O_WRONLY)
    try:
        with ExitStack() as stack, tasks_inline():
            commit = _ENGINES[task.engine](task, stack)
            for number in range(task.first, task.last):
                for attempt in range(_ATTEMPTS):
                    try:
                        commit(number)
                    except (LakehandError, CommitFailedError) as error:
                        if not getattr(error, "retryable", True) or attempt == _ATTEMPTS - 1:
                            raise
                        notes.refused += 1
                    else:
                        break
                notes.commit = number + 1
                notes.write(file)
    except BaseException:
        Path(f"{noted}.error").write_text(traceback.format_exc())
        raise


def _with_delta_rs(task: Task, _stack: ExitStack) -> Callable[[int], None]:
    table = DeltaRsTable(task.place.uri)

    def commit(number: int) -> None:
        try:
            write_deltalake(table, task.rows(number), mode="append")
        except CommitFailedError:
            # It stays at its version, and would find the same conflict again.
            table.update_incremental()
            raise

    return commit


def _with_append(task: Task, _stack: ExitStack) -> Callable[[int], None]:
    table, writer = task.place.open(engine="local"), f"beside-{task.number}"

    def commit(number: int) -> None:
        table.append(task.rows(number), writer_id=writer, epoch=number + 1)

    return commit


def _with_sink(task: Task, stack: ExitStack) -> Callable[[int], None]:
    sink = stack.enter_context(TableSink(task.place.uri, writer_id=f"sink-{task.number}"))

    def commit(number: int) -> None:
        sink.begin_epoch(number + 1)
        for batch in task.rows(number).to_batches():
            sink.write(batch)
        sink.commit_epoch()

    return commit


_ENGINES = {"delta-rs": _with_delta_rs, "append": _with_append, "sink": _with_sink}


@dataclass(kw_only=True)
class _Writer:
    """The processes of one writer, one after another, and what is known of its commits."""

    place: Place
    engine: str
    number: int
    commits: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    #: Commits that were made, or not: the writer was killed before it knew.
    doubtful: set[int] = field(default_factory=set)
    failure: str | None = None

    def __post_init__(self) -> None:
        self._noted = self.folder / f"writer-{self.number}"
        self._chance = random.Random(f"{self.folder.name}-{self.number}")
        self._process: ForkedProcess | None = None
        self._lock, self._is_ended = threading.Lock(), False

    def run(self) -> None:
        """Start processes until all commits are made."""
        try:
            first = 0
            while (process := self._start(first)) is not None:
                process.join(END_SECONDS)
                first = self._next(process)
        except Exception:  # noqa: BLE001  the trial raises it
            self.failure = traceback.format_exc()

    def _start(self, first: int) -> ForkedProcess | None:
        with self._lock:
            if self._is_ended or first >= self.commits:
                return None
            task = Task(
                place=self.place,
                engine=self.engine,
                number=self.number,
                first=first,
                last=self.commits,
                life_seconds=self._chance.uniform(*_LIFE_SECONDS),
            )
            self._process = warm_process(()).fork(write, task, str(self._noted))
            return self._process

    def _next(self, process: ForkedProcess) -> int:
        """Return the commit with which the next process begins."""
        told = _Notes(path=self._noted).read()
        if process.exitcode == 0:
            self.counts["writer_commits"] += self.commits
            self.counts["writer_refusals"] += told.refused
            return self.commits
        if process.exitcode != -signal.SIGKILL:
            error = Path(f"{self._noted}.error")
            reason = error.read_text() if error.exists() else f"exit {process.exitcode}"
            raise RuntimeError(f"writer {self.number} ({self.engine}): {reason}")
        if self.engine == "delta-rs":
            self.counts["writer_kills"] += 1
            self.doubtful.add(told.commit)
            # As if it were acknowledged, so that it is not written again.
            told.commit += 1
            with self._noted.open("r+b" if self._noted.exists() else "wb") as file:
                told.write(file.fileno())
        else:
            self.counts["kills"] += 1
            self.counts[f"killed writer ({self.engine})"] += 1
        return told.commit

    def end(self) -> None:
        """Let it end now, as the trial has failed."""
        with self._lock:
            self._is_ended = True
            process = self._process
        if process is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)

    def acknowledged(self) -> set[int]:
        """Return the blocks that were acknowledged until now."""
        count = _Notes(path=self._noted).read().commit
        return {
            _block_of(self.number, commit) for commit in set(range(count)) - self.doubtful.copy()
        }

    def doubtful_blocks(self) -> set[int]:
        return {_block_of(self.number, commit) for commit in self.doubtful}


class Writers:
    """All writers of a trial; each runs until it has made its commits."""

    def __init__(
        self,
        place: Place,
        folder: Path,
        *,
        engines: Iterable[str],
        commits: int,
    ) -> None:
        self._writers = [
            _Writer(
                place=place,
                engine=engine,
                number=number,
                commits=commits,
                folder=folder,
            )
            for number, engine in enumerate(engines)
        ]
        self._threads = [threading.Thread(target=writer.run) for writer in self._writers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for writer in self._writers:
                writer.end()
        for thread in self._threads:
            thread.join()

    def counts(self) -> Counter[str]:
        return sum((writer.counts for writer in self._writers), Counter())

    def acknowledged(self) -> set[int]:
        """Return the blocks that every reader must find from now on."""
        return set().union(*(writer.acknowledged() for writer in self._writers))

    def raise_failure(self) -> None:
        """Raise what a writer has failed with. Raises RuntimeError."""
        for writer in self._writers:
            if writer.failure is not None:
                raise RuntimeError(writer.failure)

    def errors(
        self, ids: np.ndarray, values: np.ndarray, acknowledged: set[int], *, is_last: bool
    ) -> Iterator[str]:
        """Yield what is wrong with the rows of writers that a reader has found.

        Before the end a writer may have made commits that it has not noted yet.
        """
        if len(np.unique(ids)) != len(ids):
            yield "a row is there twice"
        if (values != ids % 7).any():
            yield "a row was changed"
        blocks, counts = np.unique(ids // BLOCK_IDS, return_counts=True)
        if (counts != BLOCK_ROWS).any():
            yield f"there in part: {blocks[counts != BLOCK_ROWS][:4]}"
        found = set(blocks.tolist())
        if missing := acknowledged - found:
            yield f"{len(missing)} acknowledged commits missing: {sorted(missing)[:4]}"
        doubtful = set().union(*(writer.doubtful_blocks() for writer in self._writers))
        if is_last and (surplus := found - acknowledged - doubtful):
            yield f"{len(surplus)} commits that nobody made: {sorted(surplus)[:4]}"
