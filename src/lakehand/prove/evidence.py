"""Compares two digests, or two counts, and returns a proof, or raises ProofError."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import ProofError
from lakehand.model.work import Digest, Proof, ProofKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_DIGEST = re.compile(r"[0-9a-f]{32}")
_LANE_DIGITS = 16
_LANE_MODULUS = 2**64
_COUNTS_ALGORITHM, _COUNTS_ENGINE = "lakehand-counts-1", "footers"
_POSITIONS_ALGORITHM, _POSITIONS_ENGINE = "lakehand-positions-1", "vectors"


def prove_equal(
    before: Digest,
    after: Digest,
    *,
    expected_rows: int,
    proved_bytes: int,
    subject: str,
    decoders: str | None = None,
) -> Proof:
    """Return the proof that the rows written are the rows read; ProofError if they differ.

    `expected_rows` comes from a source independent of both digests: a wrong decoder may produce two
    equal digests, but not the number of rows that the metadata of the inputs has.
    """
    _check_counts(subject, expected=expected_rows, read=before.rows, written=after.rows)
    if (before.algorithm, before.engine) != (after.algorithm, after.engine):
        raise _failure(subject, "the rows read and written were digested by different engines")
    if before.lanes != after.lanes:
        read, written = digest_hex(before), digest_hex(after)
        raise _failure(subject, f"rows read have the digest {read}, rows written {written}")
    return Proof(
        kind="digest",
        rows=after.rows,
        digest=digest_hex(after),
        bytes=proved_bytes,
        algorithm=after.algorithm,
        engine=after.engine,
        decoders=decoders,
    )


def check_same_rows(one: Digest, other: Digest, *, subject: str) -> None:
    """Raise ProofError if two decoders read different rows from the same files."""
    if one != other:
        raise _failure(subject, f"one decoder reads {_describe(one)}, another {_describe(other)}")


def check_footers(difference: str | None, *, subject: str) -> None:
    """Raise ProofError if readers would interpret the new files differently despite equal rows."""
    if difference is not None:
        raise _failure(subject, difference)


def check_deleted_count(expected_rows: int, *, hidden_rows: int, subject: str) -> None:
    """Raise ProofError unless the stored deletion vector has the expected number of rows.

    Rows that were deleted before are in no digest, and must stay deleted.
    """
    if hidden_rows != expected_rows:
        raise _failure(subject, f"expected {expected_rows} deleted rows, but found {hidden_rows}")


def prove_positions(
    expected_rows: int,
    *,
    staged_rows: int,
    removed_rows: int,
    positions_digest: str,
    proved_bytes: int,
    subject: str,
) -> Proof:
    """Return the proof of positions that were checked; ProofError if counts differ."""
    _check_counts(subject, expected=expected_rows, read=expected_rows, written=staged_rows)
    return Proof(
        kind="positions",
        rows=staged_rows,
        digest=None,
        bytes=proved_bytes,
        algorithm=_POSITIONS_ALGORITHM,
        engine=_POSITIONS_ENGINE,
        removed_rows=removed_rows,
        positions_digest=positions_digest,
    )


def sum_digests(digests_hex: Sequence[str]) -> str:
    """Add up hexadecimal digests; zero if there are none."""
    return _sum(digests_hex) or ""


def _describe(digest: Digest) -> str:
    return f"{digest.rows} rows with the digest {digest_hex(digest)}"


def prove_counted(before: Digest, *, expected_rows: int, written_rows: int, subject: str) -> Proof:
    """Return the proof that as many rows were written as read; ProofError if counts differ.

    `written_rows` comes from the footers of the outputs, read back from storage. It says nothing
    about values: a proof of this kind has no digest.
    """
    _check_counts(subject, expected=expected_rows, read=before.rows, written=written_rows)
    return Proof(
        kind="counts",
        rows=written_rows,
        digest=None,
        bytes=0,
        algorithm=_COUNTS_ALGORITHM,
        engine=_COUNTS_ENGINE,
    )


def prove_removed(
    *,
    before: Digest,
    removed: Digest,
    after: Digest,
    expected_rows: int,
    proved_bytes: int,
    subject: str,
    decoders: str | None = None,
) -> Proof:
    """Return the proof that the rows before, minus those removed, are the rows after.

    `expected_rows` is the number of remaining rows from an independent count. Raises ProofError if
    any of them differ.
    """
    left = without_rows(before, rows=removed.rows, digest=digest_hex(removed))
    _check_counts(subject, expected=expected_rows, read=left.rows, written=after.rows)
    if left != after:
        raise _failure(subject, f"expected {_describe(left)}, but found {_describe(after)}")
    return Proof(
        kind="digest",
        rows=after.rows,
        digest=digest_hex(after),
        bytes=proved_bytes,
        algorithm=after.algorithm,
        engine=after.engine,
        removed_rows=removed.rows,
        removed_digest=digest_hex(removed),
        decoders=decoders,
    )


def prove_added(
    written: Digest,
    found: Digest | None,
    *,
    expected_rows: int,
    staged_rows: int,
    proved_bytes: int,
    is_lasting: bool,
) -> Proof:
    """Return the proof that storage holds the new rows; ProofError if it does not.

    `found` is what was read back from storage; without it rows are only counted. A digest that is
    not `is_lasting` is valid only for the staged files, and is not stored.
    """
    subject = f"{expected_rows} new rows"
    if found is None:
        counted = prove_counted(
            written, expected_rows=expected_rows, written_rows=staged_rows, subject=subject
        )
        return replace(counted, added_rows=expected_rows)
    proof = prove_equal(
        written, found, expected_rows=expected_rows, proved_bytes=proved_bytes, subject=subject
    )
    kept = proof.digest if is_lasting else None
    return replace(proof, digest=kept, added_rows=expected_rows, added_digest=kept)


def prove_remaining(
    expected_rows: int, *, written_rows: int, removed_rows: int, subject: str
) -> Proof:
    """Return the proof that the expected number of rows remains; ProofError if not."""
    _check_counts(subject, expected=expected_rows, read=expected_rows, written=written_rows)
    return Proof(
        kind="counts",
        rows=written_rows,
        digest=None,
        bytes=0,
        algorithm=_COUNTS_ALGORITHM,
        engine=_COUNTS_ENGINE,
        removed_rows=removed_rows,
    )


def is_readable(proof: Mapping[str, Any]) -> bool:
    """Return whether the proof in a commit has the expected types."""
    counts = [proof.get(name) for name in ("rows", "removed_rows", "added_rows")]
    digests = [proof.get(name) for name in ("removed_digest", "added_digest")]
    return all(type(count) is int for count in counts if count is not None) and all(
        isinstance(text, str) and _DIGEST.fullmatch(text) for text in digests if text is not None
    )


def without_rows(before: Digest, *, rows: int, digest: str) -> Digest:
    """Return the digest of the remaining rows if rows with this `digest` are removed."""
    first, second = digest[:_LANE_DIGITS], digest[_LANE_DIGITS:]
    lanes = (
        (before.lanes[0] - int(first, 16)) % _LANE_MODULUS,
        (before.lanes[1] - int(second, 16)) % _LANE_MODULUS,
    )
    return replace(before, rows=before.rows - rows, lanes=lanes)


def with_rows(before: Digest, *, rows: int, digest: str) -> Digest:
    """Return the digest of these rows and rows with this `digest` together."""
    first, second = digest[:_LANE_DIGITS], digest[_LANE_DIGITS:]
    lanes = (
        (before.lanes[0] + int(first, 16)) % _LANE_MODULUS,
        (before.lanes[1] + int(second, 16)) % _LANE_MODULUS,
    )
    return replace(before, rows=before.rows + rows, lanes=lanes)


def _check_counts(subject: str, *, expected: int, read: int, written: int) -> None:
    if read != expected:
        raise _failure(subject, f"{read} rows were read, but {expected} are expected")
    if written != read:
        raise _failure(subject, f"{read} rows were read, but {written} were written")


def _failure(subject: str, difference: str) -> ProofError:
    return ProofError(
        f"{subject} was not rewritten correctly: {difference}; nothing was changed",
        hint="this is a bug in lakehand or a storage error: report it, and verify the table",
    )


def digest_hex(digest: Digest) -> str:
    """Return both lanes in hexadecimal."""
    return "".join(f"{lane:0{_LANE_DIGITS}x}" for lane in digest.lanes)


def total_digest(digests: Sequence[Digest]) -> Digest | None:
    """Add up digests of disjoint sets of rows. None if there are none."""
    if not digests:
        return None
    lanes = (sum(digest.lanes[lane] for digest in digests) % _LANE_MODULUS for lane in (0, 1))
    first, second = lanes
    return replace(digests[0], rows=sum(digest.rows for digest in digests), lanes=(first, second))


def total_proof(proofs: Sequence[Proof]) -> Proof | None:
    """Add up proofs: the sum of digests is the digest of all rows. None if there are none.

    Checksums of byte ranges cannot be added, so several of them have no digest. Digests of rows and
    of positions cannot be added either, so added and removed rows have one each.
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
    decoders = sorted({proof.decoders for proof in proofs if proof.decoders})
    return Proof(
        kind=_total_kind(proofs),
        rows=sum(proof.rows for proof in proofs),
        digest=_sum([proof.digest for proof in proofs]) if adds_up else None,
        bytes=sum(proof.bytes for proof in proofs),
        algorithm=",".join(algorithms),
        engine=",".join(engines),
        decoders=",".join(decoders) or None,
        removed_rows=sum(proof.removed_rows for proof in proofs),
        removed_digest=_part([proof for proof in proofs if proof.removed_rows], "removed_digest"),
        added_rows=sum(proof.added_rows for proof in proofs),
        added_digest=_part([proof for proof in proofs if proof.added_rows], "added_digest"),
        positions_digest=_part(
            [proof for proof in proofs if proof.removed_rows], "positions_digest"
        ),
    )


def _part(concerned: Sequence[Proof], name: str) -> str | None:
    """Add up the digests of rows that only some proofs have, if all of them have it."""
    if len({(proof.kind, proof.algorithm, proof.engine) for proof in concerned}) != 1:
        return None
    return _sum([getattr(proof, name) for proof in concerned])


def _total_kind(proofs: Sequence[Proof]) -> ProofKind:
    kinds = {proof.kind for proof in proofs}
    # The total is as strong as its weakest part, and a count proves no values.
    if "counts" in kinds:
        return "counts"
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _sum(digests: Sequence[str | None]) -> str | None:
    digests_hex = [text for text in digests if text is not None]
    if len(digests_hex) < len(digests):
        return None
    first = sum(int(text[:_LANE_DIGITS], 16) for text in digests_hex) % _LANE_MODULUS
    second = sum(int(text[_LANE_DIGITS:], 16) for text in digests_hex) % _LANE_MODULUS
    return f"{first:0{_LANE_DIGITS}x}{second:0{_LANE_DIGITS}x}"
