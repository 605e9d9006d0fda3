"""What files are skipped for a fixed set of questions, against asking each file."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import may_match
from lakehand.planning.file_bounds import value_bounds
from lakehand.planning.probes import draw_probes, probes_of_bounds, skip_rate
from lakehand.planning.quantiles import STEPS, quantiles_of_bounds, quantiles_of_values
from support.bounded_files import files_between

ENDS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted).map(tuple)
UNSURE = st.one_of(ENDS, ENDS, st.none(), st.sampled_from([(None, 7), (3, None), (None, None)]))
FILES = st.lists(st.tuples(UNSURE, UNSURE), min_size=1, max_size=20)
THOUSAND = pa.array(range(STEPS + 1))


def _files(pairs):
    first, second = zip(*pairs, strict=True)
    return files_between({"a": list(first), "b": list(second)})


def _may_hold(ends, low, high):
    if ends is None:
        return False
    return (ends[0] is None or ends[0] <= high) and (ends[1] is None or ends[1] >= low)


@given(FILES)
def test_a_file_is_skipped_where_no_value_between_its_bounds_is_asked_for(pairs):
    probes = draw_probes(
        {"a": pa.array(np.linspace(0, 50, STEPS + 1).astype(int))} | {"b": THOUSAND}
    )
    names = {"a": 0, "b": 1}

    rates = skip_rate(_files(pairs), probes).by_probe

    for probe, rate in zip(probes.probes, rates, strict=True):
        ranges = {
            name: (probes.low[name][at].as_py(), probes.high[name][at].as_py())
            for name, at in probe.ranges.items()
        }
        read = sum(
            all(_may_hold(pair[names[name]], *ends) for name, ends in ranges.items())
            for pair in pairs
        )
        assert rate == pytest.approx(1 - read / len(pairs))


@settings(max_examples=20, deadline=None)
@given(FILES)
def test_the_rates_are_those_of_predicates_in_sql(pairs):
    files = _files(pairs)
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    probes = probes_of_bounds(files, ["a", "b"])
    texts = probes.to_sql()[::9]

    rates = skip_rate(files, probes).by_probe[::9]

    expected = [
        1 - np.mean(may_match(parse_predicate(text, schema), files).to_pylist()) for text in texts
    ]
    assert rates.tolist() == pytest.approx(expected)


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TYPED = [
    (pa.int8(), [(-128, 0), (1, 127)]),
    (pa.int64(), [(-(2**63), 0), (5, 2**63 - 1)]),
    (pa.float64(), [(-1.5, 0.25), (0.5, 1e12)]),
    (pa.decimal128(10, 2), [(Decimal("-5.00"), Decimal("1.01")), (Decimal(2), Decimal("99.99"))]),
    (pa.string(), [("user-00001", "user-4"), ("user-5", "user-9é")]),
    (pa.string(), [("x" * 40, "x" * 45), ("x" * 45 + "y", "y" * 50)]),
    (pa.binary(), [(b"", b"\x00\xff"), (b"\x01", b"\xff\xff")]),
    (pa.bool_(), [(False, False), (False, True)]),
    (pa.date32(), [(dt.date(1969, 1, 1), dt.date(2000, 1, 1)), (NOON.date(), dt.date(2030, 1, 1))]),
    (pa.timestamp("us", tz="UTC"), [(NOON, NOON), (NOON, NOON + dt.timedelta(days=9))]),
]


@pytest.mark.parametrize(
    ("type_", "ends"), [case for case in TYPED if case[0] != pa.binary()], ids=lambda c: str(c)[:12]
)
def test_every_type_is_asked_as_predicates_in_sql_are(type_, ends):
    files = files_between({"a": [*ends, None, (None, None)]}, type_)
    probes = probes_of_bounds(files, ["a"])

    rates = skip_rate(files, probes).by_probe

    schema = pa.schema({"a": type_})
    for text, rate in zip(probes.to_sql(), rates, strict=True):
        wanted = may_match(parse_predicate(text, schema), files).to_pylist()
        assert rate == pytest.approx(1 - np.mean(wanted)), text


LARGEST = Decimal("9" * 38)
LONG_DECIMALS = (
    pa.decimal128(38, 0),
    [(LARGEST.copy_negate(), Decimal(0)), (Decimal(1), LARGEST)],
)


@pytest.mark.parametrize(
    ("type_", "ends"), [*TYPED, LONG_DECIMALS], ids=lambda case: str(case)[:12]
)
def test_quantiles_of_bounds_ascend_from_the_least_to_the_greatest(type_, ends):
    bounds = value_bounds(files_between({"a": ends}, type_), "a")

    quantiles = quantiles_of_bounds(bounds, np.array([10, 10])).to_pylist()

    assert len(quantiles) == STEPS + 1
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] <= max(bounds.high.to_pylist())


def test_the_set_is_the_same_whenever_it_is_drawn():
    first, second = (draw_probes({"a": THOUSAND, "b": THOUSAND}) for _ in range(2))

    assert first.to_sql() == second.to_sql()
    assert len(first.probes) == 90
    assert first.to_sql()[0] == "a BETWEEN 671 AND 671"


def test_probes_ask_for_points_and_for_a_hundredth_and_a_tenth_of_the_rows():
    probes = draw_probes({"a": THOUSAND})

    spans = [
        high - low
        for low, high in zip(probes.low["a"].to_numpy(), probes.high["a"].to_numpy(), strict=True)
    ]

    assert spans == [0] * 10 + [10] * 10 + [100] * 10


def test_sorted_files_skip_more_than_files_with_values_from_everywhere():
    apart = files_between({"a": [(at * 10, at * 10 + 9) for at in range(100)]})
    everywhere = files_between({"a": [(0, 999)] * 100})
    probes = probes_of_bounds(everywhere, ["a"])

    assert skip_rate(everywhere, probes).files == 0
    assert skip_rate(apart, probes).files == pytest.approx(0.95, abs=0.01)


def test_bytes_count_by_the_size_of_the_files():
    files = files_between({"a": [(0, 1), (900, 999)]}, file_bytes=[1, 99])
    probes = draw_probes({"a": pa.array([950] * (STEPS + 1))})

    rate = skip_rate(files, probes)

    assert rate.files == 0.5
    assert rate.bytes == pytest.approx(0.01)


def test_rows_of_skewed_files_are_asked_for_where_they_are():
    files = files_between({"a": [(0, 1)] * 99 + [(0, 10**9)]})
    [low] = probes_of_bounds(files, ["a"]).low.values()

    assert np.mean([value <= 1 for value in low.to_pylist()]) > 0.9


def test_places_between_texts_look_like_the_texts():
    ends = [(f"user-{at:03}", f"user-{at + 111:03}") for at in range(0, 800, 7)]
    bounds = value_bounds(files_between({"a": ends}, pa.string()), "a")

    quantiles = quantiles_of_bounds(bounds, np.full(len(ends), 10)).to_pylist()

    assert {len(text) for text in quantiles} == {len("user-000")}
    numbers = [int(text.removeprefix("user-")) for text in quantiles]
    assert np.histogram(numbers, bins=[150, 300, 450, 600, 750])[0].min() > 100


def test_quantiles_of_values_leave_out_what_has_no_place():
    values = pa.array([3.0, float("nan"), None, 1.0])

    assert set(quantiles_of_values(values).to_pylist()) == {1.0, 3.0}
    assert len(quantiles_of_values(pa.array([None], pa.int64()))) == 0


def test_nothing_is_skipped_without_bounds_or_without_files():
    unknown, none = files_between({"a": [(None, None)]}), files_between({"a": []})

    assert skip_rate(unknown, probes_of_bounds(unknown, ["a"])).files == 0
    assert skip_rate(none, draw_probes({"a": THOUSAND})).files == 0
