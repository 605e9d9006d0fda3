"""Rows put in order: all of them are there, files are narrow, and what is in order stays."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakehand
from lakehand.cli.main import run
from lakehand.engine import open_runner
from lakehand.errors import ProofError, StoreQuotaError, UnknownColumnError, ValidationError
from lakehand.runs import operation
from lakehand.sorting import key_ranges
from support.compactions import tasks_inline
from support.copyable_tables import append_file, create, delete_rows
from support.small_tables import commit_by_hand, fingerprint, make_table

TARGET = 60_000


@pytest.fixture(autouse=True)
def tasks_here():
    """Let tasks run in this process, which saves seconds."""
    with tasks_inline():
        yield


def points(rows, *, seed=0):
    """Return rows spread over a square, with a payload."""
    random = np.random.default_rng(seed)
    x, y = (random.integers(0, 10_000, rows) for _ in "xy")
    texts = pa.array([f"payload {number}" for number in random.integers(0, 10**9, rows)])
    return pa.table({"x": x, "y": y, "payload": texts})


def rows_of(table):
    keys = [(name, "ascending") for name in table.snapshot().schema.names]
    return table.to_arrow().sort_by(keys)


@pytest.fixture
def table(tmp_path):
    """A table of 40,000 points in four files, each over the whole square."""
    path = tmp_path / "table"
    for seed in range(4):
        write_deltalake(path, points(10_000, seed=seed), mode="append")
    return lakehand.open_table(path, engine="local", target_file_bytes=TARGET)


def test_columns_of_any_name_can_be_clustered_by(tmp_path):
    names = ["unit price", "a,b", "price.eur", "order", "say `it`"]
    rows = pa.table({name: np.arange(100) * 7919 % 101 for name in names})
    write_deltalake(tmp_path / "table", rows)
    table = lakehand.open_table(tmp_path / "table", engine="local")
    by = ["`unit price`", "`a,b`", "`price.eur`", "order", "`say ``it```"]

    report = table.cluster(by=by, curve="linear")

    assert (report.outcome, list(report.columns)) == ("committed", by)
    assert table.to_arrow().equals(rows.sort_by("order"))
    assert [column.column for column in table.inspect(by=by).layout.by_column] == by
    assert table.snapshot(statistics=["unit price"]).files.num_rows == 1
    assert table.maintain(quiet_period="0s").outcome == "nothing_to_do"


@pytest.mark.parametrize("curve", ["hilbert", "zorder", "linear"])
def test_rows_are_the_same_and_files_are_narrow(table, curve):
    rows = rows_of(table)

    report = table.cluster(by=["x", "y"], curve=curve)

    assert (report.outcome, report.methods.sort, report.proof.rows) == ("committed", 1, 40_000)
    assert rows_of(table).equals(rows)
    assert report.overlap_depth.after < 2.5 < report.overlap_depth.before
    assert report.skip_rate.after > 0.4 > report.skip_rate.before


def test_a_second_run_finds_nothing_to_do(table):
    table.cluster(by="x, y")
    version = table.snapshot().version

    report = table.cluster(by="x, y")

    assert (report.outcome, table.snapshot().version) == ("nothing_to_do", version)
    assert report.skip_rate.before == report.skip_rate.after


@pytest.mark.parametrize(
    ("curve", "prove"), [("hilbert", "digest"), ("linear", "independent"), ("zorder", "counts")]
)
def test_many_tasks_write_what_one_would(table, curve, prove):
    rows = rows_of(table)

    report = table.cluster(by=["x", "y"], curve=curve, sort_task_bytes=0, prove=prove)

    assert (report.methods.sort, report.proof.rows) == (1, 40_000)
    assert rows_of(table).equals(rows)
    assert report.overlap_depth.after < 3
    assert table.cluster(by=["x", "y"], curve=curve).outcome == "nothing_to_do"


def test_many_tasks_in_processes_of_their_own(table, monkeypatch):
    monkeypatch.setattr(operation, "open_runner", open_runner)
    rows = rows_of(table)

    report = table.cluster(by="x, y", sort_task_bytes=0)

    assert (report.methods.sort, report.proof.kind, report.proof.rows) == (1, "digest", 40_000)
    assert rows_of(table).equals(rows)


def files_in_order(table, column):
    """Return the values of each file, the files by their least value."""
    store = table._handle.store
    paths = [store.local_path(path) for path in table.snapshot().files["path"].to_pylist()]
    columns = [pq.read_table(path, columns=[column])[column].to_pylist() for path in paths]
    return sorted(columns, key=lambda values: (values[0] is not None, values[0] or 0))


@pytest.mark.parametrize("sort_task_bytes", [0, 2**30])
def test_files_of_a_linear_order_are_sorted_inside_and_among_each_other(table, sort_task_bytes):
    table.cluster(by="x, y", curve="linear", sort_task_bytes=sort_task_bytes)

    files = files_in_order(table, "x")
    assert len(files) > 4
    joined = [value for values in files for value in values]
    assert joined == sorted(joined)


@pytest.mark.parametrize("curve", ["linear", "hilbert"])
def test_row_groups_say_what_they_are_sorted_by_only_if_they_are(table, curve):
    table.cluster(by="y DESC NULLS FIRST, x" if curve == "linear" else "y, x", curve=curve)

    path = table._handle.store.local_path(table.snapshot().files["path"][0].as_py())
    found = pq.ParquetFile(path).metadata.row_group(0).sorting_columns
    columns = [(c.column_index, c.descending, c.nulls_first) for c in found]
    assert columns == ([(1, True, True), (0, False, True)] if curve == "linear" else [])


def test_one_percent_more_rewrites_at_most_five_percent(table):
    table.cluster(by="x, y")
    write_deltalake(table.url, points(400, seed=9), mode="append")
    rows, size = rows_of(table), table.inspect().total_bytes

    report = table.cluster(by="x, y")

    assert report.rows_read == 400
    assert report.bytes_per_second * report.duration_ms / 1000 < 0.05 * size
    assert rows_of(table).equals(rows)
    assert table.cluster(by="x, y").outcome == "nothing_to_do"


def test_other_columns_rewrite_old_files_only_if_all_are_asked_for(table):
    table.cluster(by="x")

    assert table.cluster(by="y").files_left == {"other_order": table.snapshot().file_count}
    assert table.cluster(by="y", full=True).outcome == "committed"
    assert table.cluster(by="x").outcome == "nothing_to_do"


def test_a_full_run_rewrites_what_is_in_order(table):
    table.cluster(by="x, y")

    report = table.cluster(by="x, y", full=True)

    assert report.files_removed == report.files_before


def test_a_dry_run_writes_nothing(table, tmp_path):
    before = fingerprint(tmp_path)

    report = table.cluster(by="x, y", dry_run=True)

    assert (report.outcome, report.groups.planned) == ("dry_run", 1)
    assert fingerprint(tmp_path) == before


def test_compaction_may_sort_what_it_merges(table):
    rows = rows_of(table)

    report = table.compact(sort_by="y DESC", target_file_bytes=2**30, min_files=2)

    assert (report.operation, report.methods.sort, report.files_after) == ("compact", 1, 1)
    [values] = files_in_order(table, "y")
    assert values == sorted(values, reverse=True)
    assert rows_of(table).equals(rows)


@pytest.mark.parametrize("by", ["z", "x, z"])
def test_an_unknown_column_names_those_there_are(table, by):
    with pytest.raises(UnknownColumnError, match="the columns are: x, y, payload"):
        table.cluster(by=by)


def test_a_table_that_declares_no_columns_must_be_told_some(table):
    with pytest.raises(ValidationError, match="declares no columns") as caught:
        table.cluster()
    assert "--by" in caught.value.hint


def test_partitions_are_put_in_order_one_by_one(tmp_path):
    table = lakehand.open_table(make_table(tmp_path / "table"), engine="local")
    rows = rows_of(table)

    report = table.cluster(by="amount DESC NULLS FIRST", curve="linear")

    assert (report.files_after, report.methods.sort, report.partitions_compacted) == (2, 2, 2)
    assert rows_of(table).equals(rows)
    for values in files_in_order(table, "amount"):
        known = [value for value in values if value is not None]
        assert values == [None] * (len(values) - len(known)) + sorted(known, reverse=True)


def test_only_files_within_the_condition_are_put_in_order(tmp_path):
    table = lakehand.open_table(make_table(tmp_path / "table"), engine="local")

    report = table.cluster(by="id", where="region = 'eu'")

    assert (report.files_removed, report.files_left) == (6, {"outside_predicate": 6})


def test_deleted_rows_are_gone_and_the_others_there(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("point", pa.struct([("x", pa.float64())]))])
    handle = create(tmp_path / "table", schema, delta__enableDeletionVectors="true")
    for start in (0, 1_000):
        ids = range(start, start + 1_000)
        members = [{"x": float(-number)} if number % 5 else None for number in ids]
        append_file(handle, pa.table([list(ids), members], schema=schema))
    delete_rows(handle, 0, range(0, 1_000, 2))
    table = lakehand.open_table(tmp_path / "table", engine="local")
    rows = table.to_arrow().sort_by("id")

    report = table.cluster(by="point.x", curve="linear")

    assert (report.proof.rows, report.files_after) == (1_500, 1)
    assert table.to_arrow().sort_by("id").equals(rows)
    members = table.to_arrow()["point"].to_pylist()
    found = [member and member["x"] for member in members]
    known = [value for value in found if value is not None]
    assert found == [None] * (1_500 - len(known)) + sorted(known)


def test_a_declared_order_is_kept_and_told_to_other_engines(table, tmp_path):
    features = {"writerFeatures": ["clustering", "domainMetadata", "appendOnly", "invariants"]}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, **features}
    columns = json.dumps({"clusteringColumns": [["y"], ["x"]], "domainName": "delta.clustering"})
    domain = {"domain": "delta.clustering", "configuration": columns, "removed": False}
    commit_by_hand(tmp_path / "table", {"protocol": protocol}, {"domainMetadata": domain})

    report = table.cluster()

    assert (report.columns, report.curve) == (("y", "x"), "hilbert")
    natives = table.snapshot().files["native"].to_pylist()
    assert {native["clustering_provider"] for native in natives} == {"liquid"}
    tags = [dict(native["tags"]) for native in natives]
    assert {tag["ZCUBE_ZORDER_BY"] for tag in tags} == {'["y","x"]'}
    assert len({tag["ZCUBE_ID"] for tag in tags}) == 1
    table.cluster(by="x", full=True)
    natives = table.snapshot().files["native"].to_pylist()
    assert {native["clustering_provider"] for native in natives} == {None}


def test_rows_that_change_on_their_way_are_not_committed(table, monkeypatch):
    take = key_ranges._take
    monkeypatch.setattr(key_ranges, "_take", lambda rows, places: take(rows, places.slice(1)))
    version = table.snapshot().version

    with pytest.raises(ProofError):
        table.cluster(by="x, y")
    assert table.snapshot().version == version


def test_what_waits_to_be_sorted_stays_within_memory_and_disk(table):
    rows = rows_of(table)
    small = {"task_memory_bytes": "64MiB", "scratch_bytes": "64MiB"}

    assert table.cluster(by="x, y", **small).outcome == "committed"
    assert rows_of(table).equals(rows)


def test_too_little_disk_is_said_and_nothing_is_changed(table, monkeypatch):
    monkeypatch.setattr(key_ranges, "_waiting_bytes", lambda _limits: 0)
    monkeypatch.setattr(key_ranges, "_DISK_SHARE", 2**40)
    version = table.snapshot().version

    with pytest.raises(StoreQuotaError, match="rows to be sorted do not fit") as caught:
        table.cluster(by="x, y")
    assert "scratch_bytes" in caught.value.hint
    assert table.snapshot().version == version


def test_rows_that_wait_on_disk_come_back_whole(table, monkeypatch):
    monkeypatch.setattr(key_ranges, "_waiting_bytes", lambda _limits: 0)
    rows = rows_of(table)

    table.cluster(by="x, y")

    assert rows_of(table).equals(rows)


def test_the_command_prints_the_report_and_says_what_queries_have_of_it(table, capsys):
    words = ["cluster", table.url, "--by", "x,y", "--engine", "local"]

    assert run(words) == 0
    screen = capsys.readouterr().out
    assert run([*words, "--full", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert "x, y (hilbert)" in screen
    assert "of the files per query" in screen
    assert (document["columns"], document["curve"]) == (["x", "y"], "hilbert")
    assert set(document["skip_rate"]) == set(document["overlap_depth"]) == {"before", "after"}


# The names that users gave to what they expect.


def test_z_order_columns(table):
    report = table.cluster(by=["x", "y"], curve="zorder")

    assert (report.columns, report.curve) == (("x", "y"), "zorder")
    assert report.rows_written == 40_000
    assert report.files_added == report.files_after


def test_zorder_computation(table):
    """Files are narrow in both columns: measured, not estimated."""
    report = table.cluster(by=["x", "y"], curve="zorder")

    bounds = table.snapshot(statistics=["x", "y"]).files["bounds"].to_pylist()
    for bound in bounds:
        spans = [bound[name]["max"] - bound[name]["min"] for name in ("x", "y")]
        assert min(spans) < 6_000
    assert report.data_skipping_improvement == report.skip_rate.after - report.skip_rate.before
    assert 0 <= report.zone_widths.minimum <= report.zone_widths.average < 0.7
    assert 0 < report.clustering_ratio <= 1
