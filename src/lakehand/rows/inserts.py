"""New rows on their way into the table: written where they came in, and proved there."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lakehand.engine.runner_contract import usable_cores
from lakehand.formats.rows import RowChange, require_change_feed
from lakehand.formats.worker import Decoder, NewFiles, NotDecodable, WriteSpec
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.observe.clock import Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import Digester
from lakehand.prove.evidence import prove_added

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from lakehand.model.work import Digest, Proof, StagedFile
    from lakehand.rows.incoming import Incoming
    from lakehand.rows.key_matching import KeyMatching
    from lakehand.rows.row_operation import RowOperation
    from lakehand.runs import Run

#: Names that new files are reserved under; other numbers are those of portions.
_GROUP = 99_999


@dataclass(frozen=True, kw_only=True, slots=True)
class Inserted:
    """What was written for the incoming rows."""

    adds: tuple[StagedFile, ...] = ()
    #: Files among those written for change data feed readers.
    changes: tuple[StagedFile, ...] = ()
    #: None if no rows came.
    proof: Proof | None = None
    timings: Mapping[str, float]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.adds)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Piece:
    """Some of the new rows, and which of them replace rows of the table."""

    rows: pa.RecordBatch
    replacing: npt.NDArray[np.bool_]
    #: Ids of the rows that they replace, where the table tracks rows.
    row_ids: pa.Array

    def by_change(self) -> Iterator[tuple[RowChange, pa.RecordBatch]]:
        replacing = self.rows.filter(pa.array(self.replacing))
        came = self.rows.filter(pa.array(~self.replacing))
        kinds: tuple[tuple[RowChange, pa.RecordBatch], ...] = (
            ("replacing", replacing),
            ("came", came),
        )
        yield from ((kind, rows) for kind, rows in kinds if rows.num_rows)


class NewRows(Protocol):
    """The rows that are to be in the table, given those that were found in it."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    @property
    def replacing(self) -> int:
        """How many of them replace others."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows, always the same ones in the same order."""
        ...

    def signature(self, *, with_matches: bool) -> bytes:
        """Return what tells these rows from those for another version of the table.

        `with_matches`: also which rows they replace.
        """
        ...


