"""One group written in another order by many tasks: too large for one, or not to be waited for.

In a first stage each task decodes and hashes some files and divides their rows by ranges of their
sort keys. In a second stage each task sorts the rows of neighbouring ranges, writes them and reads
them back. The proof is over the whole group: what all tasks of the first stage read is what all
tasks of the second one read back.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakehand.engine.exchange import MOST_PIECE_BYTES, Exchanged, Room, exchange, is_near
from lakehand.engine.runner_contract import results_of
from lakehand.formats.worker import DECODINGS, Decoding, NotDecodable, undecodable
from lakehand.model.order import Order, order_of
from lakehand.model.work import DataFile, Digest, Group, GroupResult, StagedFile
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import Digester
from lakehand.prove.evidence import total_digest
from lakehand.rewrite.file_writers import write_apart
from lakehand.rewrite.proving import check_outputs
from lakehand.rewrite.sort import chunk_bytes, expected_files, gathered, mark_ordered
from lakehand.runs.operation import divide_files
from lakehand.sorting import key_ranges
from lakehand.sorting.file_boundaries import Division
from lakehand.sorting.virtual_files import sample_rows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakehand.engine import CancelToken, Runner
    from lakehand.rewrite.task import RewriteTask

_logger = get_logger(__name__)

#: Tasks of the first stage, at least, as far as there are files; each has no more than some bytes.
_LEAST_SPLITS, _MOST_SPLIT_BYTES = 8, 256 * 2**20
_MOST_PARTS = 512
#: Ranges that the rows of a file are divided into, to be sorted one by one.
_RANGES_A_FILE = 16
#: The part of a task's disk for pieces that wait; the other one is for copies of remote files.
_DISK_SHARE = 2
#: Rows that are compressed to see what is left of them, and how little that must be.
_TRIED_ROWS, _WORTHWHILE_SHARE = 4096, 0.5


def shuffle_group(
    task: RewriteTask, group: Group, runner: Runner, *, cancel: CancelToken
) -> GroupResult:
    """Write the rows of `group` in its order by many tasks and prove them, as `sort_group` does."""

    def shuffle(decoding: Decoding) -> GroupResult:
        return _Shuffle.of(task, group, decoding, is_near=is_near(runner)).run(runner, cancel)

    first, second = DECODINGS[task.prove]
    try:
        return shuffle(first)
    except NotDecodable as reason:
        message = "Group %d is read by another decoder: %s"
        log_event(_logger, logging.INFO, "decoder_changed", message, group.id, reason)
    try:
        return shuffle(second)
    except NotDecodable as reason:
        raise undecodable(f"group {group.id}", reason, task.prove) from reason


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shuffle:
    """What both stages have in common. Picklable."""

    task: RewriteTask
    group: Group
    decoding: Decoding
    order: Order
    division: Division
    #: Each has the rows of some files, and is sorted by one task.
    parts: key_ranges.KeyRanges
    #: Whether rows wait in files that all tasks find. Then a piece has the rows of one range, and
    #: is read when that range is sorted. Else it has those of a part, which are fewer to carry.
    is_near: bool

    @classmethod
    def of(cls, task: RewriteTask, group: Group, decoding: Decoding, *, is_near: bool) -> _Shuffle:
        order = order_of(group.order, group.curve)
        sample = sample_rows(task.worker, group.inputs, order)
        files = expected_files(group)
        division = Division.of_sample(order, sample, files=files, ranges=files * _RANGES_A_FILE)
        return cls(
            task=task,
            group=group,
            decoding=decoding,
            order=order,
            division=division,
            parts=division.files.joined(_MOST_PARTS),
            is_near=is_near,
        )

    def run(self, runner: Runner, cancel: CancelToken) -> GroupResult:
        """Run both stages; raises the failure of one of them."""
        limits = self.task.limits
        payloads = [{"inputs": [asdict(file) for file in some]} for some in _portions(self.group)]
        exchanged = exchange(
            runner,
            self.split,
            payloads,
            self.join,
            parts=len(self.parts),
            run=self.task.run,
            cancel=cancel,
            room=Room(
                directory=limits.scratch_directory, most_bytes=limits.scratch_bytes // _DISK_SHARE
            ),
        )
        unreadable = [said["unreadable"] for said in exchanged.splits if said["unreadable"]]
        if unreadable:
            raise NotDecodable(unreadable[0])
        return self._result(exchanged)

    def split(
        self, payload: Mapping[str, Any]
    ) -> Generator[tuple[int, int, pa.Buffer], None, dict[str, Any]]:
        """Divide the rows of some files among the parts, and say what their digest is."""
        inputs = [DataFile.from_json(file) for file in payload["inputs"]]
        watch = Stopwatch(self.task.run.clock)
        try:
            with Digester(self.task.worker.moved_rows) as digester, watch.measure("read"):
                yield from self._divide(inputs, digester)
                before = digester.result()
            again = self._read_again(inputs)
        except NotDecodable as reason:
            return {"unreadable": str(reason)}
        return {
            "unreadable": None,
            "before": asdict(before),
            "again": asdict(again) if again else None,
            "timings": watch.milliseconds(),
        }

    def _divide(
        self, inputs: Sequence[DataFile], digester: Digester
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        limits = self.task.granted_limits()
        rows = self.task.worker.read_digested(
            inputs, digester, limits=limits, decoder=self.decoding.inputs, dictionaries=True
        )
        ranges, sort_keys = self.division.ranges, self.division.sort_keys
        owners = ranges.owners(self.parts)
        for chunk in gathered(rows, chunk_bytes(limits)):
            arranged = key_ranges.arrange(chunk, sort_keys=sort_keys, ranges=ranges)
            if self.is_near:
                for number, piece in arranged.pieces():
                    yield int(owners[number]), number, key_ranges.pack_rows(piece)
            else:
                compression = _worthwhile_compression(arranged.rows)
                for part, piece in arranged.parts(owners):
                    yield from ((part, 0, packed) for packed in _pack(piece, compression))

    def _read_again(self, inputs: Sequence[DataFile]) -> Digest | None:
        """Digest the rows as the second decoder reads them, where the proof wants that."""
        if not self.decoding.reads_inputs_twice or self.task.prove == "counts":
            return None
        worker, limits = self.task.worker, self.task.granted_limits()
        with Digester(worker.moved_rows) as digester:
            worker.digest_rows(inputs, digester, limits=limits, decoder=self.decoding.outputs)
            return digester.result()

    def join(self, part: int, pieces: Iterator[tuple[int, pa.Buffer]]) -> dict[str, Any]:
        """Sort and write the rows of one part, and read them back."""
        worker, watch = self.task.worker, Stopwatch(self.task.run.clock)
        limits = self.task.granted_limits()
        directory = worker.output_directory(self.group.inputs)
        stem = self.task.run.reserve(self.group.id, f"p{part}", directory=directory)
        with (
            key_ranges.low_memory_arrow(),
            watch.measure("write"),
            self._by_range(pieces) as waiting,
        ):
            ordered = key_ranges.sorted_rows(
                waiting, self.division, schema=worker.streamed_rows, limits=limits
            )
            outputs = write_apart(self.task, self.group, ordered, stem=stem)
        reached(Step.TASK_WRITTEN)
        with Digester(worker.moved_rows) as digester, watch.measure("prove"):
            if self.task.prove != "counts":
                decoder = self.decoding.outputs
                worker.digest_staged(outputs, digester, limits=limits, decoder=decoder)
            after = digester.result()
        return {
            "stem": stem,
            "outputs": [asdict(file) for file in outputs],
            "after": asdict(after),
            "timings": watch.milliseconds(),
        }

    @contextmanager
    def _by_range(
        self, pieces: Iterator[tuple[int, pa.Buffer]]
    ) -> Iterator[Iterator[tuple[int, list[pa.RecordBatch]]]]:
        """Give the rows of each range together, whatever the order of their pieces is."""
        ranges = self.division.ranges
        if self.is_near:
            yield (
                (number, [key_ranges.unpack_rows(piece) for _, piece in members])
                for number, members in groupby(pieces, key=itemgetter(0))
            )
            return
        with key_ranges.RangeSpool(len(ranges), limits=self.task.granted_limits()) as spool:
            for _, piece in pieces:
                arranged = key_ranges.arranged_before(key_ranges.unpack_rows(piece), ranges=ranges)
                for number, rows in arranged.pieces():
                    spool.add(number, rows)
            yield spool.take()

    def _result(self, exchanged: Exchanged) -> GroupResult:
        """Put together what the parts wrote, and prove it against what was read."""
        parts = results_of(exchanged.parts)
        written = tuple(StagedFile.from_json(file) for part in parts for file in part["outputs"])
        unit = parts[0]["stem"] if parts else ""
        outputs = mark_ordered(self.task.worker, written, self.order, unit=unit)
        watch = Stopwatch(self.task.run.clock)
        with watch.measure("prove"):
            proof = check_outputs(
                self.task,
                self.group,
                outputs,
                before=_total(exchanged.splits, "before"),
                again=_total(exchanged.splits, "again"),
                after=_total(parts, "after"),
                decoding=self.decoding,
            )
        return GroupResult(
            group=self.group.id,
            method="sort",
            attempt=unit,
            outputs=outputs,
            proof=proof,
            timings=_times([*exchanged.splits, *parts, {"timings": watch.milliseconds()}]),
        )


def _portions(group: Group) -> list[list[DataFile]]:
    """Divide the inputs among the tasks of the first stage."""
    most_bytes = min(_MOST_SPLIT_BYTES, group.input_bytes // _LEAST_SPLITS)
    return divide_files(group.inputs, most_bytes=most_bytes, most_files=None)


def _worthwhile_compression(rows: pa.RecordBatch) -> str | None:
    """Return how to compress rows that others carry; None where that takes longer than carrying."""
    sample = rows.slice(0, _TRIED_ROWS)
    packed = key_ranges.pack_rows(sample, compression="lz4").size
    return "lz4" if packed < _WORTHWHILE_SHARE * key_ranges.pack_rows(sample).size else None


def _pack(rows: pa.RecordBatch, compression: str | None) -> Iterator[pa.Buffer]:
    """Yield rows as bytes that are carried by others, none of them too large for that."""
    if rows.nbytes > MOST_PIECE_BYTES and rows.num_rows > 1:
        middle = rows.num_rows // 2
        yield from _pack(rows.slice(0, middle), compression)
        yield from _pack(rows.slice(middle), compression)
        return
    yield key_ranges.pack_rows(rows, compression=compression)


def _total(said: Sequence[Mapping[str, Any]], name: str) -> Digest | None:
    return total_digest([Digest.from_json(word[name]) for word in said if word[name]])


def _times(said: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    stages = {stage for word in said for stage in word["timings"]}
    return {stage: sum(word["timings"].get(stage, 0.0) for word in said) for stage in stages}
