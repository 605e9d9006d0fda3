from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.names import decode_path, encode_path, is_absolute

decoded_paths = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda path: not path.startswith("file:///")
)


@given(decoded_paths)
def test_an_encoded_path_decodes_to_itself(path):
    assert decode_path(encode_path(path)) == path


@given(decoded_paths)
def test_an_encoded_path_is_plain_ascii(path):
    encoded = encode_path(path)
    assert encoded.isascii()
    assert not set(encoded) & set(' "<>\\^`{|}#?[]\n\x00')


def test_a_colon_does_not_turn_a_relative_path_into_a_url():
    assert encode_path("a:/b:c") == "a:/b:c"
    assert encode_path("a:b/c:d") == "a%3Ab/c:d"
    assert not is_absolute("p=a:b/c")


def test_hive_escapes_stay_in_the_decoded_path():
    assert decode_path("p=a%253Ab/part%201.parquet") == "p=a%3Ab/part 1.parquet"


def test_local_urls_and_bare_absolute_paths_name_one_file():
    assert decode_path("file:///some/with%20space/p@%23h") == "/some/with space/p@#h"
    assert decode_path("file:/some/x") == "file:/some/x"


@pytest.mark.parametrize("path", ["/a", "s3://bucket/a", "file:/a", "abfss://c@a.net/x"])
def test_absolute_paths_are_recognised(path):
    assert is_absolute(path)


def test_a_path_that_is_not_utf8_is_a_typed_error():
    with pytest.raises(CorruptLogError, match="not UTF-8"):
        decode_path("part-%FF.parquet")


@pytest.mark.parametrize("raw", ["100%", "a%zz", "a+b"])
def test_what_is_no_escape_stays_as_it_is(raw):
    assert decode_path(raw) == raw
