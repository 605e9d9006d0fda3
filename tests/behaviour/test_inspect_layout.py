"""`inspect --by`: how well columns keep the files of a table apart, in numbers and as a picture."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.errors import UnknownColumnError, ValidationError
from support.ordered_tables import table_of_files


@pytest.fixture
def table(tmp_path):
    """Four files: apart in `a`, all alike in `b`, and in `c` two and two."""
    files = [
        {"a": [at * 10, at * 10 + 9], "b": ["x", "y"], "c": [at // 2, at // 2], "tags": [["t"]] * 2}
        for at in range(4)
    ]
    return table_of_files(tmp_path / "events", *files)


def test_columns_are_measured_each_and_together(table):
    layout = lakehand.open_table(table).inspect(by=["a", "b", "c"]).layout

    depths = {each.column: each.overlap_depth for each in layout.by_column}
    assert depths == {"a": 1, "b": 4, "c": 2}
    assert (layout.overlap_depth, layout.max_overlap_depth) == (1, 1)
    assert layout.probe_count == 30 * 3 + 30 * 3


def test_what_is_kept_apart_is_skipped(table):
    layout = lakehand.open_table(table).inspect(by="a,b").layout

    rates = {each.column: each.skip_rate for each in layout.by_column}
    assert rates["b"] == 0
    assert 0.6 < rates["a"] <= 0.75
    assert rates["b"] < layout.skip_rate < 1


def test_without_columns_no_layout_is_measured(table):
    assert lakehand.open_table(table).inspect().layout is None


def test_a_column_without_bounds_skips_nothing(tmp_path):
    blobs = [{"a": pa.array([bytes([at])], pa.binary())} for at in range(3)]
    table = table_of_files(tmp_path / "blobs", *blobs)

    [column] = lakehand.open_table(table).inspect(by=["a"]).layout.by_column

    assert (column.files_without_bounds, column.skip_rate, column.overlap_depth) == (3, None, 3)


def test_an_unknown_column_is_named_with_those_there_are(table):
    with pytest.raises(UnknownColumnError, match=r"'d'.*a, b, c"):
        lakehand.open_table(table).inspect(by=["d"])


def test_values_without_an_order_are_refused(table):
    with pytest.raises(ValidationError, match=r"cannot sort by 'tags'.*a, b, c"):
        lakehand.open_table(table).inspect(by=["tags"])


def test_the_command_prints_the_layout_and_documents_it(table, capsys):
    assert run(["inspect", str(table), "--by", "a,b", "--json"]) == 0
    layout = json.loads(capsys.readouterr().out)["layout"]
    assert layout["columns"] == ["a", "b"]
    assert layout["by_column"][0]["overlap_depth"] == 1

    assert run(["inspect", str(table), "--by", "A,b"]) == 0
    assert "overlap in" in capsys.readouterr().out


def test_a_picture_shows_every_file_where_it_lies(table, tmp_path):
    picture = tmp_path / "files.svg"

    assert run(["inspect", str(table), "--by", "a,c", "--picture", str(picture)]) == 0

    drawing = ET.parse(picture).getroot()
    space = {"svg": "http://www.w3.org/2000/svg"}
    files = drawing.findall(".//svg:g[@class='file']/svg:path", space)
    words = [text.text for text in drawing.findall(".//svg:text", space)]
    lefts = [float(file.attrib["d"].split()[0][1:]) for file in files]
    assert len(files) == 4
    assert lefts == sorted(lefts)
    assert words[0] == "events, version 3"
    assert {"a", "c", "0", "39"} <= set(words)


def test_a_picture_is_drawn_over_two_columns(table, tmp_path, capsys):
    assert run(["inspect", str(table), "--by", "a", "--picture", str(tmp_path / "x.svg")]) == 2
    assert "two columns" in capsys.readouterr().err


def test_a_page_of_a_table_is_one_file_that_loads_nothing(table, tmp_path):
    page = tmp_path / "table.html"
    assert run(["inspect", str(table), "--by", "a,c", "--html", str(page)]) == 0
    text = page.read_text()
    assert "unsafe" not in text
    assert "<script" not in text
    # Namespaces of pictures are names, and nothing is loaded from them.
    assert not re.search(r"(src|href)=|@import|url\(", text)
    for part in ("Health", "File sizes", "Layout", "Commits", "</svg>"):
        assert part in text
    for style in re.findall("<style>(.*?)</style>", text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in text
