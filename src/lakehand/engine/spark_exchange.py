"""Two stages of tasks on Spark, whose own shuffle carries the pieces from one to the other.

For machines that are not this one. A row of the shuffle is the number of a part, the place there
and a piece, which Spark does not look into. What the tasks of the first stage say at their end
is sent the same way, to a separate part.
"""

from __future__ import annotations

import json
import pickle
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.engine.exchange import Exchanged, Join, Split
from lakehand.engine.runner_contract import TaskOutcome, attempt
from lakehand.engine.session import setting_of
from lakehand.engine.spark_task import OUTCOME_SCHEMA
from lakehand.errors import LakehandError, error_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_PIECES = pa.schema([("part", pa.int32()), ("place", pa.int32()), ("piece", pa.binary())])
_PIECE_SCHEMA = "part int, place int, piece binary"
_SETTINGS = {
    # Each is a piece of up to 16 MiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    # Spark compares checksums of what it reads again after an executor was lost, and gives the job
    # up if they differ. These do, by the times that tasks tell at their end; rows belong to the
    # same parts every time, and the proof is over all of them.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}


def pack_exchange(
    split: Split, payloads: Sequence[Mapping[str, Any]], join: Join, *, parts: int
) -> bytes:
    """Return everything that the tasks of both stages need, unreadable in a log."""
    from pyspark import cloudpickle

    packed = [zlib.compress(json.dumps(payload).encode(), level=1) for payload in payloads]
    work = (split, packed, join, parts)
    return zlib.compress(cloudpickle.dumps(work), level=1)  # type: ignore[no-untyped-call]


def exchange_frame(
    spark: Any, work: bytes, *, tasks: int, parts: int, versions: Mapping[str, str]
) -> Any:
    """Return the frame whose rows are the outcomes of all parts."""
    change_settings(spark, _SETTINGS)
    numbers = spark.range(0, tasks, 1, tasks)
    pieces = numbers.mapInArrow(_splitting(work, parts, versions), _PIECE_SCHEMA)
    # By number and not by hash: each part is one task. One more part takes the answers.
    return pieces.repartitionById(parts + 1, "part").mapInArrow(_joining(work), OUTCOME_SCHEMA)


def settings_of(spark: Any) -> dict[str, str]:
    """Return what a session says of all settings that an exchange changes."""
    return {name: setting_of(spark, name, "") for name in _SETTINGS}


def change_settings(spark: Any, settings: Mapping[str, str]) -> None:
    """Set what has a value, and forget what has none."""
    for name, value in settings.items():
        if value:
            spark.conf.set(name, value)
        else:
            spark.conf.unset(name)


def read_exchanged(
    outcomes: Mapping[int, Mapping[str, Any]],
    *,
    parts: int,
    mismatch: Callable[[Mapping[str, str]], LakehandError],
) -> Exchanged:
    """Return the results of both stages; raises the failure of a task of the first one."""
    said = outcomes[parts]["result"]["said"]
    for word in said:
        if "mismatch" in word:
            raise mismatch(word["mismatch"])
        if "failure" in word:
            raise error_from_json(word["failure"])
    return Exchanged(
        splits=tuple(word["result"] for word in said),
        parts=tuple(
            TaskOutcome(index=part, **outcome)
            for part, outcome in sorted(outcomes.items())
            if part != parts
        ),
    )


def _splitting(
    work: bytes, parts: int, versions: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of the first stage; it compares versions before it names lakehand."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        import platform

        import pyarrow as pa

        from lakehand import __version__ as lakehand_version

        python_version = ".".join(platform.python_version_tuple()[:2])
        found = {"lakehand": lakehand_version, "python": python_version}
        if found != versions:
            word = json.dumps({"mismatch": found}).encode()
            numbers = [pa.array([number], pa.int32()) for number in (parts, 0)]
            columns = [*numbers, pa.array([word], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["part", "place", "piece"])
            return
        from lakehand.engine.spark_exchange import split_packed

        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from split_packed(work, index)

    return run


def _joining(work: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lakehand.engine.spark_exchange import join_packed

        yield from join_packed(work, batches)

    return run


def split_packed(work: bytes, index: int) -> Iterator[pa.RecordBatch]:
    """Run one task of the first stage and yield its pieces, then what it says."""
    split, payloads, _, parts = _unpack(work)
    pieces = split(json.loads(zlib.decompress(payloads[index])))
    while True:
        try:
            part, place, piece = next(pieces)
        except StopIteration as end:
            yield _row(parts, 0, pa.py_buffer(json.dumps({"result": end.value}).encode()))
            return
        except LakehandError as error:
            word = json.dumps({"failure": error.to_json()}, default=str)
            yield _row(parts, 0, pa.py_buffer(word.encode()))
            return
        yield _row(part, place, piece)


def join_packed(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the task of one part; one without pieces has nothing to do."""
    _, _, join, parts = _unpack(work)
    rows = (row for batch in batches for row in zip(*batch.columns, strict=True))
    first = next(rows, None)
    if first is None:
        return
    part = first[0].as_py()
    pieces = _buffers(first, rows)
    if part == parts:
        outcome = {"result": {"said": [json.loads(piece.to_pybytes()) for _, piece in pieces]}}
    else:
        outcome = attempt(join, part, pieces) | {"attempts": _attempt_number()}
    yield pa.RecordBatch.from_pydict({"index": [part], "outcome": [json.dumps(outcome)]})


def _attempt_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 + (context.attemptNumber() if context is not None else 0)


def _buffers(
    first: Sequence[Any], rows: Iterator[Sequence[Any]]
) -> Iterator[tuple[int, pa.Buffer]]:
    for _, place, piece in chain([first], rows):
        yield place.as_py(), piece.as_buffer()


def _row(part: int, place: int, piece: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.array([0, piece.size], pa.int32()).buffers()[1]
    content = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, piece])
    numbers = [pa.array([number], pa.int32()) for number in (part, place)]
    return pa.RecordBatch.from_arrays([*numbers, content], schema=_PIECES)


def _unpack(work: bytes) -> Any:
    return pickle.loads(zlib.decompress(work))  # noqa: S301  written by our own driver
