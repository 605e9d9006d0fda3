"""Two stages of tasks: every piece reaches its part once, and failures are told."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakehand
from lakehand.engine import CancelToken
from lakehand.engine.exchange import exchange
from lakehand.engine.spark_exchange import (
    _splitting,
    join_packed,
    pack_exchange,
    read_exchanged,
    split_packed,
)
from lakehand.errors import CancelledError, ProofError
from support.compactions import InlineRunner


def split_numbers(payload):
    """Send each number to the part of its last digit."""
    if payload.get("fails"):
        raise ProofError("this payload is wrong")
    for number in payload["numbers"]:
        yield number % 10, pa.py_buffer(str(number).encode())
    return {"count": len(payload["numbers"])}


def join_numbers(part, pieces):
    if part == 7:
        raise ProofError("this part is wrong")
    return {"part": part, "numbers": sorted(int(piece.to_pybytes()) for piece in pieces)}


def exchanged(payloads, **options):
    return exchange(
        InlineRunner(),
        split_numbers,
        payloads,
        join_numbers,
        parts=10,
        run=None,
        cancel=options.get("cancel") or CancelToken(),
    )


PAYLOADS = [{"numbers": [1, 11, 2]}, {"numbers": [21, 5]}, {"numbers": []}]
JOINED = [(1, [1, 11, 21]), (2, [2]), (5, [5])]


def test_every_piece_reaches_its_part():
    found = exchanged(PAYLOADS)

    assert [(o.result["part"], o.result["numbers"]) for o in found.parts] == JOINED
    assert [said["count"] for said in found.splits] == [3, 2, 0]


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
        (1, b"1"),
        (1, b"11"),
        (2, b"2"),
        (1, b"21"),
        (5, b"5"),
    ]
    assert sum(row[0] == 10 for row in rows) == 3
    [joined] = join_packed(work, iter([batch_of((1, b"1"), (1, b"11"))]))
    assert joined.column("index").to_pylist() == [1]
    assert list(join_packed(work, iter([]))) == []


def parts(batch):
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def batch_of(*rows):
    numbers, pieces = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"part": list(numbers), "piece": list(pieces)})


def test_an_executor_of_another_version_is_told_from_one_that_fails():
    other = {"lakehand": "0.0.0", "python": "3.0"}
    [told] = _splitting(b"", 10, other)(iter([]))
    [(part, word)] = parts(told)

    assert part == 10
    assert json.loads(word)["mismatch"]["lakehand"] == lakehand.__version__
    outcomes = {10: {"result": {"said": [json.loads(word)]}}}
    with pytest.raises(ValueError, match=lakehand.__version__):
        read_exchanged(outcomes, parts=10, mismatch=lambda found: ValueError(found["lakehand"]))
