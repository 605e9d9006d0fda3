"""Two stages of tasks with bytes that move between them, from every task to every part."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from lakehand.engine.runner_contract import CancelToken, Ledger, Runner, TaskOutcome, results_of
from lakehand.storage.scratch import SpoolFile
from lakehand.temporary import held_directory


def to_stream(rows: pa.Table | pa.RecordBatch, *, compression: str | None = None) -> pa.Buffer:
    """Return rows as a stream of Arrow's, with their schema."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return sink.getvalue()


def from_stream(content: pa.Buffer | bytes) -> pa.Table:
    """Return the rows of a stream."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def pack_columns(table: pa.Table) -> str:
    """Return a table as a string, to be part of a payload or of a result."""
    stream = to_stream(table.combine_chunks(), compression="zstd")
    return base64.b64encode(stream).decode("ascii")


def unpack_columns(text: str) -> pa.Table:
    """Return the table that was packed."""
    return from_stream(base64.b64decode(text))


#: From a payload to pieces, each behind its part and its place, and to what else there is to say.
Split = Callable[
    [Mapping[str, Any]], Generator[tuple[int, int, pa.Buffer], None, Mapping[str, Any]]
]
#: From the number of a part and its pieces, each behind its place, to plain JSON. Pieces come in
#: the order of their places where the runner is near, else in none.
Join = Callable[[int, Iterator[tuple[int, pa.Buffer]]], Mapping[str, Any]]

#: Maximum bytes of a piece, which limits the memory of the tasks that pass it on.
MOST_PIECE_BYTES = 16 * 2**20
#: Files of the first stage that a task of the second one keeps open.
_OPEN_FILES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Local disk for pieces that wait."""

    #: None: the system's directory for temporary files.
    directory: str | None = None
    #: Of one task of the first stage.
    most_bytes: int = 2**63 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchanged:
    """The results of both stages."""

    #: What the tasks of the first stage said at their end.
    splits: tuple[Mapping[str, Any], ...]
    #: An outcome for each part that had pieces.
    parts: tuple[TaskOutcome, ...]


@runtime_checkable
class Exchanging(Protocol):
    """A runner that can carry pieces itself."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether tasks may run on other machines, so that pieces have to be carried."""
        ...

    def exchange(
        self,
        split: Split,
        payloads: Sequence[Mapping[str, Any]],
        join: Join,
        *,
        parts: int,
        run: Ledger | None,
        cancel: CancelToken,
    ) -> Exchanged: ...


def is_near(runner: Runner) -> bool:
    """Say whether all tasks of a runner run on this machine, and so find the same files."""
    return not (isinstance(runner, Exchanging) and runner.is_elsewhere)


def exchange(
    runner: Runner,
    split: Split,
    payloads: Sequence[Mapping[str, Any]],
    join: Join,
    *,
    parts: int,
    run: Ledger | None,
    cancel: CancelToken,
    room: Room | None = None,
) -> Exchanged:
    """Run `split` on every payload, then `join` on every part that has pieces.

    Both are functions of modules, or picklable objects. A typed failure of the first stage is
    raised, since every part may lack pieces; one of the second is an outcome. The ledger of `run`
    says so if stopped tasks may still be at work. `room` is where pieces are stored if the
    runner is on this machine.
    """
    if isinstance(runner, Exchanging) and runner.is_elsewhere:
        return runner.exchange(split, payloads, join, parts=parts, run=run, cancel=cancel)
    room = room or Room()
    with held_directory(room.directory, purpose="exchange") as spool:
        first = _SpoolingSplit(split=split, room=replace(room, directory=spool))
        outcomes = runner.run(first, payloads, run=run, on_result=_ignore, cancel=cancel)
        found = results_of(outcomes)
        second = [
            {"part": part, "files": [one["file"] for one in found if part in one["parts"]]}
            for part in sorted({part for one in found for part in one["parts"]})
        ]
        joined = runner.run(
            _SpooledJoin(join=join), second, run=run, on_result=_ignore, cancel=cancel
        )
    return Exchanged(splits=tuple(one["said"] for one in found), parts=tuple(joined))


def _ignore(_outcome: TaskOutcome) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class _SpoolingSplit:
    """A task that writes its pieces into a file that no other attempt uses."""

    split: Split
    room: Room

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        path = Path(self.room.directory or "") / uuid.uuid4().hex
        with SpoolFile(path, most_bytes=self.room.most_bytes) as file:
            places, said = _spool(self.split(payload), file)
        np.save(_index_of(path), places)
        return {"file": str(path), "parts": np.unique(places[:, 0]).tolist(), "said": said}


def _index_of(path: str | Path) -> str:
    return f"{path}.npy"


def _spool(
    found: Generator[tuple[int, int, pa.Buffer], None, Mapping[str, Any]], file: SpoolFile
) -> tuple[np.ndarray, Mapping[str, Any]]:
    """Write all pieces; return part, place, start and size of each, and what was said at the end.

    Those of a part are next to each other, in the order of their places.
    """
    written: list[tuple[int, int, int, int]] = []
    while True:
        try:
            part, place, piece = next(found)
        except StopIteration as end:
            places = np.array(written, np.int64).reshape(-1, 4)
            return places[np.lexsort((places[:, 1], places[:, 0]))], end.value
        written.append((part, place, file.append(piece), piece.size))


@dataclass(frozen=True, kw_only=True, slots=True)
class _SpooledJoin:
    """A task that reads the pieces of its part from files."""

    join: Join

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.join(payload["part"], _read_pieces(payload["files"], payload["part"]))


def _read_pieces(files: Sequence[str], part: int) -> Iterator[tuple[int, pa.Buffer]]:
    indexes = [_of_part(np.load(_index_of(file), mmap_mode="r"), part) for file in files]
    owners = np.repeat(np.arange(len(files)), [len(index) for index in indexes])
    places, starts, sizes = np.concatenate(indexes)[:, 1:].T
    opened = lru_cache(_OPEN_FILES)(pa.OSFile)
    for number in np.argsort(places, kind="stable").tolist():
        # Into Arrow's memory, which is given back, and not into Python's, which is kept.
        reader = opened(files[owners[number]])
        reader.seek(int(starts[number]))
        yield int(places[number]), reader.read_buffer(int(sizes[number]))


def _of_part(index: np.ndarray, part: int) -> np.ndarray:
    first, end = np.searchsorted(index[:, 0], [part, part + 1])
    return index[first:end]
