"""Two stages of tasks with bytes that move in between: from every task of the first to every part.

A task of the first stage hands out pieces, each with the number of the part it belongs to. A task
of the second gets all pieces of one part. Where all tasks run on one machine, pieces wait in files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

import pyarrow as pa

from lakehand.errors import error_from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.engine.base import CancelToken, Runner, TaskOutcome
    from lakehand.runs import Run

__all__ = ["MOST_PIECE_BYTES", "Exchanged", "Exchanging", "Join", "Split", "exchange"]

#: From a payload to pieces with the numbers of their parts, and to what else there is to say.
Split = Callable[[Mapping[str, Any]], Generator[tuple[int, pa.Buffer], None, Mapping[str, Any]]]
#: From the number of a part and its pieces, in no order, to plain JSON.
Join = Callable[[int, Iterator[pa.Buffer]], Mapping[str, Any]]

#: A piece may have so many bytes, for the sake of those who carry it.
MOST_PIECE_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchanged:
    """What came of both stages."""

    #: What the tasks of the first stage said at their end.
    splits: tuple[Mapping[str, Any], ...]
    #: An outcome for each part that had pieces.
    parts: tuple[TaskOutcome, ...]


@runtime_checkable
class Exchanging(Protocol):
    """A runner that can carry pieces itself."""

    def exchange(
        self,
        split: Split,
        payloads: Sequence[Mapping[str, Any]],
        join: Join,
        *,
        parts: int,
        run: Run | None,
        cancel: CancelToken,
    ) -> Exchanged: ...


def exchange(
    runner: Runner,
    split: Split,
    payloads: Sequence[Mapping[str, Any]],
    join: Join,
    *,
    parts: int,
    run: Run | None,
    cancel: CancelToken,
    directory: str | None = None,
) -> Exchanged:
    """Run `split` on every payload, then `join` on every part that has pieces.

    Both are functions of modules, or picklable objects. A typed failure of the first stage is
    raised, since every part may lack pieces; one of the second is an outcome. The ledger of `run`
    says so if stopped tasks may still be at work. `directory` is for runners on one machine, which
    keep pieces there meanwhile.
    """
    if isinstance(runner, Exchanging):
        return runner.exchange(split, payloads, join, parts=parts, run=run, cancel=cancel)
    with TemporaryDirectory(prefix="lakehand-exchange-", dir=directory) as spool:
        return _exchange_by_files(runner, split, payloads, join, spool, cancel)


def _exchange_by_files(
    runner: Runner,
    split: Split,
    payloads: Sequence[Mapping[str, Any]],
    join: Join,
    spool: str,
    cancel: CancelToken,
) -> Exchanged:
    outcomes = runner.run(
        _SpoolingSplit(split=split, directory=spool), payloads, on_result=_ignore, cancel=cancel
    )
    for outcome in outcomes:
        if outcome.failure is not None:
            raise error_from_json(dict(outcome.failure))
    found = [outcome.result for outcome in outcomes if outcome.result is not None]
    places: dict[int, list[Any]] = {}
    for result in found:
        for part, start, size in result["pieces"]:
            places.setdefault(part, []).append([result["file"], start, size])
    return Exchanged(
        splits=tuple(result["said"] for result in found),
        parts=tuple(
            runner.run(
                _SpooledJoin(join=join),
                [{"part": part, "pieces": places[part]} for part in sorted(places)],
                on_result=_ignore,
                cancel=cancel,
            )
        ),
    )


def _ignore(_outcome: TaskOutcome) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class _SpoolingSplit:
    """A task that writes its pieces into one file, one behind the other."""

    split: Split
    directory: str

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        path = Path(self.directory) / uuid.uuid4().hex
        pieces: list[tuple[int, int, int]] = []
        with path.open("wb") as file:
            said = _spool(self.split(payload), file, pieces)
        return {"file": str(path), "pieces": pieces, "said": said}


def _spool(
    found: Generator[tuple[int, pa.Buffer], None, Mapping[str, Any]],
    file: BinaryIO,
    places: list[tuple[int, int, int]],
) -> Mapping[str, Any]:
    """Write all pieces and note where they are; return what the split said at its end."""
    while True:
        try:
            part, piece = next(found)
        except StopIteration as end:
            said: Mapping[str, Any] = end.value
            return said
        places.append((part, file.tell(), piece.size))
        file.write(piece)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SpooledJoin:
    """A task that reads the pieces of its part from files."""

    join: Join

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.join(payload["part"], _read_pieces(payload["pieces"]))


def _read_pieces(places: Sequence[Sequence[Any]]) -> Iterator[pa.Buffer]:
    for path, start, size in places:
        with pa.OSFile(path) as file:
            file.seek(start)
            yield file.read_buffer(size)
