"""Pictures of files: rectangles where files lie, and axes that name values of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from lakehand.assess.layout_picture import Panel, draw_files, scales_of
from support.bounded_files import files_between

SPACE = {"svg": "http://www.w3.org/2000/svg"}
NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _draw(files, *, panels=1):
    picture = draw_files([Panel(title="t", files=files)] * panels, scales_of(files, ["a", "b"]))
    return ET.fromstring(picture)


def _files(drawing):
    return drawing.findall(".//svg:g[@class='file']/svg:path", SPACE)


def _words(drawing):
    return [text.text for text in drawing.findall(".//svg:text", SPACE)]


def _box(path):
    """Return left, top, width and height of a rectangle."""
    left, rest = path.attrib["d"].removeprefix("M").split(" ", 1)
    top, rest = rest.split("h", 1)
    width, rest = rest.split("v", 1)
    return float(left), float(top), float(width), float(rest.split("h", 1)[0])


def test_a_file_is_drawn_from_its_least_to_its_greatest_values():
    files = files_between({"a": [(0, 499), (500, 999)], "b": [(0, 999), (0, 999)]})

    left, right = (_box(path) for path in _files(_draw(files)))

    assert left == pytest.approx((0, 0, 220, 440), abs=2)
    assert right == pytest.approx((220, 0, 220, 440), abs=2)


def test_larger_values_are_higher_up():
    files = files_between({"a": [(0, 999)] * 2, "b": [(0, 499), (500, 999)]})

    low, high = (_box(path) for path in _files(_draw(files)))

    assert low[1] > high[1]


def test_many_files_are_thinned_out_and_the_picture_says_so():
    ends = [(at, at + 1) for at in range(0, 60_000, 2)]
    drawing = _draw(files_between({"a": ends, "b": ends}))

    assert len(_files(drawing)) == 10_000
    assert _words(drawing)[1].startswith("30,000 files, 10,000 of them drawn")


def test_files_of_nulls_are_not_drawn_and_files_without_bounds_cover_all():
    files = files_between({"a": [None, (None, None), (0, 9)], "b": [(0, 9)] * 3})

    boxes = [_box(path) for path in _files(_draw(files))]

    assert len(boxes) == 2
    assert boxes[0] == pytest.approx((0, 0, 440, 440), abs=2)


@pytest.mark.parametrize(
    ("type_", "ends", "labels"),
    [
        (pa.int64(), (0, 4000), ["0", "2,000", "4,000"]),
        (pa.float64(), (0.0, 1.0), ["0", "0.5", "1"]),
        (pa.decimal128(6, 2), (Decimal(0), Decimal("9.99")), ["0.00", "4.99", "9.99"]),
        (pa.date32(), (dt.date(2026, 1, 1), dt.date(2026, 1, 31)), ["2026-01-01", "2026-01-31"]),
        (pa.timestamp("us", tz="UTC"), (NEW_YEAR, NEW_YEAR + dt.timedelta(9)), ["2026-01-01"]),
        (pa.timestamp("us", tz="UTC"), (NEW_YEAR, NEW_YEAR + dt.timedelta(0, 9)), ["00:00:00"]),
        (pa.string(), ("a" * 20, "b<&"), ["aaaaaaaaaaaa…", "b<&"]),
        (pa.bool_(), (False, True), ["false", "true"]),
        (pa.binary(), (b"\x00", b"\xff"), ["ff"]),
    ],
    ids=lambda case: str(case)[:20],
)
def test_axes_name_values_as_their_type_spells_them(type_, ends, labels):
    drawing = _draw(files_between({"a": [ends] * 3, "b": [ends] * 3}, type_))

    assert set(labels) <= set(_words(drawing))


def test_panels_stand_side_by_side_over_the_same_axes():
    drawing = _draw(files_between({"a": [(0, 9)], "b": [(0, 9)]}), panels=2)

    words = _words(drawing)
    assert words[: len(words) // 2] == words[len(words) // 2 :]
    assert len(_files(drawing)) == 2


def test_a_picture_of_nothing_is_a_picture():
    assert _files(_draw(files_between({"a": [], "b": []}))) == []
    assert _files(_draw(files_between({"a": [None], "b": [None]}))) == []
