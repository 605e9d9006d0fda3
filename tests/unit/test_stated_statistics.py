"""Statistics are wrong when they leave a value out; never for being wide, cut or absent."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakehand.formats.delta.protocol.schema import Leaf, PrimitiveType
from lakehand.formats.delta.statistics.compute import LeafFacts, wrong_statistics

LATE = datetime(2026, 1, 1, 12, 0, 0, 123_900, tzinfo=UTC)
MICROSECONDS = pa.timestamp("us", "UTC")


def judge(value: pa.Scalar, *, low=None, high=None, former_types=(), nulls=0, **options) -> bool:
    """Say whether statistics with these bounds are wrong of a column with this one value."""
    leaf = Leaf(
        path=("a",),
        physical_path=("p",),
        type=PrimitiveType("long"),
        former_types=former_types,
    )
    facts = {("p",): LeafFacts(nulls=0, minimum=value, maximum=value)}
    sides = {"minValues": low, "maxValues": high, "nullCount": nulls}
    stated = {side: {"p": bound} for side, bound in sides.items() if bound is not None}
    return bool(list(wrong_statistics(stated, [leaf], facts, **{"counts_nulls": True, **options})))


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (pa.scalar(5), 5, 5),
        (pa.scalar(5), -100, None),
        (pa.scalar(Decimal("1.10")), Decimal("1.1"), Decimal("1.1")),
        (pa.scalar(1.1, pa.float32()), Decimal("1.1"), Decimal("1.1")),
        (pa.scalar(float("nan")), Decimal(1), "NaN"),
        (pa.scalar("x" * 50), "x" * 32, "x" * 32 + "\x7f"),
        (pa.scalar("é"), "z", "\U0010ffff"),
        (pa.scalar(date(2026, 1, 1)), "2026-01-01", "2026-01-01"),
        (pa.scalar(LATE, MICROSECONDS), "2026-01-01T12:00:00.123Z", "2026-01-01T12:00:00.123Z"),
        (pa.scalar(LATE, MICROSECONDS), "2026-01-01T13:00:00.123+01:00", None),
        (pa.scalar(date(1500, 1, 1)), "1500-02-01", "1400-01-01"),
        (pa.scalar(5), "no number", {"no": "number"}),
        (pa.scalar(None, pa.int64()), 5, 1),
    ],
    ids=str,
)
def test_bounds_that_hold_all_values_are_right(value, low, high):
    assert not judge(value, low=low, high=high)


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (pa.scalar(5), {"low": 6}),
        (pa.scalar(5), {"high": 4}),
        (pa.scalar(2**53 + 1), {"high": 2**53}),
        (pa.scalar(Decimal("1.11")), {"high": Decimal("1.1")}),
        (pa.scalar(float("nan")), {"high": Decimal("1e300")}),
        (pa.scalar("x" * 50), {"high": "x" * 32}),
        (pa.scalar("é"), {"high": "z"}),
        (pa.scalar(date(2026, 1, 2)), {"high": "2026-01-01"}),
        (pa.scalar(LATE, MICROSECONDS), {"high": "2026-01-01T12:00:00.122Z"}),
        (pa.scalar(LATE, MICROSECONDS), {"low": "2026-01-01T12:00:00.124Z"}),
    ],
    ids=str,
)
def test_bounds_that_leave_a_value_out_are_wrong(value, bounds):
    assert judge(value, **bounds)


def test_a_column_that_was_narrow_once_is_compared_as_it_was_then():
    wide = pa.scalar(pa.scalar(3.4, pa.float32()).as_py(), pa.float64())
    assert judge(wide, high=Decimal("3.4"))
    assert not judge(wide, high=Decimal("3.4"), former_types=("float",))


def test_nulls_count_only_where_the_counts_are_of_the_rows_that_were_seen():
    assert judge(pa.scalar(5), nulls=1)
    assert not judge(pa.scalar(5), nulls=1, counts_nulls=False)
