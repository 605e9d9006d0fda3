"""A proof is made only of equal rows, counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehand.errors import ProofError
from lakehand.model.work import Digest, Proof
from lakehand.prove.evidence import prove_counted, prove_equal, total_proof

ROWS = Digest(rows=3, lanes=(1, 2**63), algorithm="a-1", engine="e-1")


def prove(before=ROWS, after=ROWS, expected_rows=3):
    return prove_equal(
        before, after, expected_rows=expected_rows, proved_bytes=10, subject="group 4"
    )


def test_equal_digests_are_a_proof():
    assert prove() == Proof(
        kind="digest",
        rows=3,
        digest="00000000000000018000000000000000",
        bytes=10,
        algorithm="a-1",
        engine="e-1",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected_rows": 4}, "3 rows were read, but 4 are expected"),
        ({"after": replace(ROWS, rows=2)}, "but 2 were written"),
        ({"after": replace(ROWS, lanes=(1, 3))}, "digest"),
        ({"after": replace(ROWS, lanes=(2, 2**63))}, "digest"),
        ({"after": replace(ROWS, engine="e-2")}, "different engines"),
    ],
)
def test_any_difference_is_an_error_that_names_the_group(change, message):
    with pytest.raises(ProofError, match=f"group 4 .*{message}"):
        prove(**change)


def test_proofs_add_up_to_the_proof_of_all_rows():
    proof = prove()

    total = total_proof([proof, proof])

    assert total is not None
    assert (total.rows, total.bytes) == (6, 20)
    assert total.digest == "00000000000000020000000000000000"


def test_proofs_of_different_kinds_have_no_common_digest():
    ranges = replace(prove(), kind="ranges", digest=None)

    total = total_proof([prove(), ranges])

    assert total is not None
    assert (total.kind, total.digest, total.rows) == ("mixed", None, 6)


def test_no_proofs_are_no_proof():
    assert total_proof([]) is None


def test_counts_prove_no_more_than_a_number():
    proof = prove_counted(ROWS, expected_rows=3, written_rows=3, subject="group 4")

    assert (proof.kind, proof.rows, proof.digest, proof.bytes) == ("counts", 3, None, 0)


@pytest.mark.parametrize(
    ("expected", "written", "message"), [(4, 3, "but 4 are expected"), (3, 2, "but 2 were written")]
)
def test_counts_that_differ_are_an_error(expected, written, message):
    with pytest.raises(ProofError, match=f"group 4 .*{message}"):
        prove_counted(ROWS, expected_rows=expected, written_rows=written, subject="group 4")


def test_a_total_is_called_what_its_weakest_part_is():
    counted = prove_counted(ROWS, expected_rows=3, written_rows=3, subject="group 4")
    ranges = replace(prove(), kind="ranges", digest="0000abcd")

    weak, mixed = total_proof([counted, ranges, prove()]), total_proof([ranges, prove()])

    assert weak is not None
    assert mixed is not None
    assert (weak.kind, weak.digest, weak.algorithm) == ("counts", None, "a-1,lakehand-counts-1")
    assert (mixed.kind, mixed.digest) == ("mixed", None)


def test_a_total_names_the_decoders_that_proved_it():
    total = total_proof([replace(prove(), decoders="a/b"), prove()])

    assert total is not None
    assert total.decoders == "a/b"
