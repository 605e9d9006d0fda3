"""The checksum of ranges is that of zlib, whoever computes it."""

from __future__ import annotations

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from lakehand.parquet.checksums import crc32

WITHOUT_ISAL = """
import sys
sys.modules["isal"] = None
import zlib
from lakehand.parquet.checksums import crc32
assert crc32 is zlib.crc32
"""


@given(data=st.binary(max_size=2000), start=st.integers(0, 2**32 - 1), skipped=st.integers(0, 70))
def test_any_bytes_have_the_checksum_of_zlib(data, start, skipped):
    view = memoryview(data)[skipped:]

    assert crc32(view, start) == zlib.crc32(view, start)


def test_a_long_block_has_the_checksum_of_zlib():
    block = memoryview(bytes(range(256)) * 4096)[3:-5]

    assert crc32(block, 7) == zlib.crc32(block, 7)


def test_zlib_stands_in_where_there_is_no_build_of_isal():
    assert subprocess.run([sys.executable, "-c", WITHOUT_ISAL], check=False).returncode == 0
