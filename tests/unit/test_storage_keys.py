from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.errors import UnsafePathError
from lakehand.storage.location import check_key, check_keys, check_prefix

names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/%\\"), min_size=1
).filter(lambda name: name not in {".", ".."})


@given(st.lists(names, min_size=1))
def test_ordinary_names_make_a_safe_key(segments):
    key = "/".join(segments)

    assert check_key(key) == key
    assert check_key(quote(key)) == quote(key)


@given(
    before=st.lists(names),
    bad=st.sampled_from(
        ["..", ".", "", "%2e%2e", ".%2E", "%2e", "%252e%252e", "..%2f..", "%00", "\0"]
    ),
    after=st.lists(names),
)
def test_a_bad_segment_is_refused_wherever_it_is(before, bad, after):
    with pytest.raises(UnsafePathError):
        check_key("/".join([*before, bad, *after]))


@pytest.mark.parametrize("key", ["p=a%2F../f", "p=x%2F..%2Fy/f", "p=a%252F..", "p=a%5C../f"])
def test_a_segment_that_goes_up_only_within_itself_once_it_is_decoded_is_safe(key):
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["p=a%2F..%2F../f", "d/p=a%252F..%252F..", "p=a%2F../..", "..%5Cf"])
def test_a_segment_that_leaves_its_directory_once_it_is_decoded_is_refused(key):
    with pytest.raises(UnsafePathError):
        check_key(key)


def test_the_error_names_path_and_remedy():
    with pytest.raises(UnsafePathError, match=r"\.\./secret") as raised:
        check_key("../secret")

    assert raised.value.path == "../secret"
    assert raised.value.hint


def test_a_prefix_may_end_with_a_slash_and_be_the_root():
    assert check_prefix("_delta_log/") == "_delta_log"
    assert check_prefix("") == ""
    assert check_prefix("/") == ""


parts = st.sampled_from(["a", "", ".", "..", "%2e%2e", "a%20b", "x\ny", "\n", "a\0", "...", "b=1"])
some_keys = st.lists(st.lists(parts, min_size=1, max_size=3).map("/".join), max_size=4)


@given(keys=some_keys)
def test_many_keys_are_checked_as_one_by_one(keys):
    try:
        expected = [check_key(key) for key in keys]
    except UnsafePathError:
        with pytest.raises(UnsafePathError):
            check_keys(keys)
    else:
        assert check_keys(iter(keys)) == expected
