"""Rows that leave their files: by a deletion vector, or left out of a file that is rewritten."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine.runner_contract import granted_cores
from lakehand.formats.rows import RowChange, RowChangeWorker, require_change_feed
from lakehand.formats.worker import (
    DECODINGS,
    Decoder,
    Decoding,
    NotDecodable,
    TaskLimits,
    WriteSpec,
    undecodable,
)
from lakehand.model.work import DataFile, Digest, Proof, ProveMode, StagedFile
from lakehand.observe.clock import Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.prove import evidence
from lakehand.prove.digest import Digester, SplitDigester
from lakehand.rows.row_addresses import REPLACED, PlaceSet
from lakehand.runs.leftovers import note_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.rows import Positions
    from lakehand.rows.table_exchange import Exchange
    from lakehand.runs import Run


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HiddenFile:
    """A file that loses rows and is not rewritten."""

    file: DataFile
    #: Rows that are to go, ascending.
    positions: Positions
    #: The file as readers will see it; None if all of its rows go, and it with them.
    live: DataFile | None


def prove_by_positions(
    worker: RowChangeWorker,
    files: Sequence[HiddenFile],
    *,
    staged_rows: int,
    proved_bytes: int,
    limits: TaskLimits,
    subject: str,
) -> Proof:
    """Return the evidence that readers see all rows but those that were to go; else ProofError.

    `staged_rows` is how many the entries to be committed say are left.
    """
    before = worker.deleted_positions([one.file for one in files], limits=limits)
    staying = [one.live for one in files if one.live is not None]
    after = iter(worker.deleted_positions(staying, limits=limits) if staying else ())
    for one, hidden in zip(files, before, strict=True):
        rows = worker.count_rows([one.file]) + one.file.deleted_rows
        expected = np.sort(np.concatenate((hidden, one.positions)))
        found = np.arange(rows, dtype=np.int64) if one.live is None else next(after)
        evidence.check_footers(_difference(expected, found, rows=rows), subject=one.file.path)
    removed = sum(len(one.positions) for one in files)
    return evidence.prove_positions(
        worker.count_rows([one.file for one in files]) - removed,
        staged_rows=staged_rows,
        removed_rows=removed,
        positions_digest=positions_digest(
            (one.file.path, one.positions) for one in files if one.live is not None
        ),
        proved_bytes=proved_bytes,
        subject=subject,
    )


def _difference(expected: Positions, found: Positions, *, rows: int) -> str | None:
    """Return what is wrong unless storage hides exactly these positions of a file.

    Both are ascending. Rows that were hidden before are among them, and must not come back.
    """
    is_set = bool(np.all(expected[1:] > expected[:-1]))
    is_inside = not len(expected) or (expected[0] >= 0 and expected[-1] < rows)
    if not (is_set and is_inside):
        return "rows were to be hidden twice, or that the file does not have"
    if np.array_equal(expected, found):
        return None
    differing = len(np.setxor1d(expected, found))
    return f"{len(expected)} rows were to be hidden, {len(found)} are, and {differing} differ"


def positions_digest(places: Iterable[tuple[str, Positions]]) -> str:
    """Return what tells these rows of these files from others, in any order of the files."""
    return evidence.sum_digests([_digest(path, positions) for path, positions in places])


def _digest(path: str, positions: Positions) -> str:
    found = hashlib.sha256(path.encode(errors="surrogateescape"))
    found.update(b"\0")
    found.update(np.ascontiguousarray(positions, dtype="<i8").tobytes())
    return found.hexdigest()[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class InPlace:
    """Rows of files that were visible before, that go, and that readers will see."""

    before: Digest
    removed: Digest
    after: Digest


def digest_in_place(
    worker: RowChangeWorker,
    files: Sequence[DataFile],
    *,
    gone: Sequence[Positions],
    hidden: Sequence[Positions | None],
    limits: TaskLimits,
    decoding: Decoding,
) -> InPlace:
    """Read `files`, of which the rows at `gone` go; `hidden` are those that storage will not show.

    None among them: the file goes. Rows that were hidden before and would come back are not seen
    here, so the caller counts the hidden rows. Nothing is written that a decoder has misread, so
    one that can read the files is enough where the other cannot.
    """
    schema = worker.moved_rows
    before, removed, after = Digester(schema), Digester(schema), Digester(schema)
    is_gone = PlaceSet(gone)
    is_hidden = PlaceSet([np.empty(0, np.int64) if rows is None else rows for rows in hidden])
    goes = np.array([rows is None for rows in hidden], np.bool_)
    for batch in worker.hash_placed(files, limits=limits, decoder=decoding.inputs):
        numbers, positions = batch.column(2).to_numpy(), batch.column(3).to_numpy()
        _add(before, batch, None)
        _add(removed, batch, is_gone.holds(numbers, positions))
        if not decoding.reads_inputs_twice:
            _add(after, batch, ~(goes[numbers] | is_hidden.holds(numbers, positions)))
    if decoding.reads_inputs_twice:
        for batch in worker.hash_placed(files, limits=limits, decoder=decoding.outputs):
            numbers, positions = batch.column(2).to_numpy(), batch.column(3).to_numpy()
            _add(after, batch, ~(goes[numbers] | is_hidden.holds(numbers, positions)))
    return InPlace(before=before.result(), removed=removed.result(), after=after.result())


def _add(digester: Digester, batch: pa.RecordBatch, chosen: np.ndarray | None) -> None:
    lanes = [batch.column(lane).to_numpy() for lane in range(2)]
    if chosen is not None:
        lanes = [lane[chosen] for lane in lanes]
    digester.add_lanes(lanes)


#: How rows are deleted: the file is removed, rows are hidden, or the other rows are rewritten.
Way = Literal["drop", "hide", "rewrite"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A file, the rows of it that go, and how."""

    file: DataFile
    positions: Positions
    way: Way
    #: Those of them whose place another row takes.
    replaced: Positions

    def by_change(self) -> Iterator[tuple[RowChange, Positions]]:
        """Yield the rows to which the same happens."""
        gone = np.setdiff1d(self.positions, self.replaced, assume_unique=True)
        kinds: tuple[tuple[RowChange, Positions], ...] = (
            ("replaced", self.replaced),
            ("gone", gone),
        )
        yield from ((kind, positions) for kind, positions in kinds if len(positions))


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """What one task made of the files of a portion."""

    #: Entries that replace those of the files: of new files, or of the same with rows hidden.
    adds: tuple[StagedFile, ...]
    #: Everything that was written and that no version references before the commit.
    objects: tuple[StagedFile, ...]
    #: Files among them with the deleted rows for change data feed readers.
    changes: tuple[StagedFile, ...]
    proof: Proof
    timings: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Removed:
        files = {
            name: tuple(StagedFile.from_json(file) for file in value[name])
            for name in ("adds", "objects", "changes")
        }
        return cls(**{**value, **files, "proof": Proof.from_json(value["proof"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    """What a file gives way to; to nothing, if all of its rows went."""

    adds: tuple[StagedFile, ...] = ()
    #: The same file as readers will see it; None if it was rewritten or removed.
    live: DataFile | None = None
    #: All rows of the file, and the deleted ones, if they were read to rewrite the file.
    read: tuple[Digest, Digest] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovalTask:
    """A function from files and places in them to what is left, as JSON. Picklable."""

    worker: RowChangeWorker
    run: Run
    exchange: Exchange
    spec: WriteSpec
    limits: TaskLimits
    prove: ProveMode
    #: Deleted rows must be written for change data feed readers.
    tells_changes: bool

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        group, losses = payload["group"], self._losses(payload)
        first, second = DECODINGS[self.prove]
        with suppress(NotDecodable):
            return self._remove(group, losses, first).to_json()
        try:
            return self._remove(group, losses, second).to_json()
        except NotDecodable as reason:
            raise undecodable(f"portion {group}", reason, self.prove) from reason

    def _losses(self, payload: Mapping[str, Any]) -> list[Loss]:
        places = pa.concat_tables(self.exchange.get(payload["keys"]))
        losses = []
        for number, file, way in zip(
            payload["numbers"], payload["files"], payload["ways"], strict=True
        ):
            found = places.filter(pc.equal(places["file"], number))
            losses.append(
                Loss(
                    file=DataFile.from_json(file),
                    positions=_in_order(found),
                    way=way,
                    replaced=_replaced(found),
                )
            )
        return losses

    def _remove(self, group: int, losses: Sequence[Loss], decoding: Decoding) -> Removed:
        watch = Stopwatch(self.run.clock)
        with watch.measure("write"):
            outcomes, objects = self._written(group, losses, decoding.inputs)
            changes = self._changes(group, losses) if self.tells_changes else ()
        reached(Step.TASK_WRITTEN)
        with watch.measure("prove"):
            proof = self._prove(group, losses, outcomes, decoding, objects)
        reached(Step.TASK_PROVED)
        return Removed(
            adds=tuple(file for outcome in outcomes for file in outcome.adds),
            objects=(*objects, *changes),
            changes=changes,
            proof=proof,
            timings=watch.milliseconds(),
        )

    def _written(
        self, group: int, losses: Sequence[Loss], decoder: Decoder
    ) -> tuple[list[_Outcome], tuple[StagedFile, ...]]:
        """Return what each file gives way to, and all objects that were written."""
        objects: list[StagedFile] = []
        after: dict[str, _Outcome] = {}
        hidden = [(loss.file, loss.positions) for loss in losses if loss.way == "hide"]
        if hidden:
            stem = self.run.reserve(group, directory="")
            marked = self.worker.hide_rows(hidden, stem=stem)
            strange = [file.path for file in marked.objects if stem not in file.path]
            if strange:
                note_written(self.run, stem, strange)
            after |= {live.path: _Outcome(adds=(add,), live=live) for add, live in marked.files}
            objects += marked.objects
        for loss in losses:
            if loss.way == "rewrite":
                outcome = self._rewritten(group, loss, decoder)
                after[loss.file.path] = outcome
                objects += outcome.adds
        return [after.get(loss.file.path, _Outcome()) for loss in losses], tuple(objects)

    def _rewritten(self, group: int, loss: Loss, decoder: Decoder) -> _Outcome:
        rest = self.worker.without_rows(loss.file, loss.positions)
        stem = self.run.reserve(group, directory=self.worker.output_directory([rest]))
        # One file stays one file, be it larger than new ones are.
        target = max(self.spec.target_file_bytes, 2 * loss.file.bytes)
        [deleted] = self.worker.deleted_positions([loss.file], limits=self.limits)
        # As they are counted when the file is read, which leaves out what is deleted already.
        gone = loss.positions - np.searchsorted(deleted, loss.positions)
        with SplitDigester(self.worker.moved_rows, chosen=gone) as digester:
            rows = self.worker.read_digested(
                [loss.file], digester, limits=self._granted(), decoder=decoder
            )
            spec = replace(self.spec, target_file_bytes=target)
            outputs = self.worker.write(_without(rows, gone), spec, like=[rest], stem=stem)
            read = digester.result(), digester.part.result()
        evidence.check_footers(
            self.worker.staged_difference([rest], outputs), subject=loss.file.path
        )
        return _Outcome(adds=outputs, read=read)

    def _changes(self, group: int, losses: Sequence[Loss]) -> tuple[StagedFile, ...]:
        found: list[StagedFile] = []
        feed = require_change_feed(self.worker)
        for loss in losses:
            for kind, positions in loss.by_change():
                changed = self.worker.only_rows(loss.file, positions)
                stem = self.run.reserve(group, directory=feed.change_directory())
                found += feed.write_changes(changed, self.spec, stem=stem, kind=kind)
        return tuple(found)

    def _prove(
        self,
        group: int,
        losses: Sequence[Loss],
        outcomes: Sequence[_Outcome],
        decoding: Decoding,
        objects: Sequence[StagedFile],
    ) -> Proof:
        """Return the evidence that storage holds what is left; ProofError if it does not."""
        files = [loss.file for loss in losses]
        removed_rows = sum(len(loss.positions) for loss in losses)
        expected = self.worker.count_rows(files) - removed_rows
        subject = f"portion {group} ({len(files)} files)"
        adds = [file for outcome in outcomes for file in outcome.adds]
        if self.prove == "counts":
            return evidence.prove_remaining(
                expected,
                written_rows=sum(file.rows for file in adds),
                removed_rows=removed_rows,
                subject=subject,
            )
        if self.prove == "digest" and self.worker.hides_rows and self.worker.proves_positions:
            return self._prove_by_positions(losses, outcomes, objects, subject)
        written = [file for o in outcomes if o.read is not None for file in o.adds]
        stays = self._stays(losses, outcomes, decoding)
        stored = self._digest(self.worker.digest_staged, written, decoding.outputs)
        read = [outcome.read for outcome in outcomes if outcome.read is not None]
        if read and decoding.reads_inputs_twice:
            rewritten = [x.file for x, y in zip(losses, outcomes, strict=True) if y.read]
            again = self._digest(self.worker.digest_rows, rewritten, decoding.outputs)
            evidence.check_same_rows(_sum([rows for rows, _ in read]), again, subject=subject)
        return evidence.prove_removed(
            before=_sum([stays.before, *(before for before, _ in read)]),
            removed=_sum([stays.removed, *(removed for _, removed in read)]),
            after=_sum([stays.after, stored]),
            expected_rows=expected,
            proved_bytes=sum(file.bytes for file in adds),
            subject=subject,
            decoders=decoding.label if written or decoding.reads_inputs_twice else decoding.alone,
        )

    def _prove_by_positions(
        self,
        losses: Sequence[Loss],
        outcomes: Sequence[_Outcome],
        objects: Sequence[StagedFile],
        subject: str,
    ) -> Proof:
        """Prove which rows are left of files that stay, or go, without reading any."""
        return prove_by_positions(
            self.worker,
            [
                HiddenFile(file=loss.file, positions=loss.positions, live=outcome.live)
                for loss, outcome in zip(losses, outcomes, strict=True)
            ],
            staged_rows=sum(file.rows for outcome in outcomes for file in outcome.adds),
            proved_bytes=sum(file.bytes for file in objects),
            limits=self.limits,
            subject=subject,
        )

    def _stays(
        self, losses: Sequence[Loss], outcomes: Sequence[_Outcome], decoding: Decoding
    ) -> InPlace:
        """Return the evidence for files that are not rewritten."""
        pairs = [(x, y) for x, y in zip(losses, outcomes, strict=True) if y.read is None]
        live = [outcome.live for _, outcome in pairs if outcome.live is not None]
        hidden = self.worker.deleted_positions(live, limits=self.limits) if live else []
        evidence.check_deleted_count(
            sum(len(loss.positions) + loss.file.deleted_rows for loss, y in pairs if y.live),
            hidden_rows=sum(map(len, hidden)),
            subject=f"{len(live)} files",
        )
        found = iter(hidden)
        return digest_in_place(
            self.worker,
            [loss.file for loss, _ in pairs],
            gone=[loss.positions for loss, _ in pairs],
            hidden=[None if outcome.live is None else next(found) for _, outcome in pairs],
            limits=self._granted(),
            decoding=decoding,
        )

    def _digest(self, read: Callable[..., None], files: Sequence[Any], decoder: Decoder) -> Digest:
        """Return the digest of the visible rows of files, as `read` gives them back."""
        with Digester(self.worker.moved_rows) as digester:
            if files:
                read(files, digester, limits=self._granted(), decoder=decoder)
            return digester.result()

    def _granted(self) -> TaskLimits:
        return replace(self.limits, threads=granted_cores())


def _sum(digests: Sequence[Digest]) -> Digest:
    total = evidence.total_digest(digests)
    assert total is not None  # noqa: S101  of one digest at least
    return total


def _without(rows: Iterable[pa.RecordBatch], positions: Positions) -> Iterator[pa.RecordBatch]:
    """Leave out some rows of a file, which come in its order.

    The proof counts them in the same order, so it cannot notice another one: readers promise it.
    """
    start = 0
    for batch in rows:
        end = start + batch.num_rows
        first, last = np.searchsorted(positions, (start, end)).tolist()
        if first == last:
            yield batch
        else:
            is_kept = np.ones(batch.num_rows, np.bool_)
            is_kept[positions[first:last] - start] = False
            yield batch.filter(pa.array(is_kept))
        start = end


def _replaced(places: pa.Table) -> Positions:
    """Return the positions of rows whose place another row takes, where places tell."""
    if REPLACED not in places.column_names:
        return np.empty(0, np.int64)
    return _in_order(places.filter(places[REPLACED]))


def _in_order(places: pa.Table) -> Positions:
    """Return positions ascending, each once. By far faster than `np.unique`."""
    found = np.sort(places["position"].to_numpy())
    is_new = np.ones(len(found), np.bool_)
    is_new[1:] = found[1:] != found[:-1]
    return found[is_new]
