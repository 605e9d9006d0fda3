"""Compaction under the names that its users gave to what they expect of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

import lakehand
from lakehand.observe.clock import ManualClock
from lakehand.rewrite.prepare import Request
from lakehand.rewrite.run import compact
from lakehand.settings import Settings
from support.rows import delta_table
from support.small_tables import fingerprint, make_table, read_sorted

AUTOMATIC = Request(automatic=True)
LOCAL = Settings({"engine": "local"}, environment={})


def automatic_run(path, *, minutes_later=60, settings=LOCAL):
    """Compact as a schedule would, some time after the last write."""
    later = datetime.now(UTC) + timedelta(minutes=minutes_later)
    clock = ManualClock(later)
    return compact(delta_table(path), settings=settings, request=AUTOMATIC, clock=clock)


@pytest.mark.parametrize(("files", "outcome"), [(9, "nothing_to_do"), (10, "committed")])
def test_compaction_trigger_threshold(tmp_path, files, outcome):
    path = make_table(tmp_path / "table", commits=files)
    before = read_sorted(path)

    report = automatic_run(path)

    assert report.outcome == outcome
    assert len(DeltaTable(str(path)).file_uris()) == (2 if outcome == "committed" else 2 * files)
    assert report.skip_reason == (None if outcome == "committed" else "below_minimum_files")
    assert read_sorted(path).equals(before)


def test_compaction_disabled(tmp_path):
    properties = {"delta.autoOptimize.autoCompact": "false"}
    path = make_table(tmp_path / "table", commits=12, configuration=properties)
    before, rows = fingerprint(path), read_sorted(path)

    report = automatic_run(path)

    assert (report.outcome, report.skip_reason) == ("nothing_to_do", "disabled")
    assert fingerprint(path) == before
    assert lakehand.open_table(path, engine="local").compact().files_after == 2
    assert read_sorted(path).equals(rows)


def test_partitions_that_are_being_written_to_are_left_alone(tmp_path):
    path = make_table(tmp_path / "table", commits=12)
    before = fingerprint(path)

    busy = automatic_run(path, minutes_later=4)
    assert (busy.skip_reason, busy.files_left) == ("recently_written", {"recently_written": 24})
    assert fingerprint(path) == before

    assert automatic_run(path, minutes_later=6).files_after == 2


def test_an_automatic_run_says_so_in_the_commit(tmp_path):
    path = make_table(tmp_path / "table", commits=12)

    automatic_run(path)

    assert delta_table(path).history(limit=1)[0].parameters["auto"] is True


def test_by_hand_the_quiet_period_counts_only_if_the_call_gives_it(tmp_path):
    path = make_table(tmp_path / "table", commits=4)
    table = lakehand.open_table(path, engine="local")

    assert table.compact(quiet_period="1h", dry_run=True).skip_reason == "recently_written"
    assert table.compact(dry_run=True).groups.planned == 2


def test_compaction_metrics(tmp_path):
    path = make_table(tmp_path / "table", rows_a_commit=2_000)
    rows = read_sorted(path)

    report = lakehand.open_table(path, engine="local").compact(target_file_bytes="1MiB")

    added = DeltaTable(str(path)).get_add_actions(flatten=True)
    sizes = added["size_bytes"].to_pylist()
    assert report.files_after == report.files_added == len(sizes) == 2
    assert report.bytes_after == sum(sizes)
    assert (report.rows_read, report.rows_written) == (rows.num_rows, rows.num_rows)
    assert report.average_file_bytes.after == sum(sizes) // 2
    assert report.average_file_bytes.before == report.bytes_before // 12
    assert report.bin_packing_efficiency == pytest.approx(sum(sizes) / (2 * 2**20))
    seconds = report.duration_ms / 1000
    assert report.rows_per_second == pytest.approx(rows.num_rows / seconds)
    assert report.bytes_per_second == pytest.approx(report.bytes_before / seconds)
    assert (report.partitions_compacted, report.strategy) == (2, "greedy")
    assert (report.files_skipped_large_enough, report.skip_reason) == (0, None)
    assert read_sorted(path).equals(rows)


def test_files_that_are_large_enough_are_counted_and_kept(tmp_path):
    path = make_table(tmp_path / "table")
    table = lakehand.open_table(path, engine="local", target_file_bytes=1_000)
    before = set(table.snapshot().files["path"].to_pylist())

    report = table.compact()

    assert report.skip_reason == "no_files_to_compact"
    assert (report.files_skipped_large_enough, report.files_left) == (12, {"large_enough": 12})
    assert set(table.snapshot().files["path"].to_pylist()) == before


def test_optimize_merges_files(tmp_path):
    path = make_table(tmp_path / "table")
    rows = read_sorted(path)

    report = lakehand.open_table(path, engine="local").compact()

    judge = DeltaTable(str(path))
    assert (len(judge.file_uris()), report.files_before) == (2, 12)
    assert judge.history(1)[0]["operation"] == "OPTIMIZE"
    assert read_sorted(path).equals(rows)


def test_simple_compaction(tmp_path):
    path = make_table(tmp_path / "table")
    table = lakehand.open_table(path, engine="local")
    rows = read_sorted(path)

    assert table.compact().outcome == "committed"
    again = table.compact()

    assert (again.outcome, again.version) == ("nothing_to_do", table.snapshot().version)
    assert again.skip_reason == "below_minimum_files"
    assert table.to_arrow().sort_by("id").select(rows.column_names).equals(rows)
