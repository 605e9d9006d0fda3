"""Proofs that files which a store composed hold the bytes of their sources.

A store has a CRC-64/NVME checksum of every object, computed when the object was written. This
process knows the checksums of all bytes that it read or wrote. Because a CRC is linear, the
checksum of a source and of what is known of it tell the checksum that its moved range must have,
and these tell the checksum that the new object must have. A byte that the store lost or changed, at
rest or during the copy, makes the two differ.

A source may be divided between two outputs. Then the first output tells the checksum of its part,
and the second must fit what is left of the source.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NoReturn

from lakehand.errors import ProofError
from lakehand.parquet.footer import MAGIC
from lakehand.storage.crc64 import combine, without_end, without_start
from lakehand.storage.s3_composer import KnownRange, MovedRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakehand.parquet.composed_copy import MovableFile
    from lakehand.parquet.row_group_copy import Composition
    from lakehand.storage import Store

#: A range, by its start and length, and its checksum; None: not known.
_Piece = tuple[int, int, int | None]


def check_composed(compositions: Sequence[Composition], sources: Iterable[MovableFile]) -> None:
    """Raise ProofError unless every composed file has the checksum that follows from its sources.

    `sources` are all files of which ranges were moved, each moved as a whole by `compositions`.
    """
    files = {file.stored.key: file for file in sources}
    known = {key: [*file.known] for key, file in files.items()}
    left = _ranges_of(compositions)
    closed: set[str] = set()
    for composition in compositions:
        for piece in _moved(composition):
            left[piece.source].remove(piece)
            if not left[piece.source] and piece.source in files:
                stored = files[piece.source].stored
                crc = _missing(stored.key, known[stored.key], piece, stored.bytes, stored.crc64)
                known[stored.key].append(_at_source(piece, crc))
                closed.add(stored.key)
        _check_output(composition, known)
    if closed != {*left}:
        _fail(next(iter({*left} - closed)), "not all of its bytes are accounted for")


def check_starts(store: Store, compositions: Iterable[Composition]) -> None:
    """Raise ProofError unless every composed file starts as a Parquet file does.

    The first bytes of a source are not read but taken for granted. Where they are moved, they are
    the same in both files, and the checksums agree whatever they are.
    """
    for composition in compositions:
        key = composition.stored.key
        if store.get_range(key, start=0, length=len(MAGIC)) != MAGIC:
            _fail(key, f"it does not start with {MAGIC.decode()}")


def _ranges_of(compositions: Sequence[Composition]) -> dict[str, list[MovedRange]]:
    """Return the ranges that are moved, by source."""
    ranges: dict[str, list[MovedRange]] = {}
    for composition in compositions:
        for piece in _moved(composition):
            ranges.setdefault(piece.source, []).append(piece)
    return ranges


def _moved(composition: Composition) -> list[MovedRange]:
    return [piece for piece in composition.ranges if isinstance(piece, MovedRange)]


def _at_source(piece: MovedRange, crc: int) -> KnownRange:
    return KnownRange(start=piece.source_start, length=piece.length, crc64=crc)


def _missing(
    key: str, known: Sequence[KnownRange], piece: MovedRange, size: int, whole: int
) -> int:
    """Return the checksum that the last unknown range of a source must have."""
    pieces: list[_Piece] = [(each.start, each.length, each.crc64) for each in known]
    pieces.append((piece.source_start, piece.length, None))
    return _solve(key, pieces, size, whole)


def _check_output(composition: Composition, known: Mapping[str, list[KnownRange]]) -> None:
    """Compare the checksum of an output; if a source continues elsewhere, note its part."""
    key, stored = composition.stored.key, composition.stored
    pieces: list[_Piece] = []
    open_ranges: list[MovedRange] = []
    for piece in composition.ranges:
        crc = piece.crc64 if isinstance(piece, KnownRange) else _crc_of(piece, known)
        pieces.append((piece.start, piece.length, crc))
        if crc is None and isinstance(piece, MovedRange):
            open_ranges.append(piece)
    if not open_ranges:
        _check_tiling(key, pieces, stored.bytes)
        if _joined(pieces) != stored.crc64:
            _fail(key, "its checksum in the store is not the one that follows from its sources")
        return
    if len(open_ranges) > 1:
        _fail(key, "it has parts of several files that continue in others")
    (piece,) = open_ranges
    known[piece.source].append(_at_source(piece, _solve(key, pieces, stored.bytes, stored.crc64)))


def _crc_of(piece: MovedRange, known: Mapping[str, list[KnownRange]]) -> int | None:
    place = (piece.source_start, piece.length)
    return next((k.crc64 for k in known[piece.source] if (k.start, k.length) == place), None)


def _solve(key: str, pieces: Sequence[_Piece], size: int, whole: int) -> int:
    """Return the checksum of the one piece without one, given that of the whole."""
    ordered = sorted((piece for piece in pieces if piece[1]), key=lambda piece: piece[0])
    _check_tiling(key, ordered, size)
    at = next(number for number, piece in enumerate(ordered) if piece[2] is None)
    before, after = ordered[:at], ordered[at + 1 :]
    after_bytes = sum(length for _, length, _ in after)
    until = without_end(whole, _joined(after), after_bytes)
    return without_start(until, _joined(before), ordered[at][1])


def _joined(pieces: Sequence[_Piece]) -> int:
    return reduce(lambda crc, piece: combine(crc, piece[2] or 0, piece[1]), pieces, 0)


def _check_tiling(key: str, pieces: Sequence[_Piece], size: int) -> None:
    """Check that pieces follow each other, from the first byte of a file to its last."""
    position = 0
    for start, length, _ in pieces:
        if start != position:
            _fail(key, f"its bytes at offset {position} are not accounted for")
        position += length
    if position != size:
        _fail(key, f"it has {size} bytes, expected {position}")


def _fail(key: str, difference: str) -> NoReturn:
    raise ProofError(
        f"{key} was not composed correctly by the store: {difference}; nothing was changed",
        hint="a file may be damaged, or the store copied it wrongly: verify the table, and try"
        " server_side_copy=never",
        path=key,
    )
