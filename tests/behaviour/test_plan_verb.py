"""`plan`, and the plan that is carried out later: as it is, or not at all."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import lakehand
from lakehand.errors import PredicateError, ReplanError, UnknownColumnError, ValidationError
from lakehand.planning.plan import Plan
from lakehand.rewrite.prepare import Request
from support.small_tables import commit_by_hand, fingerprint, make_table, read_sorted, rows


@pytest.fixture
def path(tmp_path):
    return make_table(tmp_path / "table")


@pytest.fixture
def table(path):
    return lakehand.open_table(path, engine="local")


def live(table):
    return set(table.snapshot().files["path"].to_pylist())


def planned(plan):
    return {path for group in plan.groups for path in group.paths}


def test_a_plan_says_what_becomes_what_and_writes_nothing(path, table):
    before = fingerprint(path)

    plan = table.plan()

    assert {(g.partition, len(g.paths), g.expected_files) for g in plan.groups} == {
        ("region=eu", 6, 1),
        ("region=us", 6, 1),
    }
    assert all(g.reason == "6 files below 64 MiB" and g.method_reason for g in plan.groups)
    assert (plan.forecast.files_before, plan.forecast.files_after) == (12, 2)
    assert fingerprint(path) == before


def test_a_stored_plan_touches_exactly_the_planned_files(tmp_path, path, table):
    rows_before, files_before = read_sorted(path), live(table)
    file = tmp_path / "plan.json"
    file.write_text(table.plan(where="region = 'eu'").to_text())

    plan = Plan.from_text(file.read_text())
    report = table.compact(plan=plan)

    assert files_before - live(table) == planned(plan)
    assert (report.files_removed, report.files_added) == (6, 1)
    assert read_sorted(path).equals(rows_before)
    assert table.history(limit=1)[0].parameters["predicate"] == "[\"region = 'eu'\"]"


def test_a_plan_outlives_appends(path, table):
    plan = table.plan()
    write_deltalake(str(path), rows(1000, 10), mode="append", partition_by=["region"])
    expected = read_sorted(path)

    report = table.compact(plan=plan)

    assert (report.files_before, report.files_after) == (14, 4)
    assert read_sorted(path).equals(expected)


def _remove_one_file(path):
    DeltaTable(str(path)).delete("id = 1")


def _add_a_column(path):
    more = rows(1000, 4).append_column("note", pa.array(["x"] * 4))
    write_deltalake(str(path), more, mode="append", partition_by=["region"], schema_mode="merge")


def _create_anew(path):
    shutil.rmtree(path)
    make_table(path, commits=9)


def _roll_back(path):
    (path / "_delta_log" / f"{5:020}.json").unlink()


def _clean_the_log(path):
    write_deltalake(str(path), rows(1000, 4), mode="append", partition_by=["region"])
    DeltaTable(str(path)).create_checkpoint()
    for version in range(6):
        (path / "_delta_log" / f"{version:020}.json").unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_remove_one_file, "1 file of it was removed or changed since, for example region=us"),
        (_add_a_column, "the columns of the table have changed"),
        (_create_anew, "it is for another table, or the table was recreated"),
        (_roll_back, "the table has gone back to an earlier version"),
        (_clean_the_log, "the log of its version is gone"),
    ],
)
def test_a_plan_that_does_not_fit_any_more_is_refused_as_a_whole(path, table, change, reason):
    plan = table.plan()
    change(path)
    before = fingerprint(path)

    with pytest.raises(ReplanError, match=reason):
        table.compact(plan=plan)
    assert fingerprint(path) == before


def test_rows_deleted_by_a_vector_change_the_file_that_was_planned(path, table):
    plan = table.plan()
    victim = next(iter(planned(plan)))
    add = next(
        json.loads(line)["add"]
        for file in (path / "_delta_log").glob("*.json")
        for line in file.read_text().splitlines()
        if victim in line and "add" in json.loads(line)
    )
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    commit_by_hand(
        path,
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": vector}},
    )

    with pytest.raises(ReplanError, match="1 file of it was removed or changed since"):
        table.compact(plan=plan)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"form": 2}', '{"form": 1}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(ValidationError, match="not a plan that this version") as caught:
        Plan.from_text(text)
    assert "lakehand plan" in caught.value.hint


@pytest.mark.parametrize(
    "wish", [{"where": "region = 'eu'"}, {"file_filter": len}, {"target_file_bytes": 1000}]
)
def test_a_plan_takes_no_second_choice(table, wish):
    plan = table.plan()

    with pytest.raises(ValidationError) as caught:
        table.compact(plan=plan, **wish)
    assert caught.value.field == next(iter(wish))


def test_the_settings_of_the_plan_are_those_of_its_run(path):
    plan = lakehand.open_table(path, target_file_bytes=7_000, strategy="bin-packing").plan()

    report = lakehand.open_table(path, engine="local").compact(plan=plan)

    assert report.strategy == "bin-packing"
    added = report.bytes_after - (report.bytes_before - plan.forecast.bytes_read)
    assert report.bin_packing_efficiency == added / (7_000 * report.files_added)


def test_what_the_plan_does_not_settle_comes_from_the_table(tmp_path):
    properties = {"delta.checkpointInterval": "3"}
    path = make_table(tmp_path / "table", configuration=properties)
    plan = lakehand.open_table(path, target_file_bytes=7_000).plan()

    work = lakehand.open_table(path).planned(Request(plan=plan))

    assert work.settings["target_file_bytes"] == 7_000
    assert work.settings["checkpoint_interval"] == 3


def test_a_predicate_over_statistics_is_taken_where_it_decides(path, table):
    report = table.compact(where="id < 40")

    assert (report.files_removed, report.files_left) == (8, {"outside_predicate": 4})
    assert read_sorted(path)["id"].to_pylist() == list(range(60))


def test_a_predicate_that_splits_a_file_is_refused_by_column(path, table):
    before = fingerprint(path)

    with pytest.raises(PredicateError, match="both matching and other rows by id"):
        table.compact(where="id < 45")
    with pytest.raises(UnknownColumnError, match="regoin"):
        table.compact(where="regoin = 'eu'")
    assert fingerprint(path) == before


def test_a_function_over_the_files_chooses_them(table):
    def of_europe(files):
        return pc.equal(pc.struct_field(files["partition"], "region"), "eu")

    report = table.compact(file_filter=of_europe)

    assert (report.files_removed, report.files_left) == (6, {"outside_filter": 6})
    assert report.partitions_compacted == 1


def test_what_is_beyond_the_caps_remains(table):
    report = table.compact(max_groups_per_run=1)

    assert (report.groups.committed, report.remaining.groups, report.remaining.files) == (1, 1, 6)
    assert report.remaining.bytes == report.bytes_before - report.forecast.bytes_read
    assert table.compact().files_after == 2
