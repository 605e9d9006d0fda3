"""A proof is made only of equal rows, counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehand.errors import ProofError
from lakehand.model.work import Digest, Proof
from lakehand.prove.evidence import prove_equal, total_proof

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
        ({"expected_rows": 4}, "3 rows were read, but 4 are there"),
        ({"after": replace(ROWS, rows=2)}, "but 2 written"),
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
