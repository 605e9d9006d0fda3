"""Orders: what users may write, which columns have one, and keys that never contradict it."""

from __future__ import annotations

import datetime as dt
import decimal
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.model.order import Order, Term, order_of, parse_order, parse_terms
from lakehand.sorting.key_ranges import KeyRanges
from lakehand.sorting.ordering import resolve_order
from lakehand.sorting.sort_keys import SortKeys, _value_order, ascending_order, comparable_column

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("point", pa.struct([("x", pa.float64()), ("y.z", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("day", pa.date32()),
    ]
)
NAN, INFINITY = float("nan"), float("inf")
#: Values of each type in their order, with the nulls that come first.
ORDERED = {
    pa.int8(): [None, -128, -1, 0, 127],
    pa.int64(): [None, -(2**63), -1, 0, 2**63 - 1],
    pa.float32(): [None, -INFINITY, -1.5, 0.0, 1e-30, INFINITY, NAN],
    pa.float64(): [None, -INFINITY, -1e300, -1e-300, 0.0, 1.0, INFINITY, NAN],
    pa.decimal128(18, 2): [None, *map(decimal.Decimal, ("-9999999999999999.99", "-0.01", "0.00"))],
    pa.decimal128(38, 0): [None, *map(decimal.Decimal, (-(10**37), -1, 0, 2**64, 10**37))],
    pa.string(): [None, "", "A", "a", "a\x00", "aa", "é", "\U0001f600"],
    pa.binary(): [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff\xff"],
    pa.bool_(): [None, False, True],
    pa.date32(): [None, dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date.max],
    pa.timestamp("us", "UTC"): [None, -(10**15), 0, 10**15],
}


def resolved(wish, curve="linear", **options):
    return resolve_order(parse_terms(wish), curve, SCHEMA, **options)


def test_an_order_is_read_as_sql_spells_it():
    terms = parse_terms("a DESC NULLS LAST, point.`y.z` asc nulls last ,day")

    assert [term.path for term in terms] == [("a",), ("point", "y.z"), ("day",)]
    assert [term.descending for term in terms] == [True, False, False]
    assert [term.nulls_first for term in terms] == [False, False, True]
    assert parse_terms(["a", "day DESC"]) == parse_terms("a, day DESC")


@pytest.mark.parametrize("curve", ["hilbert", "linear"])
@given(paths=st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3), min_size=1))
def test_an_order_by_columns_of_any_name_is_read_again_as_it_was_written(paths, curve):
    order = Order(terms=tuple(Term(path=tuple(path)) for path in paths), curve=curve)
    assert parse_order(order.text) == order
    assert order_of(order.texts, curve) == order
    assert parse_terms(order.columns) == order.terms


@pytest.mark.parametrize("wish", ["a,,b", "a DESC ASC", "a NULLS", "`a", "a b"])
def test_what_is_no_order_is_refused(wish):
    with pytest.raises(ValidationError, match="not a valid sort order"):
        parse_terms(wish)


def test_columns_are_found_whatever_their_case_and_spelled_as_the_table_does():
    assert resolved("A, POINT.X, point.`Y.Z` DESC").texts == ("a", "point.x", "point.`y.z` DESC")


@pytest.mark.parametrize("wish", ["b", "point.b", "tags.element", "a.x"])
def test_an_unknown_column_is_named_with_those_there_are(wish):
    with pytest.raises(UnknownColumnError, match=r"the columns are: a, point\.x, .*, day"):
        resolved(wish)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("tags", "cannot be sorted"),
        ("point", "cannot be sorted"),
        ("day", "is a partition column"),
        ("a, A DESC", "twice"),
        ("", "no column"),
    ],
)
def test_what_rows_cannot_be_ordered_by_is_refused(wish, words):
    with pytest.raises(ValidationError, match=words):
        resolved(wish, partition_columns=["day"])


def test_a_curve_has_no_direction_and_must_be_known():
    with pytest.raises(ValidationError, match="has a direction"):
        resolved("a DESC", "hilbert")
    with pytest.raises(ValidationError, match="hilbert, zorder, linear"):
        resolved("a", "peano")


@pytest.mark.parametrize("kind", ORDERED, ids=str)
@pytest.mark.parametrize("wish", ["v", "v DESC", "v NULLS LAST", "v DESC NULLS FIRST"])
def test_values_of_every_type_are_sorted(kind, wish):
    [term] = parse_terms(wish)
    values = pa.array(ORDERED[kind], kind)
    expected = values[1:][::-1] if term.descending else values[1:]
    nulls = pa.nulls(1, kind)
    expected = pa.concat_arrays([nulls, expected] if term.nulls_first else [expected, nulls])
    shuffled = pa.table(
        {"v": values.take(pa.array(np.random.default_rng(3).permutation(len(values))))}
    )

    keys = SortKeys.of_sample(resolve_order([term], "linear", shuffled.schema), shuffled)
    found = shuffled.take(keys.permutation(shuffled, keys.keys(shuffled)))["v"]

    assert repr(found.combine_chunks().to_pylist()) == repr(expected.to_pylist())


