from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.errors import UnsafePathError
from lakehand.storage.keys import check_key, check_keys, check_prefix

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
