"""Every single-bit flip of the footer of a Parquet file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lakehand
from lakehand.parquet.footer import TRAILER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


#: The file is broken; or whole, but of other columns or rows than the table's.
EXPECTED = {"CORRUPT_FILE", "SCHEMA_MISMATCH", "REFUSED"}


def footer_bits(data: bytes) -> range:
    """Return the positions of all bits of the footer in `data`, its trailer included."""
    (length,) = struct.unpack("<I", data[-TRAILER_BYTES:-4])
    return range((len(data) - TRAILER_BYTES - length) * 8, len(data) * 8)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flips(data: bytes, *, stride: int = 1) -> Iterator[bytes]:
    for bit in footer_bits(data)[::stride]:
        yield flipped(data, bit)


def act_on_flips(
    table: Path,
    file: Path,
    bits: Sequence[int],
    act: Callable[[Path], object],
    *,
    may_fail_proof: bool = False,
) -> None:
    """Let `act` meet each flip: it succeeds, or says by a typed error which file is wrong.

    `may_fail_proof` is for what carries the flip on, and finds it in the new file.
    """
    whole = file.read_bytes()
    for bit in bits:
        file.write_bytes(flipped(whole, bit))
        try:
            act(table)
        except lakehand.LakehandError as error:
            if may_fail_proof and error.code == "PROOF_FAILED":
                continue
            if error.code not in EXPECTED or file.name not in f"{error} {vars(error)}":
                raise AssertionError(f"bit {bit}: {error.code}: {error}") from error
        except Exception as error:
            raise AssertionError(f"bit {bit}: {error!r}") from error
        finally:
            print(f"bit {bit} was the last", flush=True)
    file.write_bytes(whole)
