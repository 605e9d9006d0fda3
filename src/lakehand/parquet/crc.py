"""CRC-32 as zlib and gzip have it, and as pages of Parquet files carry it.

ISA-L computes it by the vector unit, more than ten times as fast as zlib; where it is not
installed, because there is no build of it for a machine, zlib says the same.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