def mixed_rows(count, *, seed):
    """Rows of all kinds: skewed, with nulls, with values that are met once."""
    lot = random.Random(seed)
    columns = {
        "skewed": [lot.choice([1, 1, 1, 1, 2, None, lot.randrange(10**6)]) for _ in range(count)],
        "float": [lot.choice([NAN, 0.0, None, lot.gauss(0, 1)]) for _ in range(count)],
        "text": [lot.choice(["", "x", None, str(lot.random())]) for _ in range(count)],
        "only_nulls": pa.nulls(count, pa.int32()),
        "one_value": ["same"] * count,
    }
    return pa.table(columns)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "wish",
    [
        "skewed",
        "only_nulls, skewed DESC, text",
        "one_value, float DESC NULLS FIRST, text NULLS LAST, skewed, only_nulls",
    ],
)
def test_keys_of_a_linear_order_never_contradict_it(seed, wish):
    rows = mixed_rows(2_000, seed=seed)
    order = resolve_order(parse_terms(wish), "linear", rows.schema)
    # Most values are not in the sample.
    sort_keys = SortKeys.of_sample(order, rows.slice(0, 200))

    keys = sort_keys.keys(rows)
    places = sort_keys.permutation(rows, keys).to_numpy()

    assert (np.diff(keys[places].astype(object)) >= 0).all()


@pytest.mark.parametrize("curve", ["hilbert", "zorder"])
def test_near_rows_get_near_keys_however_skewed_the_columns(curve):
    lot = np.random.default_rng(0)
    rows = pa.table({"x": 10.0 ** lot.normal(0, 5, 20_000), "y": lot.integers(0, 50, 20_000) ** 4})
    order = resolve_order(parse_terms("x, y"), curve, rows.schema)
    keys = SortKeys.of_sample(order, rows).keys(rows)

    for files in np.array_split(np.argsort(keys), 64):
        spans = [np.argsort(np.argsort(rows[name].to_numpy()))[files] for name in ("x", "y")]
        assert min(np.ptp(span) for span in spans) < 20_000 / 3


def test_columns_without_use_do_not_disturb_the_others():
    rows = mixed_rows(5_000, seed=1)
    order = resolve_order(parse_terms("only_nulls, skewed, one_value"), "hilbert", rows.schema)

    keys = SortKeys.of_sample(order, rows).keys(rows)

    assert len(np.unique(keys)) > 100


def test_an_empty_sample_still_makes_keys():
    rows = mixed_rows(10, seed=1)
    for curve in ("hilbert", "linear"):
        order = resolve_order(parse_terms("skewed, text"), curve, rows.schema)
        assert len(SortKeys.of_sample(order, rows.slice(0, 0)).keys(rows)) == 10


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64(), pa.date32()], ids=str)
@pytest.mark.parametrize("wish", ["a, b", "a DESC, b NULLS LAST", "b DESC NULLS FIRST, a"])
@pytest.mark.parametrize("ends", [False, True])
def test_numbers_are_sorted_as_values_are(kind, wish, ends):
    lot = np.random.default_rng(5)
    number = {8: pa.int8(), 32: pa.int32()}.get(kind.bit_width, kind)
    limits = np.iinfo(number.to_pandas_dtype())
    numbers = lot.integers(0, 100, 3_000)
    columns = {"a": numbers[:1_500], "b": numbers[1_500:]}
    rows = pa.table(
        {
            name: pa.array(
                [
                    None if one < 20 else limits.min + 1 if ends and one < 40 else int(one)
                    for one in column
                ],
                number,
            ).cast(kind)
            for name, column in columns.items()
        }
    )
    order = resolve_order(parse_terms(wish), "linear", rows.schema)
    columns = [comparable_column(rows, term.path) for term in order.terms]

    sort_keys = SortKeys.of_sample(order, rows)
    found = sort_keys.permutation(rows, sort_keys.keys(rows))

    assert found.equals(_value_order(columns, order.terms).cast(found.type))


@pytest.mark.parametrize("bits", [1, 15, 16, 17, 40, 64])
@pytest.mark.parametrize("rows", [0, 1, 5_000])
def test_keys_are_put_in_order_by_as_many_bits_as_they_differ_in(bits, rows):
    lot = np.random.default_rng(bits)
    keys = lot.integers(0, 2**bits - 1, rows, np.uint64, endpoint=True)
    if bits < 64:
        keys += np.uint64(2**63)
    keys[: rows // 2] = keys[rows // 2 : rows // 2 * 2]

    assert np.array_equal(ascending_order(keys), np.argsort(keys, kind="stable"))


def test_ranges_are_even_and_a_frequent_key_has_one_of_its_own():
    lot = np.random.default_rng(1)
    keys = np.where(lot.random(10_000) < 0.5, 7, lot.integers(0, 1_000, 10_000)).astype(np.uint64)
    ranges = KeyRanges.of_sample(keys, count=16)

    numbers = ranges.number(keys)

    assert len(np.unique(numbers[keys == 7])) == 1
    assert set(keys[numbers == numbers[keys == 7][0]]) == {7}
    others = np.bincount(numbers[keys != 7])
    assert others.max() < 10_000 / 16 * 1.5
