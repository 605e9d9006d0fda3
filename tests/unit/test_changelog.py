"""Many changes of a key become one: the collapse of changelogs, without a table."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.errors import DuplicateKeyError, ValidationError
from lakehand.rows.incoming import LIVE, NUMBER, KeyColumns
from lakehand.sink.changelog import SIGN, Form, collapse, read_changes

#: To open one takes longer than a test.
SESSION = duckdb.connect(config={"threads": 1})
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])


def changes(*rows, signs, schema=SCHEMA):
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema)
    return table.append_column(SIGN, pa.array(signs, pa.int64())).append_column(
        NUMBER, pa.array(range(len(rows)), pa.int64())
    )


def collapsed(table, form, key=("id",)):
    """Return {key: row number that is to stay, or None}."""
    columns = KeyColumns(schema=pa.schema([table.schema.field(name) for name in key]))
    found = collapse(SESSION, table, columns, form=form)
    keys = zip(*(found[f"k{n}"].to_pylist() for n in range(len(key))), strict=True)
    ends = zip(found[NUMBER].to_pylist(), found[LIVE].to_pylist(), strict=True)
    return {
        k[0] if len(key) == 1 else k: number if live else None
        for k, (number, live) in zip(keys, ends, strict=True)
    }


def test_zset_multi_update_per_key_keeps_final_value():
    log = changes(
        (1, "a", 1.0), (1, "a", 1.0), (1, "a", 2.0), (1, "a", 2.0), (1, "a", 3.0),
        signs=[1, -1, 1, -1, 1],
    )  # fmt: skip

    assert collapsed(log, Form.ZSET) == {1: 4}


def test_zset_insert_then_delete_within_epoch_is_noop():
    log = changes((1, "a", 1.0), (2, "a", 1.0), (1, "a", 1.0), signs=[1, 1, -1])

    assert collapsed(log, Form.ZSET) == {2: 1}


def test_zset_only_negatives_left_is_a_delete():
    log = changes((1, "a", 1.0), (1, "a", 2.0), (1, "a", 2.0), signs=[-1, 1, -1])

    assert collapsed(log, Form.ZSET) == {1: None}


def test_zset_non_unique_merge_key_errors():
    log = changes((1, "a", 1.0), (1, "a", 2.0), (2, "a", 1.0), signs=[1, 1, 1])

    with pytest.raises(DuplicateKeyError, match=r"for 1 key: id = 1"):
        collapsed(log, Form.ZSET)


def test_an_instant_that_is_a_key_twice_is_shown_without_pytz():
    """DuckDB needs that package for a Python value of it, and a plain installation has none."""
    at = pa.array([0, 0], pa.timestamp("us", "UTC"))
    log = pa.table({"id": [1, 1], "at": at, SIGN: pa.array([1, 1]), NUMBER: pa.array([0, 1])})

    with pytest.raises(DuplicateKeyError, match=r"id = 1, at = '1970-01-01 00:00:00\+00'"):
        collapsed(log, Form.ROWS, key=("id", "at"))


def test_zset_composite_merge_key():
    log = changes((1, "a", 1.0), (1, "b", 2.0), (1, "a", 1.0), (1, None, 1.0), signs=[1, 1, -1, 1])

    assert collapsed(log, Form.ZSET, key=("id", "part")) == {(1, "b"): 1, (1, None): 3}


def test_zset_counts_equal_rows_whatever_their_zeros_and_nulls():
    log = changes(
        (1, None, 0.0), (1, None, -0.0), (2, None, float("nan")), (2, None, float("nan")),
        signs=[2, -2, 1, -1],
    )  # fmt: skip

    assert collapsed(log, Form.ZSET) == {}


def test_cdc_dedup_keeps_last_arrival():
    log = changes((1, "a", 1.0), (2, "a", 1.0), (1, "a", 2.0), (2, "a", 9.0), signs=[1, 1, 1, -1])

    assert collapsed(log, Form.CDC) == {1: 2, 2: None}


def test_cdc_update_before_normalizes_to_delete_unless_its_update_follows():
    given = pa.record_batch({"id": [1, 1, 2, 3, 4], "_op": ["U-", "U+", "u-", "D", None]})
    read = read_changes(given)

    assert (read.form, read.signs.to_pylist()) == (Form.CDC, [-1, 1, -1, -1, 1])
    assert read.rows.schema.names == ["id"]
    log = pa.table(
        {"id": read.rows["id"], SIGN: read.signs, NUMBER: pa.array(range(5), pa.int64())}
    )
    assert collapsed(log, Form.CDC) == {1: 1, 2: None, 3: None, 4: 4}


@pytest.mark.parametrize("word", ["I", "U", "U+", "r", "c", "whatever", None])
def test_cdc_every_other_word_is_an_upsert(word):
    batch = pa.record_batch({"id": [1], "_op": pa.array([word], pa.string()), "_ts_ms": [5]})

    read = read_changes(batch)

    assert (read.signs.to_pylist(), read.rows.schema.names) == ([1], ["id"])


def test_cdc_no_op_column_treated_as_upsert():
    read = read_changes(pa.record_batch({"id": [1, 2], "_ts_ms": [7, 8]}))

    assert (read.form, read.signs.to_pylist(), read.rows.schema.names) == (
        Form.ROWS, [1, 1], ["id"],
    )  # fmt: skip


def test_rows_without_order_may_not_share_a_key():
    log = changes((1, "a", 1.0), (1, "a", 1.0), signs=[1, 1])

    with pytest.raises(DuplicateKeyError, match="id = 1"):
        collapsed(log, Form.ROWS)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": [1], "_op": ["I"], "__weight": [1]},
        {"id": [1], "_op": [1]},
        {"id": [1], "__weight": [1.5]},
        {"id": [1], "__weight": pa.array([None], pa.int64())},
    ],
)
def test_bookkeeping_that_says_nothing_definite_is_refused(columns):
    with pytest.raises(ValidationError):
        read_changes(pa.record_batch(columns))


@pytest.mark.parametrize("weights", [[2], [1, 1], [3, -1]])
def test_a_row_that_is_left_more_than_once_is_more_than_one_row(weights):
    table = changes(*[(1, "", 1.0)] * len(weights), signs=weights)
    with pytest.raises(DuplicateKeyError):
        collapsed(table, Form.ZSET)


CHANGE = st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([-1, 1]))


@settings(max_examples=40, deadline=None)
@given(st.lists(CHANGE, max_size=12))
def test_a_changelog_comes_to_what_its_changes_come_to_one_by_one(log):
    last = {key: number if sign > 0 else None for number, (key, _, sign) in enumerate(log)}
    rows = [(key, "", float(value)) for key, value, _ in log] or [(0, "", 0.0)]
    signs = [sign for _, _, sign in log] or [1]

    found = collapsed(changes(*rows, signs=signs).slice(0, len(log)), Form.CDC)

    assert found == last


@settings(max_examples=40, deadline=None)
@given(st.lists(CHANGE, max_size=12))
def test_weights_come_to_what_a_multiset_comes_to(log):
    weights = {}
    for key, value, sign in log:
        weights[key, value] = weights.get((key, value), 0) + sign
    live = {k: [v for (i, v), w in weights.items() if i == k for _ in range(w)] for k, _ in weights}
    changed = {k for (k, _), w in weights.items() if w}
    rows = [(key, "", float(value)) for key, value, _ in log] or [(0, "", 0.0)]
    table = changes(*rows, signs=[sign for _, _, sign in log] or [1]).slice(0, len(log))

    if any(len(values) > 1 for values in live.values()):
        with pytest.raises(DuplicateKeyError):
            collapsed(table, Form.ZSET)
        return
    found = collapsed(table, Form.ZSET)
    values = {key: None if number is None else log[number][1] for key, number in found.items()}
    assert values == {key: (live[key] or [None])[0] for key in changed}