class IncomingRows:
    """The rows of an upsert, which are the same whatever they replace."""

    def __init__(self, incoming: Incoming, matching: KeyMatching) -> None:
        """Take rows; `matching` says which of them replace others, in the version it searched."""
        self._incoming = incoming
        self._matching = matching
        self.count = len(incoming.live_numbers)

    @property
    def replacing(self) -> int:
        """Return how many of the rows replace others."""
        return len(self._matching.matched.numbers)

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows that are to be in the table."""
        matched = self._matching.matched
        known = np.append(matched.numbers, -1)
        for numbers, rows in self._incoming.live_rows():
            places = np.searchsorted(matched.numbers, numbers)
            replacing = known[np.minimum(places, len(matched.numbers))] == numbers
            chosen = pa.array(places, mask=~replacing)
            yield Piece(rows=rows, replacing=replacing, row_ids=matched.row_ids.take(chosen))

    def signature(self, *, with_matches: bool) -> bytes:
        """Return which rows are replaced, where files depend on it."""
        matched = self._matching.matched
        if not with_matches:
            return b""
        ids: bytes = matched.row_ids.fill_null(-1).to_numpy().tobytes()
        return matched.numbers.tobytes() + ids


class Inserts:
    """Writes new rows; files written earlier are reused while they are correct."""

    def __init__(self, operation: RowOperation, new: NewRows) -> None:
        """Take rows; which ones they are depends on the version that was searched last."""
        self._operation = operation
        self._new = new
        self._done: tuple[str, Inserted] | None = None

    @property
    def rows(self) -> int:
        """Rows that are to be in the table."""
        return self._new.count

    def forget(self) -> None:
        """Note that what was written is deleted."""
        self._done = None

    def replaced(self) -> int:
        """Return how many of the rows replace others."""
        return self._new.replacing

    def write(self, *, tells_changes: bool) -> Inserted:
        """Write and prove the new rows."""
        signature = self._signature(tells_changes=tells_changes)
        if self._done is None or self._done[0] != signature:
            self._done = (signature, self._write(tells_changes=tells_changes))
        return self._done[1]

    def _signature(self, *, tells_changes: bool) -> str:
        """Return what tells the files for these rows from those for others."""
        with_matches = tells_changes or self._operation.worker.hands_on_row_ids
        found = hashlib.sha256(str(tells_changes).encode())
        found.update(self._new.signature(with_matches=with_matches))
        return found.hexdigest()

    def _write(self, *, tells_changes: bool) -> Inserted:
        watch = Stopwatch(self._run.clock)
        if not self.rows:
            return Inserted(timings={})
        with watch.measure("write"):
            adds, digest = self._add()
            changes = self._tell() if tells_changes else ()
        reached(Step.ROWS_ARRIVED)
        with watch.measure("prove"):
            proof = self._prove(adds, digest)
        return Inserted(adds=adds, changes=changes, proof=proof, timings=watch.milliseconds())

    def _add(self) -> tuple[tuple[StagedFile, ...], Digest]:
        worker = self._operation.worker

        def stem(directory: str) -> str:
            return self._run.reserve(_GROUP, directory=directory)

        with (
            Digester(worker.new_rows, threads=usable_cores()) as digester,
            worker.open_files(self._spec, stem=stem) as files,
        ):
            for piece in self._new.pieces():
                rows = _identified(piece) if worker.hands_on_row_ids else piece.rows
                digester.add(worker.counted_rows(rows))
                files.write(rows)
            return files.close(), digester.result()

    def _tell(self) -> tuple[StagedFile, ...]:
        feed = require_change_feed(self._operation.worker)
        found: list[StagedFile] = []
        open_files: dict[RowChange, NewFiles] = {}
        with ExitStack() as stack:
            for piece in self._new.pieces():
                for kind, rows in piece.by_change():
                    if kind not in open_files:
                        stem = self._run.reserve(_GROUP, directory=feed.change_directory())
                        opened = feed.open_changes(self._spec, stem=stem, kind=kind)
                        open_files[kind] = stack.enter_context(opened)
                    open_files[kind].write(rows)
            for files in open_files.values():
                found += files.close()
        return tuple(found)

    def _prove(self, adds: tuple[StagedFile, ...], written: Digest) -> Proof:
        """Return the evidence that storage holds the incoming rows; ProofError if not."""
        mode = self._operation.call.settings.prove
        counts_only, tracked = mode == "counts", self._operation.worker.tracks_rows
        found = None if counts_only else self._read_back(adds, mode)
        return prove_added(
            written,
            found,
            expected_rows=self.rows,
            staged_rows=sum(file.rows for file in adds),
            proved_bytes=sum(file.bytes for file in adds),
            # New rows get their row ids with the commit, and every attempt gets others.
            is_lasting=not tracked,
        )

    def _read_back(self, adds: tuple[StagedFile, ...], mode: str) -> Digest:
        try:
            return self._digest(adds, "arrow" if mode == "independent" else "duckdb")
        except NotDecodable:
            return self._digest(adds, "arrow")

    def _digest(self, adds: tuple[StagedFile, ...], decoder: Decoder) -> Digest:
        worker = self._operation.worker
        limits = replace(self._operation.limits, threads=usable_cores())
        with Digester(worker.new_rows) as digester:
            worker.digest_new(adds, digester, limits=limits, decoder=decoder)
            return digester.result()

    @property
    def _spec(self) -> WriteSpec:
        return WriteSpec.of_tasks(self._operation.call.settings)

    @property
    def _run(self) -> Run:
        if self._operation.run is None:
            raise ValueError("a dry run has nothing to write")
        return self._operation.run


def _identified(piece: Piece) -> pa.RecordBatch:
    """Return rows that keep the ids of those they replace; their versions are the commit's."""
    versions = pa.nulls(piece.rows.num_rows, pa.int64())
    fields = [*piece.rows.schema, (ROW_ID, pa.int64()), (ROW_VERSION, pa.int64())]
    return pa.RecordBatch.from_arrays(
        [*piece.rows.columns, piece.row_ids, versions], schema=pa.schema(fields)
    )
