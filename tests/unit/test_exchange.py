"""Two stages of tasks: every piece reaches its part once, in order, and failures are told."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakehand
from lakehand.engine import CancelToken
from lakehand.engine.exchange import Room, exchange
from lakehand.engine.spark_exchange import (
    _splitting,
    join_packed,
    pack_exchange,
    read_exchanged,
    split_packed,
)
from lakehand.errors import CancelledError, ProofError, StoreQuotaError
from support.compactions import InlineRunner


def split_numbers(payload):
    """Send each number to the part of its last digit."""
    if payload.get("fails"):
        raise ProofError("this payload is wrong")
    for number in payload["numbers"]:
        yield number % 10, number // 10, pa.py_buffer(str(number).encode())
    return {"count": len(payload["numbers"])}


def join_numbers(part, pieces):
    if part == 7:
        raise ProofError("this part is wrong")
    found = [(place, int(piece.to_pybytes())) for place, piece in pieces]
    assert [place for place, _ in found] == [number // 10 for _, number in found]
    return {"part": part, "numbers": [number for _, number in found]}


def exchanged(payloads, **options):
    return exchange(
        options.get("runner") or InlineRunner(),
        split_numbers,
        payloads,
        join_numbers,
        parts=10,
        run=None,
        cancel=options.get("cancel") or CancelToken(),
        room=options.get("room"),
    )


PAYLOADS = [{"numbers": [41, 11, 2]}, {"numbers": [21, 5, 1]}, {"numbers": []}]
JOINED = [(1, [1, 11, 21, 41]), (2, [2]), (5, [5])]


def test_every_piece_reaches_its_part_in_the_order_of_places():
    found = exchanged(PAYLOADS)

    assert [(o.result["part"], o.result["numbers"]) for o in found.parts] == JOINED
    assert [said["count"] for said in found.splits] == [3, 3, 0]


def test_pieces_wait_where_they_may_and_are_gone_afterwards(tmp_path):
    seen = []

    class Watching(InlineRunner):
        def run(self, *given, **options):
            seen.append(sorted(path.name.partition("-e")[0] for path in tmp_path.iterdir()))
            return super().run(*given, **options)

    room = Room(directory=str(tmp_path))
    exchanged(PAYLOADS, runner=Watching(), room=room)

    assert seen == [["lakehand"], ["lakehand"]]
    assert list(tmp_path.iterdir()) == []


def test_pieces_for_which_there_is_no_room_are_an_error_that_says_so():
    with pytest.raises(StoreQuotaError, match="the limit is 4 bytes") as caught:
        exchanged(PAYLOADS, room=Room(most_bytes=4))

    assert "scratch_directory" in str(caught.value.hint)


def test_a_failure_of_the_first_stage_is_raised():
    with pytest.raises(ProofError, match="this payload is wrong"):
        exchanged([*PAYLOADS, {"fails": True, "numbers": []}])


def test_a_failure_of_the_second_stage_is_the_outcome_of_its_part():
    found = exchanged([{"numbers": [1, 7]}])

    assert [bool(outcome.failure) for outcome in found.parts] == [False, True]


def test_a_job_that_is_not_wanted_any_more_ends():
    cancel = CancelToken()
    cancel.cancel()

    with pytest.raises(CancelledError):
        exchanged(PAYLOADS, cancel=cancel)


def test_rows_of_a_shuffle_carry_pieces_and_what_is_said():
    work = pack_exchange(split_numbers, PAYLOADS, join_numbers, parts=10)

    rows = [
        row for index in range(3) for batch in split_packed(work, index) for row in parts(batch)
    ]
    assert [row for row in rows if row[0] < 10] == [
        (1, 4, b"41"),
        (1, 1, b"11"),
        (2, 0, b"2"),
        (1, 2, b"21"),
        (5, 0, b"5"),
        (1, 0, b"1"),
    ]
    assert sum(row[0] == 10 for row in rows) == 3
    [joined] = join_packed(work, iter([batch_of((1, 0, b"1"), (1, 1, b"11"))]))
    assert joined.column("index").to_pylist() == [1]
    assert list(join_packed(work, iter([]))) == []


def parts(batch):
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def batch_of(*rows):
    columns = map(list, zip(*rows, strict=True))
    return pa.RecordBatch.from_pydict(dict(zip(("part", "place", "piece"), columns, strict=True)))


def test_an_executor_of_another_version_is_told_from_one_that_fails():
    other = {"lakehand": "0.0.0", "python": "3.0"}
    [told] = _splitting(b"", 10, other)(iter([]))
    [(part, _, word)] = parts(told)

    assert part == 10
    assert json.loads(word)["mismatch"]["lakehand"] == lakehand.__version__
    outcomes = {10: {"result": {"said": [json.loads(word)]}}}
    with pytest.raises(ValueError, match=lakehand.__version__):
        read_exchanged(outcomes, parts=10, mismatch=lambda found: ValueError(found["lakehand"]))
