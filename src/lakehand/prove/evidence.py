"""From two digests to a proof, or to an error that stops the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import ProofError
from lakehand.model.work import Digest, Proof

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["digest_text", "prove_equal", "total_proof"]

_LANE_DIGITS = 16
_LANE_MODULUS = 2**64


def prove_equal(
    before: Digest, after: Digest, *, expected_rows: int, proved_bytes: int, subject: str
) -> Proof:
    """Return the evidence that the rows written are the rows read; ProofError if they are not.

    `expected_rows` comes from a source that neither digest has seen: a wrong reading may produce
    two equal digests, and still not the number of rows that the inputs say they hold.
    """
    if before.rows != expected_rows:
        raise _failure(subject, f"{before.rows} rows were read, but {expected_rows} are there")
    if after.rows != before.rows:
        raise _failure(subject, f"{before.rows} rows were read, but {after.rows} written")
    if (before.algorithm, before.engine) != (after.algorithm, after.engine):
        raise _failure(subject, "rows were read and written under different engines")
    if before.lanes != after.lanes:
        read, written = digest_text(before), digest_text(after)
        raise _failure(subject, f"rows read have the digest {read}, rows written {written}")
    return Proof(
        kind="digest",
        rows=after.rows,
        digest=digest_text(after),
        bytes=proved_bytes,
        algorithm=after.algorithm,
        engine=after.engine,
    )


def _failure(subject: str, difference: str) -> ProofError:
    return ProofError(
        f"{subject} was not rewritten faithfully: {difference}; nothing was changed",
        hint="a defect of lakehand or of the storage: please report it, and verify the table",
    )


def digest_text(digest: Digest) -> str:
    """Return both lanes in hexadecimal."""
    return "".join(f"{lane:0{_LANE_DIGITS}x}" for lane in digest.lanes)


def total_proof(proofs: Sequence[Proof]) -> Proof | None:
    """Add up proofs: sums of digests are the digest of all rows. None if there are none.

    Checksums of ranges do not add up, so several of them leave no digest.
    """
    if not proofs:
        return None
    if len(proofs) == 1:
        return proofs[0]
    kinds, algorithms, engines = (
        sorted({getattr(proof, name) for proof in proofs})
        for name in ("kind", "algorithm", "engine")
    )
    adds_up = kinds == ["digest"] and len(algorithms) == len(engines) == 1
    return Proof(
        kind=proofs[0].kind if len(kinds) == 1 else "mixed",
        rows=sum(proof.rows for proof in proofs),
        digest=_sum_digests(proofs) if adds_up else None,
        bytes=sum(proof.bytes for proof in proofs),
        algorithm=",".join(algorithms),
        engine=",".join(engines),
    )


def _sum_digests(proofs: Sequence[Proof]) -> str | None:
    texts = [proof.digest for proof in proofs if proof.digest is not None]
    if len(texts) < len(proofs):
        return None
    first = sum(int(text[:_LANE_DIGITS], 16) for text in texts) % _LANE_MODULUS
    second = sum(int(text[_LANE_DIGITS:], 16) for text in texts) % _LANE_MODULUS
    return f"{first:0{_LANE_DIGITS}x}{second:0{_LANE_DIGITS}x}"
