"""Demanding tables of delta-spark are the same to every engine, stream and feed once compacted."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest

from lakehand import open_table
from support.demanding_tables import DEMANDING_TABLES
from support.exact_values import exact_rows
from support.forced_compactions import compact_here
from support.later_vacuums import vacuum_later
from support.rows import delta_rs_rows, delta_table, lakehand_rows, spark_rows
from support.variant_json import variant_to_json

BY_NAME = {table.name: table for table in DEMANDING_TABLES}


#: Every variant of a row as JSON, in a string of its own.
VARIANTS_AS_TEXT = (
    "id",
    "to_json(v) AS v",
    "to_json(s.v) AS s",
    "transform(l, x -> to_json(x)) AS l",
    "transform_values(m, (k, x) -> to_json(x)) AS m",
)


def bag(rows):
    """Return rows whose strings are JSON, in an order of their own."""
    return sorted(json.dumps(parsed(row), sort_keys=True) for row in rows)


def parsed(value):
    match value:
        case dict():
            return {key: parsed(inner) for key, inner in value.items()}
        case list():
            return [parsed(inner) for inner in value]
        case str():
            return json.loads(value)
    return value


def ours_as_text(row):
    return {
        "id": row["id"],
        "v": as_text(row["v"]),
        "s": as_text((row["s"] or {}).get("v")),
        "l": None if row["l"] is None else [as_text(value) for value in row["l"]],
        "m": None if row["m"] is None else {key: as_text(value) for key, value in row["m"]},
    }


def as_text(variant):
    return variant and variant_to_json(variant["metadata"], variant["value"])


def is_shredded(path):
    files = delta_table(path).snapshot().file_count
    newest = sorted(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)[-files:]
    return all("typed_value" in str(pq.ParquetFile(file).schema_arrow) for file in newest)


@pytest.fixture(params=BY_NAME, ids=lambda name: name.replace(" ", "-"))
def demanding(request):
    return BY_NAME[request.param]


@pytest.fixture(scope="module")
def originals():
    return {}


@pytest.fixture
def path(oracle, demanding, originals, tmp_path_factory, tmp_path):
    """Return a copy of the table, which is made only once."""
    if demanding.name not in originals:
        originals[demanding.name] = tmp_path_factory.mktemp("demanding") / "table"
        demanding.create(oracle, originals[demanding.name])
    return shutil.copytree(originals[demanding.name], tmp_path / "table")


@pytest.mark.one_in(3)
def test_every_engine_reads_the_same_rows_after_a_compaction(oracle, demanding, path):
    before = exact_rows(spark_rows(oracle, path, columns=demanding.columns))
    ours = exact_rows(lakehand_rows(path))
    theirs = exact_rows(delta_rs_rows(path)) if demanding.table.delta_rs_reads else None

    report = compact_here(path)
    again = compact_here(path)

    assert (report.outcome, again.outcome) == ("committed", "nothing_to_do")
    assert exact_rows(spark_rows(oracle, path, columns=demanding.columns)) == before
    assert exact_rows(lakehand_rows(path)) == ours
    assert theirs is None or exact_rows(delta_rs_rows(path)) == theirs


@pytest.mark.parametrize("demanding", [BY_NAME["shredded variant"]], ids=["shredded-variant"])
def test_copied_row_groups_stay_shredded_and_rewritten_rows_do_not(oracle, demanding, path):
    before = oracle.rows(path, columns=demanding.columns)
    each = oracle.rows(path, columns=VARIANTS_AS_TEXT)
    assert bag(map(ours_as_text, lakehand_rows(path).to_pylist())) == bag(map(json.loads, each))

    copied = compact_here(path, method="copy")
    assert copied.methods.copy == 1
    assert oracle.rows(path, columns=demanding.columns) == before
    assert is_shredded(path)

    oracle.write(path, demanding.table.query, files=1)
    compact_here(path, method="recode")
    assert oracle.rows(path, columns=demanding.columns) == sorted(before * 2)
    assert not is_shredded(path)
    assert open_table(str(path)).verify().findings == ()
    assert vacuum_later(path).files_deleted > 0
    assert oracle.rows(path, columns=demanding.columns) == sorted(before * 2)


@pytest.mark.parametrize(
    "demanding",
    [BY_NAME["all at once"], BY_NAME["ancient dates of the old calendar"]],
    ids=["all-at-once", "ancient-dates"],
)
def test_a_stream_sees_nothing_of_a_compaction_and_later_rows_once(oracle, path, tmp_path):
    seen = oracle.stream(path, tmp_path / "place")
    assert len(seen) == len(oracle.rows(path))

    compact_here(path)

    assert oracle.stream(path, tmp_path / "place") == []
    oracle.sql(f"INSERT INTO delta.`{path}` (id) VALUES (5000)")
    assert [json.loads(row)["id"] for row in oracle.stream(path, tmp_path / "place")] == [5000]


@pytest.mark.parametrize("demanding", [BY_NAME["all at once"]], ids=["all-at-once"])
def test_a_change_feed_sees_nothing_of_a_compaction_and_later_rows_once(oracle, path):
    before = oracle.changes(path, starting_version=5)

    report = compact_here(path)
    oracle.sql(f"INSERT INTO delta.`{path}` (id) VALUES (5000)")

    assert oracle.changes(path, starting_version=report.version)[0].count("5000") == 1
    after = oracle.changes(path, starting_version=5)
    assert len(after) == len(before) + 1
    assert set(before) < set(after)
