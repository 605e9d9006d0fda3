"""CRC-64/NVME, the checksum that S3 keeps of whole objects, and arithmetic on it.

A CRC is linear: the checksum of a whole follows from those of its parts and their lengths, and the
checksum of a part from that of the whole and of everything else. So the checksum that a store has
of an object tells what the checksum of a copied range must be, without reading the range.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

_BITS = 64
_MASK = (1 << _BITS) - 1
#: x^0 in the reflected form, in which the lowest power is the highest bit.
_ONE = 1 << (_BITS - 1)
#: The generator, reflected.
_POLYNOMIAL = 0x9A6C9329AC4BC9B5
#: x^8 and its inverse: one byte further, one byte back.
_BYTE = _ONE >> 8
#: Parts of the data that are taken through the table at once: a step takes the same time for one.
_LANES = 1024


def crc64(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the checksum of `data`, or of what `crc` is the checksum of and `data` after it.

    >>> hex(crc64(b"123456789"))
    '0xae8b14860a799888'
    """
    view = memoryview(data).cast("B")
    length = view.nbytes // (2 * _LANES) * 2
    if length:
        pairs = np.frombuffer(view[: length * _LANES], dtype="<u2").reshape(_LANES, -1)
        for lane in _checksums(pairs):
            crc = combine(crc, lane, length)
    return _of_few(view[length * _LANES :], crc)


def _checksums(rows: np.ndarray[Any, Any]) -> list[int]:
    """Return the checksum of each row, two bytes in a step."""
    table = _table_of_pairs()
    states = np.full(len(rows), _MASK, dtype=np.uint64)
    for column in np.ascontiguousarray(rows.T):
        states = table[(states ^ column) & np.uint64(0xFFFF)] ^ (states >> np.uint64(16))
    return [int(state) for state in ~states]


def _of_few(data: bytes | memoryview, crc: int) -> int:
    table = _table()
    state: int = crc ^ _MASK
    for byte in bytes(data):
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return int(state ^ _MASK)


@cache
def _table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        table.append(state)
    return table


@cache
def _table_of_pairs() -> np.ndarray[Any, Any]:
    table = np.array(_table(), dtype=np.uint64)
    states = np.arange(2**16, dtype=np.uint64)
    for _ in range(2):
        states = table[states & np.uint64(0xFF)] ^ (states >> np.uint64(8))
    return states


def combine(first: int, second: int, second_bytes: int) -> int:
    """Return the checksum of two pieces, one after the other.

    >>> combine(crc64(b"1234"), crc64(b"56789"), 5) == crc64(b"123456789")
    True
    """
    return _multiply(_power(_BYTE, second_bytes), first) ^ second


def without_end(whole: int, end: int, end_bytes: int) -> int:
    """Return the checksum of what is before the last piece.

    >>> without_end(crc64(b"123456789"), crc64(b"56789"), 5) == crc64(b"1234")
    True
    """
    return _multiply(_power(_inverse_byte(), end_bytes), whole ^ end)


def without_start(whole: int, start: int, rest_bytes: int) -> int:
    """Return the checksum of what is after the first piece: `rest_bytes` bytes.

    >>> without_start(crc64(b"123456789"), crc64(b"1234"), 5) == crc64(b"56789")
    True
    """
    return whole ^ combine(start, 0, rest_bytes)


def _multiply(one: int, other: int) -> int:
    """Multiply two polynomials modulo the generator."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = (one << 1) & _MASK
        other = (other >> 1) ^ (_POLYNOMIAL if other & 1 else 0)
    return product


@lru_cache(maxsize=4_096)
def _power(base: int, exponent: int) -> int:
    power = _ONE
    while exponent:
        if exponent & 1:
            power = _multiply(power, base)
        base = _multiply(base, base)
        exponent >>= 1
    return power


@cache
def _inverse_byte() -> int:
    """Return x^-8: the generator has a constant term, so that a step can be taken back."""
    power = _ONE
    for _ in range(8):
        # x^-1 times p: undo the shift, after making the term that fell out visible again.
        carried = power & _ONE
        power = ((power ^ (_POLYNOMIAL if carried else 0)) << 1) & _MASK | (1 if carried else 0)
    return power
