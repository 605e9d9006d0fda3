"""What lakehand promises of every table, whatever its format: one suite, every adapter.

Tables are written and read by the formats' own libraries. What a format lacks is asked of its
capabilities; the list of tests that are skipped for that is short and counted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run as run_command
from lakehand.errors import (
    CommitConflictError,
    LakehandError,
    PredicateError,
    RefusedError,
    SchemaMismatchError,
    TableExistsError,
    UnknownColumnError,
    ValidationError,
)
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.lance.table import LanceTable
from lakehand.hot import HotTable
from lakehand.observe.steps import Step
from lakehand.planning.plan import Plan
from lakehand.runs import Run
from lakehand.sink import TableSink
from lakehand.storage import open_store
from support.crash import kill_at, run_and_kill
from support.deduplications import once_at
from support.formats import (
    FILES,
    KITS,
    ROWS,
    compact_and_die,
    open_here,
    some_rows,
    tasks_inline,
    two_files,
    upsert_and_die,
    vacuum_later,
)

#: Tests that a format is spared, by what it lacks.
SPARED = {
    "lance": {
        "test_a_checkpoint_folds_the_log": "checkpoint",
        "test_missing_statistics_are_computed": "statistics",
    },
}
ALL = list(range(FILES * ROWS))


@pytest.fixture(params=list(KITS))
def kit(request):
    """A format and its own library; skips what the format is spared."""
    name = request.node.originalname
    lacking = SPARED.get(request.param, {}).get(name)
    if lacking is not None:
        pytest.skip(f"{request.param} has no {lacking}")
    with tasks_inline():
        yield KITS[request.param]


@pytest.fixture
def path(kit, tmp_path):
    return kit.make(tmp_path / "t")


def test_the_list_of_what_formats_are_spared_does_not_grow():
    assert {name: len(spared) for name, spared in SPARED.items()} == {"lance": 2}
    for name, spared in SPARED.items():
        lacking = {"delta": DeltaTable, "lance": LanceTable}[name].capabilities.lacking
        assert set(spared.values()) <= lacking.keys()
        assert all(test in globals() for test in spared)


# Reading


def test_inspect_tells_the_truth(kit, path):
    found = open_here(path).inspect()
    assert (found.format, found.file_count, found.row_count) == (kit.name, FILES, FILES * ROWS)
    assert (found.small_file_count, found.deleted_row_count) == (FILES, 0)


def test_rows_are_read_as_the_format_reads_them(kit, path):
    kit.delete(path, "id % 2 = 0")
    assert sorted(open_here(path).to_arrow()["id"].to_pylist()) == kit.ids(path)
    few = open_here(path).to_arrow(columns=["id"], where="id > 5 AND id < 12")
    assert sorted(few["id"].to_pylist()) == [7, 9, 11]


def test_earlier_versions_are_read(path):
    table = open_here(path)
    first = min(entry.version for entry in table.history())
    assert sorted(table.to_arrow(version=first)["id"].to_pylist()) == list(range(ROWS))


def test_a_plan_writes_nothing_and_says_why(kit, path):
    before = kit.files(path)
    plan = open_here(path).plan()
    assert [(len(group.paths), bool(group.reason)) for group in plan.groups] == [(FILES, True)]
    assert kit.files(path) == before


# Compaction


def test_compaction_keeps_every_row_and_proves_it(kit, path):
    rows = kit.rows(path)
    report = open_here(path).compact()
    assert (report.outcome, report.files_before, report.files_after) == ("committed", FILES, 1)
    assert (report.rows_written, report.proof.rows) == (FILES * ROWS, FILES * ROWS)
    assert (kit.rows(path), len(kit.files(path))) == (rows, 1)


def test_a_second_compaction_has_nothing_to_do(path):
    open_here(path).compact()
    assert open_here(path).compact().outcome == "nothing_to_do"


def test_a_dry_run_of_compaction_changes_nothing(kit, path):
    before = kit.files(path)
    report = open_here(path).compact(dry_run=True)
    assert (report.outcome, report.groups.planned) == ("dry_run", 1)
    assert kit.files(path) == before


def test_files_end_at_the_target_size(kit, path):
    report = open_here(path, target_file_bytes=two_files(path), min_files=2).compact()
    assert 1 < report.groups.committed == len(kit.files(path)) < FILES
    assert kit.ids(path) == ALL


def test_compaction_takes_deleted_rows_out(kit, path):
    kit.delete(path, "id % 3 = 0")
    open_here(path).compact()
    assert kit.ids(path) == [number for number in ALL if number % 3]
    assert open_here(path).inspect().deleted_row_count == 0


def test_rows_appended_while_files_are_compacted_stay(kit, path):
    race = once_at("commit", lambda: kit.append(path, some_rows(1000, 3)))
    report = open_here(path).compact(on_progress=race)
    assert report.outcome == "committed"
    assert kit.ids(path) == [*ALL, 1000, 1001, 1002]


def test_rows_deleted_while_their_files_are_compacted_do_not_come_back(kit, path):
    race = once_at("commit", lambda: kit.delete(path, "id = 3"))
    with pytest.raises(CommitConflictError):
        open_here(path).compact(on_progress=race)
    assert kit.ids(path) == [number for number in ALL if number != 3]


def test_a_group_that_lost_is_left_out_and_the_others_land(kit, path):
    race = once_at("commit", lambda: kit.delete(path, "id = 3"))
    table = open_here(path, target_file_bytes=two_files(path), min_files=2)
    report = table.compact(on_progress=race)
    assert (report.groups.committed > 0, report.groups.dropped) == (True, 1)
    assert kit.ids(path) == [number for number in ALL if number != 3]


def test_a_run_keeps_within_its_caps_and_says_what_remains(kit, path):
    table = open_here(path, target_file_bytes=two_files(path), min_files=2, max_groups_per_run=1)
    report = table.compact()
    assert (report.groups.committed, report.remaining.groups > 0) == (1, True)
    assert len(kit.files(path)) == report.files_after > 2
    assert kit.ids(path) == ALL


def test_groups_are_committed_one_by_one_where_that_is_asked(kit, path):
    table = open_here(path, target_file_bytes=two_files(path), min_files=2, commit_every_groups=1)
    report = table.compact()
    assert len(report.versions) == report.groups.committed > 1
    assert kit.ids(path) == ALL


def test_a_stored_plan_is_carried_out_once(kit, path):
    plan = Plan.from_json(json.loads(json.dumps(open_here(path).plan().to_json())))
    assert open_here(path).compact(plan=plan).outcome == "committed"
    assert (len(kit.files(path)), kit.ids(path)) == (1, ALL)
    with pytest.raises(LakehandError):
        open_here(path).compact(plan=plan)


def test_a_call_that_is_stopped_leaves_the_table_as_it_was(kit, path):
    def stop():
        raise KeyboardInterrupt

    before, files = kit.rows(path), stored_data(path)
    with pytest.raises(KeyboardInterrupt):
        open_here(path).compact(on_progress=once_at("commit", stop))
    assert (kit.rows(path), stored_data(path)) == (before, files)


def test_a_damaged_file_stops_a_compaction_before_anything_is_committed(kit, path):
    damaged = next(Path(path).rglob(Path(kit.files(path)[3]).name))
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    version, files = open_here(path).snapshot().version, stored_data(path)
    with pytest.raises(LakehandError):
        open_here(path).compact()
    assert (open_here(path).snapshot().version, stored_data(path)) == (version, files)


def stored_data(path):
    """Return the names of all files of rows that lie in a table, needed or not."""
    kinds = (".parquet", ".lance")
    return {file.name for file in Path(path).rglob("*") if file.suffix in kinds and file.is_file()}


@pytest.mark.parametrize("prove", ["counts", "digest"])
def test_every_kind_of_proof_is_made(kit, path, prove):
    report = open_here(path, prove=prove).compact()
    assert report.proof.rows == len(kit.ids(path)) == FILES * ROWS


@kill_at(Step.TASK_PROVED, Step.COMMIT_PUT)
def test_a_killed_compaction_harms_nothing_and_is_ended_by_the_next(kit, path, step):
    rows = kit.rows(path)
    run_and_kill(step, compact_and_die, path)
    assert kit.rows(path) == rows

    open_here(path, takeover_after="0s").compact()

    assert kit.rows(path) == rows
    assert len(kit.files(path)) < FILES


def test_compaction_takes_the_part_of_a_table_that_a_condition_describes(kit, path):
    rows, files = kit.rows(path), set(kit.files(path))
    report = open_here(path).compact(where=f"id < {4 * ROWS}")
    assert (report.outcome, report.files_removed, report.files_added) == ("committed", 4, 1)
    assert kit.rows(path) == rows
    assert len(files & set(kit.files(path))) == 4


def test_a_condition_that_divides_a_file_is_refused(kit, path):
    before = kit.files(path)
    with pytest.raises(PredicateError, match="both matching"):
        open_here(path).compact(where="id < 5")
    assert kit.files(path) == before


# Order


def test_clustering_puts_rows_in_order_and_keeps_them_all(kit, tmp_path):
    path, everything = str(tmp_path / "t"), some_rows(0, FILES * ROWS)
    for part in range(FILES):
        kit.append(path, everything.take(pa.array(range(part, FILES * ROWS, FILES))))
    rows = kit.rows(path)

    report = open_here(path).cluster(by=["id"], curve="linear")

    assert (report.outcome, kit.rows(path)) == ("committed", rows)
    assert kit.read(path)["id"].to_pylist() == ALL


def test_what_is_in_order_is_not_put_in_order_again(path):
    open_here(path).cluster(by=["id"])
    assert open_here(path).cluster(by=["id"]).outcome == "nothing_to_do"


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_curves_keep_every_row(kit, path, curve):
    rows = kit.rows(path)
    assert open_here(path).cluster(by=["id", "at"], curve=curve).outcome == "committed"
    assert kit.rows(path) == rows


def test_compaction_sorts_where_that_is_asked(kit, path):
    open_here(path).compact(sort_by="id DESC")
    assert kit.read(path)["id"].to_pylist() == ALL[::-1]


def test_an_unknown_column_is_no_order(path):
    with pytest.raises(UnknownColumnError):
        open_here(path).cluster(by=["nope"])


# Rows


@pytest.mark.parametrize("keep", ["first", "last", "latest"])
def test_one_row_of_each_key_stays(kit, path, keep):
    kit.append(path, some_rows(0, 5, at=9))
    kit.append(path, some_rows(0, 3, at=5))
    order = {"order_by": "at"} if keep == "latest" else {}

    report = open_here(path).deduplicate(key=["id"], keep=keep, **order)

    assert (report.outcome, report.duplicates_removed) == ("committed", 8)
    times = dict(
        sorted(zip(*kit.read(path).select(["id", "at"]).to_pydict().values(), strict=True))
    )
    newest = {"first": 0, "last": 5, "latest": 9}[keep]
    assert (kit.ids(path), times[0], times[20]) == (ALL, newest, 0)


def test_exact_duplicates_go_and_others_stay(kit, path):
    kit.append(path, some_rows(0, 5))
    kit.append(path, some_rows(5, 2, at=1))
    assert open_here(path).deduplicate(exact=True).duplicates_removed == 5
    assert kit.ids(path) == sorted([*ALL, 5, 6])


def test_without_duplicates_nothing_is_committed(path):
    version = open_here(path).snapshot().version
    report = open_here(path).deduplicate(key=["id"])
    assert (report.outcome, report.version) == ("nothing_to_do", version)


def test_a_dry_run_of_deduplication_changes_nothing(kit, path):
    kit.append(path, some_rows(0, 5))
    before = kit.rows(path)
    assert open_here(path).deduplicate(key=["id"], dry_run=True).duplicates_removed == 5
    assert kit.rows(path) == before


def test_duplicates_that_come_meanwhile_are_found(kit, path):
    kit.append(path, some_rows(0, 5))
    race = once_at("rewrite", lambda: kit.append(path, some_rows(10, 2)))
    report = open_here(path).deduplicate(key=["id"], on_progress=race)
    assert (report.duplicates_removed, kit.ids(path)) == (7, ALL)


@pytest.mark.parametrize(
    ("where", "stays"),
    [
        ("id >= 30", lambda number: number < 30),
        ("id % 7 = 3 OR id = 0", lambda number: number % 7 != 3 and number),
        ("word IS NULL", lambda number: number % 4 != 2),
        ("true", lambda _: False),
    ],
)
def test_rows_for_which_a_condition_is_true_go_and_no_others(kit, path, where, stays):
    report = open_here(path).delete(where=where)
    left = [number for number in ALL if stays(number)]
    assert (report.outcome, report.rows_removed) == ("committed", len(ALL) - len(left))
    assert kit.ids(path) == left
    assert open_here(path).verify().outcome == "sound"


def test_rows_are_deleted_again_from_files_that_lost_some(kit, path):
    open_here(path).delete(where="id % 2 = 0")
    open_here(path).delete(where="id % 3 = 0")
    assert kit.ids(path) == [number for number in ALL if number % 2 and number % 3]


def test_deleting_nothing_commits_nothing(path):
    assert open_here(path).delete(where="id = -1").outcome == "nothing_to_do"


def test_rows_deleted_by_another_meanwhile_are_not_deleted_twice(kit, path):
    race = once_at("commit", lambda: kit.delete(path, "id = 2"))
    report = open_here(path).delete(where="id < 4", on_progress=race)
    assert report.outcome == "committed"
    assert kit.ids(path) == ALL[4:]


def test_a_condition_on_an_unknown_column_is_refused(path):
    with pytest.raises((PredicateError, UnknownColumnError)):
        open_here(path).delete(where="nope = 1")


# Writing


def test_a_table_is_created_once_and_written_to(kit, tmp_path):
    place = tmp_path / "t"
    table = lakehand.create_table(place, some_rows(0).schema, format=kit.name)
    assert table.append(some_rows(0, 3)).outcome == "committed"
    assert kit.ids(str(place)) == [0, 1, 2]
    with pytest.raises(TableExistsError):
        lakehand.create_table(place, some_rows(0).schema, format=kit.name)


def test_appended_rows_are_read_by_the_format(kit, path):
    report = open_here(path).append(some_rows(1000, 2).to_reader())
    assert (report.outcome, report.rows_written, report.files_added) == ("committed", 2, 1)
    assert kit.ids(path) == [*ALL, 1000, 1001]


def test_nothing_is_committed_for_no_rows(path):
    assert open_here(path).append(some_rows(0, 0)).outcome == "nothing_to_do"


def test_rows_that_do_not_fit_are_refused_and_leave_no_file(kit, path):
    before = {file for file in Path(path).rglob("*") if file.is_file()}
    with pytest.raises(SchemaMismatchError):
        open_here(path).append(pa.table({"other": [1]}))
    assert {file for file in Path(path).rglob("*") if file.is_file()} == before
    assert kit.ids(path) == ALL


def test_an_epoch_is_written_once(kit, path):
    for _ in range(2):
        open_here(path).append(some_rows(1000, 2), writer_id="w", epoch=4)
    assert kit.ids(path) == [*ALL, 1000, 1001]
    assert open_here(path).transactions() == {"w": 4}
    open_here(path).append(some_rows(1002, 1), writer_id="v", epoch=1)
    assert open_here(path).transactions() == {"w": 4, "v": 1}


def test_a_sink_writes_epochs_once_and_goes_on_after_the_last_one(kit, path):
    for _ in range(2):
        with TableSink(path, writer_id="w") as sink:
            for epoch in (1, 2):
                if epoch > (sink.last_committed_epoch or 0):
                    sink.begin_epoch(epoch)
                    sink.write(some_rows(1000 + epoch, 1))
                    sink.commit_epoch()
    assert kit.ids(path) == [*ALL, 1001, 1002]


def with_more(start, count):
    return some_rows(start, count).append_column("more", pa.array(["m"] * count))


def test_new_columns_come_with_rows_where_that_is_asked(kit, path):
    with pytest.raises(SchemaMismatchError):
        open_here(path).append(with_more(1000, 2))
    version = open_here(path).snapshot().version
    report = open_here(path).append(with_more(1000, 2), schema_evolution=True)
    assert (report.version, kit.ids(path)) == (version + 1, [*ALL, 1000, 1001])
    found = kit.read(path).sort_by("id")["more"].to_pylist()
    assert found == [None] * len(ALL) + ["m", "m"]


def test_a_sink_adds_columns_and_goes_on_with_them(kit, path):
    with TableSink(path, writer_id="w", schema_evolution=True) as sink:
        for epoch, rows in enumerate([some_rows(1000, 1), with_more(1001, 1), with_more(1002, 1)]):
            sink.begin_epoch(epoch)
            sink.write(rows)
            sink.commit_epoch()
    assert kit.ids(path) == [*ALL, 1000, 1001, 1002]
    assert kit.read(path).sort_by("id")["more"].to_pylist()[-3:] == [None, "m", "m"]
    open_here(path).compact()
    assert kit.read(path).sort_by("id")["more"].to_pylist()[-3:] == [None, "m", "m"]


def test_an_overwrite_takes_the_place_of_all_rows(kit, path):
    report = open_here(path).overwrite(some_rows(7, 2))
    assert (report.files_removed, report.files_added) == (FILES, 1)
    assert kit.ids(path) == [7, 8]


def test_an_overwrite_takes_the_place_of_the_part_that_a_condition_describes(kit, path):
    report = open_here(path).overwrite(some_rows(0, 2, at=1), where=f"id < {2 * ROWS}")
    assert (report.files_removed, kit.ids(path)) == (2, [0, 1, *ALL[2 * ROWS :]])
    with pytest.raises(PredicateError):
        open_here(path).overwrite(some_rows(0, 2), where="id < 20")


# Upserts


def changed(*numbers, at=9):
    return pa.concat_tables([some_rows(number, 1, at=at) for number in numbers])


def times_of(kit, path):
    rows = kit.read(path).select(["id", "at"]).to_pydict()
    return dict(zip(*rows.values(), strict=True))


def test_an_upsert_replaces_rows_by_their_key_and_adds_others(kit, path):
    report = open_here(path).upsert(changed(0, 9, 1000), key=["id"])
    assert (report.rows_updated, report.rows_inserted) == (2, 1)
    assert kit.ids(path) == [*ALL, 1000]
    assert {n: at for n, at in times_of(kit, path).items() if at} == {0: 9, 9: 9, 1000: 9}
    assert open_here(path).verify().outcome == "sound"


def test_an_upsert_of_every_row_of_a_file_leaves_one_row_per_key(kit, path):
    open_here(path).upsert(some_rows(0, ROWS, at=5), key=["id"])
    open_here(path).compact()
    assert kit.ids(path) == ALL
    assert sum(times_of(kit, path).values()) == 5 * ROWS


def test_a_changelog_deletes_replaces_and_adds_in_one_version(kit, path):
    version = open_here(path).snapshot().version
    log = changed(3, 4, 1000).append_column("_op", pa.array(["D", "U", "I"]))
    report = open_here(path).upsert(log, key=["id"])
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 1, 1)
    assert kit.ids(path) == sorted({*ALL, 1000} - {3})
    assert report.version == version + 1


def test_rows_are_deleted_by_their_keys(kit, path):
    report = open_here(path).delete_keys(pa.table({"id": [1, 2, 5000]}), key=["id"])
    assert (report.outcome, kit.ids(path)) == ("committed", [0, *ALL[3:]])


def test_a_dry_run_of_an_upsert_changes_nothing(kit, path):
    before = kit.rows(path)
    assert open_here(path).upsert(changed(0, 1000), key=["id"], dry_run=True).rows_updated == 1
    assert kit.rows(path) == before


def test_an_upsert_with_an_epoch_is_done_once(kit, path):
    for at in (7, 8):
        open_here(path).upsert(changed(0, 1000, at=at), key=["id"], writer_id="w", epoch=3)
    assert (kit.ids(path), times_of(kit, path)[0]) == ([*ALL, 1000], 7)
    assert open_here(path).transactions() == {"w": 3}


def test_a_row_that_another_writer_adds_meanwhile_is_replaced_too(kit, path):
    race = once_at("commit", lambda: kit.append(path, some_rows(1000, 1)))
    open_here(path).upsert(changed(0, 1000), key=["id"], on_progress=race)
    assert (kit.ids(path), times_of(kit, path)[1000]) == ([*ALL, 1000], 9)


def test_a_row_that_another_writer_deletes_meanwhile_is_there_afterwards(kit, path):
    race = once_at("commit", lambda: kit.delete(path, "id = 2"))
    open_here(path).upsert(changed(2), key=["id"], on_progress=race)
    assert (kit.ids(path), times_of(kit, path)[2]) == (ALL, 9)


def test_a_sink_upserts_epochs_once(kit, path):
    for _ in range(2):
        with TableSink(path, writer_id="w", write_mode="upsert", merge_key=["id"]) as sink:
            for epoch in (1, 2):
                if epoch > (sink.last_committed_epoch or 0):
                    sink.begin_epoch(epoch)
                    sink.write(changed(0, 1000, at=epoch))
                    sink.commit_epoch()
    assert (kit.ids(path), times_of(kit, path)[1000]) == ([*ALL, 1000], 2)


@kill_at(Step.ROWS_ARRIVED, Step.COMMIT_PREPARED, Step.COMMIT_PUT)
def test_a_killed_upsert_is_there_whole_or_not_at_all(kit, path, step):
    run_and_kill(step, upsert_and_die, path)
    times = times_of(kit, path)
    assert kit.ids(path) in (ALL, [*ALL, 1000])
    assert times[0] == times.get(1000, 0)

    open_here(path, takeover_after="0s").upsert(changed(0, 1000), key=["id"])

    assert (kit.ids(path), times_of(kit, path)[1000]) == ([*ALL, 1000], 9)


def test_a_hot_table_with_a_key_replaces_rows(kit, path, tmp_path):
    with HotTable(path, log=tmp_path / "log", key=["id"], hot_refresh_interval="0s") as hot:
        hot.upsert(changed(0, 1000))
        hot.flush()
    assert (kit.ids(path), times_of(kit, path)[0]) == ([*ALL, 1000], 9)


# Retention


def test_vacuum_deletes_what_no_version_needs_and_nothing_else(kit, path):
    open_here(path).compact()
    listed = vacuum_later(path, dry_run=True)
    report = vacuum_later(path)
    assert report.files_deleted == len(listed.files_to_delete) >= FILES
    assert kit.ids(path) == ALL
    assert open_here(path).verify().outcome == "sound"
    assert vacuum_later(path).files_deleted == 0


def test_files_that_nobody_needs_are_listed(kit, path):
    live = Path(kit.files(path)[0])
    lost = next(Path(path).rglob(live.name)).with_stem(f"{live.stem}-lost")
    lost.write_bytes(b"of a writer that died")
    (found,) = open_here(path).orphans()["path"].to_pylist()
    assert Path(found).name == lost.name


def test_a_difference_names_what_came_and_went(kit, path):
    version, files = open_here(path).snapshot().version, kit.files(path)
    open_here(path).compact()
    found = open_here(path).diff(version, open_here(path).snapshot().version)
    assert sorted(found.removed["path"].to_pylist()) == sorted(files)
    assert found.added["path"].to_pylist() == kit.files(path)


def test_young_files_are_not_vacuumed(path):
    open_here(path).compact()
    assert vacuum_later(path, days=0).files_deleted == 0


def test_a_pinned_version_stays_readable(kit, path):
    version = open_here(path).snapshot().version
    open_here(path).pin("before")
    open_here(path).delete(where="id > 10")
    open_here(path).compact()

    report = vacuum_later(path)

    assert [held.name for held in report.holders] == ["before"]
    assert sorted(open_here(path).to_arrow(version=version)["id"].to_pylist()) == ALL
    open_here(path).unpin("before")
    assert vacuum_later(path).files_deleted > 0
    assert kit.ids(path) == ALL[:11]


def test_a_pin_under_the_name_of_another_is_refused_and_both_stay(path):
    for name in ("audit", "report"):
        open_here(path).pin(name)
    pins = Path(path) / "_lakehand" / "pins"
    (pins / "audit.json").write_bytes((pins / "report.json").read_bytes())

    with pytest.raises(ValidationError, match=r"audit\.json.*'report'"):
        open_here(path).unpin("audit")
    with pytest.raises(ValidationError, match=r"audit\.json"):
        vacuum_later(path)

    assert sorted(pin.name for pin in pins.iterdir()) == ["audit.json", "report.json"]
    assert open_here(path).unpin("report").name == "report"


def test_as_many_versions_stay_as_are_asked_for(kit, path):
    third = open_here(path).history(limit=3)[-1].version
    ids = open_here(path).to_arrow(version=third)["id"].to_pylist()
    open_here(path).compact()
    newer = len([entry for entry in open_here(path).history() if entry.version > third])

    report = vacuum_later(path, keep_versions=newer + 1)

    assert report.oldest_version == third
    assert open_here(path).to_arrow(version=third)["id"].to_pylist() == ids
    assert vacuum_later(path).oldest_version > third
    assert kit.ids(path) == ALL


def test_versions_that_a_living_run_reads_are_not_vacuumed(kit, path):
    reading = open_here(path)
    snapshot = reading.snapshot()
    store = open_store(path)
    run = Run.start(store, {"operation": "compact"}, snapshot=snapshot)
    open_here(path).delete(where="id > 10")
    open_here(path).compact()

    # The run lives for as long as nobody may take it over.
    held = vacuum_later(path, takeover_after="60d")

    assert [(holder.kind, holder.name) for holder in held.holders] == [("run", run.id)]
    assert sorted(reading.to_arrow(version=snapshot.version)["id"].to_pylist()) == ALL
    vacuum_later(path, takeover_after="1m")
    assert vacuum_later(path).oldest_version > snapshot.version
    assert kit.ids(path) == ALL[:11]


def test_restore_brings_rows_back(kit, path):
    version = open_here(path).snapshot().version
    open_here(path).delete(where="id > 3")
    report = open_here(path).restore(version=version)
    assert (report.outcome, kit.ids(path)) == ("committed", ALL)


def test_purge_takes_deleted_rows_out_of_the_files(kit, path):
    open_here(path).delete(where="id = 3")
    open_here(path).purge()
    assert kit.ids(path) == [number for number in ALL if number != 3]
    assert open_here(path).inspect().deleted_row_count == 0


# Hot rows


def test_hot_rows_are_read_with_the_others_and_flushed_into_the_table(kit, path, tmp_path):
    with HotTable(path, log=tmp_path / "log", hot_refresh_interval="0s") as hot:
        hot.append(some_rows(1000, 2))
        assert sorted(hot.read(columns=["id"])["id"].to_pylist()) == [*ALL, 1000, 1001]
        assert kit.ids(path) == ALL
        hot.flush()
    assert kit.ids(path) == [*ALL, 1000, 1001]


# Soundness


def test_verify_finds_a_missing_file(kit, path):
    lost = next(file for file in Path(path).rglob(Path(kit.files(path)[0]).name))
    lost.unlink()
    report = open_here(path).verify()
    assert (report.outcome, report.findings[0].name) == ("damaged", "missing_file")


@pytest.mark.parametrize("verb", ["compact", "delete", "deduplicate", "upsert"])
def test_verify_holds_the_proof_of_a_commit_against_the_table(kit, path, verb):
    kit.append(path, some_rows(0, 5))
    options = {
        "delete": {"where": "id = 40"},
        "deduplicate": {"key": ["id"]},
        "upsert": {"data": some_rows(38, 4, at=2), "key": ["id"]},
    }.get(verb, {})
    report = getattr(open_here(path), verb)(**options)
    (check,) = open_here(path).verify(version=report.version).proofs
    assert (check.outcome, check.version) == ("equal", report.version)


def test_a_compacted_table_is_healthy(path):
    open_here(path).compact()
    report = open_here(path).health()
    assert (report.healthy, report.score) == (True, 100)


def test_repair_of_a_sound_table_has_nothing_to_do(path):
    assert open_here(path).repair().outcome == "nothing_to_do"


def test_history_names_what_lakehand_did(path):
    open_here(path).delete(where="id = 3")
    open_here(path).compact()
    newest, *older = [entry for entry in open_here(path).history() if entry.token]
    assert newest.proof["rows"] == len(ALL) - 1
    assert older[0].operation.lower() == "delete"


def test_a_checkpoint_folds_the_log(path):
    assert open_here(path).checkpoint().outcome == "committed"


def test_missing_statistics_are_computed(path):
    assert open_here(path).statistics(full=True).outcome in ("committed", "nothing_to_do")


def test_what_a_format_lacks_is_refused_with_the_reason(kit, path):
    table = open_here(path)
    for operation, reason in table._handle.capabilities.lacking.items():
        with pytest.raises(RefusedError) as caught:
            getattr(table, operation)()
        assert reason in caught.value.message


# The command


def command(capsys, *arguments):
    code = run_command([str(argument) for argument in arguments])
    out, error = capsys.readouterr()
    return code, json.loads(out) if out else error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("inspect",), {"row_count": FILES * ROWS}),
        (("plan",), {}),
        (("compact",), {"outcome": "committed", "rows_written": FILES * ROWS}),
        (("cluster", "--by", "id"), {"outcome": "committed"}),
        (("delete", "--where", "id < 4"), {"outcome": "committed", "rows_removed": 4}),
        (("deduplicate", "--key", "word"), {"outcome": "committed", "rows_after": 4}),
        (("vacuum", "--dry-run"), {"dry_run": True}),
        (("vacuum", "--keep-versions", "3"), {"dry_run": False}),
        (("purge",), {}),
        (("repair",), {"outcome": "nothing_to_do"}),
        (("restore", "--version", "3"), {"outcome": "committed"}),
        (("pin", "kept"), {}),
        (("verify",), {"outcome": "sound"}),
        (("health",), {}),
        (("history",), {}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_command_says_the_same(capsys, path, arguments, expected):
    verb, *options = arguments
    code, document = command(capsys, verb, path, *options, "--json")
    assert code in (0, 5), document
    assert {key: document[key] for key in expected} == expected
