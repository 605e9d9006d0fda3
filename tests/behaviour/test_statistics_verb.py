"""`statistics`: entries of live files get statistics, and nothing else about them changes."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyroaring import BitMap64

from lakehand import open_table
from lakehand.errors import CommitConflictError, CorruptFileError, PredicateError, RefusedError
from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.formats.delta.table import DeltaTable
from lakehand.storage import open_store
from support.damage import state_sizes
from support.rows import assert_same_rows, lakehand_rows
from support.small_tables import commit_by_hand, fingerprint, make_table, rows
from support.stripped_statistics import live_adds, newest_commit, without_statistics
from support.tasks_here import run_tasks_here


@pytest.fixture
def path(tmp_path):
    return without_statistics(make_table(tmp_path / "table", commits=3))


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    """Run tasks in this process; that they run elsewhere is shown once, below."""
    run_tasks_here(monkeypatch)


def refresh(path, **options):
    return open_table(path, engine="local").statistics(**options)


def stats_of(path) -> dict[str, dict]:
    return {add["path"]: json.loads(add["stats"]) for add in live_adds(path)}


def test_every_file_gets_what_its_rows_say(path):
    report = refresh(path)

    assert (report.outcome, report.files_refreshed, report.rows_read) == ("committed", 6, 30)
    for name, found in stats_of(path).items():
        stored = pq.ParquetFile(path / name).read()
        ids, amounts = stored["id"].to_pylist(), stored["amount"].to_pylist()
        known = [amount for amount in amounts if amount is not None]
        assert found == {
            "numRecords": len(ids),
            "minValues": {"id": min(ids), "amount": min(known)},
            "maxValues": {"id": max(ids), "amount": max(known)},
            "nullCount": {"id": 0, "amount": amounts.count(None)},
        }


def test_the_commit_is_named_as_delta_spark_names_it(path):
    refresh(path, where="region = 'eu'")
    info, *actions = newest_commit(path)

    assert info["commitInfo"]["operation"] == "COMPUTE STATS"
    assert info["commitInfo"]["operationParameters"] == {"predicate": "[\"region = 'eu'\"]"}
    assert info["commitInfo"]["isBlindAppend"] is False
    assert [set(action) for action in actions] == [{"add"}] * 3
    assert not any(action["add"]["dataChange"] for action in actions)


def test_nothing_but_the_statistics_of_an_entry_changes(path):
    odd = {
        "tags": {"INSERTION_TIME": "1"},
        "clusteringProvider": "liquid",
        "unknown": [1, {"a": 2}],
    }
    before = {add["path"]: add for add in live_adds(path)}
    commit_by_hand(path, *({"add": add | odd} for add in before.values()))

    refresh(path)

    for add in live_adds(path):
        assert {**add, "stats": None} == {**before[add["path"]], **odd, "dataChange": False} | {
            "stats": None
        }


def test_no_file_is_written_and_rows_stay(path):
    before, seen = fingerprint(path), lakehand_rows(path)
    refresh(path)

    assert {k: v for k, v in fingerprint(path).items() if k in before} == before
    assert [name for name in fingerprint(path) if name not in before] == [
        "_delta_log/00000000000000000003.json"
    ]
    assert_same_rows(lakehand_rows(path), seen)


def test_a_second_run_has_nothing_to_do(path):
    refresh(path)
    before = fingerprint(path)

    assert refresh(path).outcome == "nothing_to_do"
    full = refresh(path, full=True)
    assert (full.outcome, full.files_chosen, full.files_unchanged) == ("nothing_to_do", 6, 6)
    assert fingerprint(path) == before


def test_a_dry_run_counts_and_writes_nothing(path):
    before = fingerprint(path)
    report = refresh(path, dry_run=True)

    assert (report.outcome, report.files_chosen, report.version) == ("dry_run", 6, 2)
    assert fingerprint(path) == before


def test_complete_statistics_are_left_alone(tmp_path):
    path = make_table(tmp_path / "table", commits=2)
    bare = without_statistics(path, only="region=eu")

    report = refresh(bare)

    assert (report.files_chosen, report.files_refreshed, report.files_before) == (2, 2, 4)


def test_a_column_that_the_table_wants_and_the_log_lacks_is_computed(path):
    refresh(path)
    adds = live_adds(path)
    for add in adds:
        stats = json.loads(add["stats"])
        del stats["minValues"]["amount"], stats["maxValues"]["amount"]
        add["stats"] = json.dumps(stats)
    commit_by_hand(path, *({"add": add} for add in adds))

    report = refresh(path)

    assert report.files_refreshed == 6
    assert all("amount" in found["minValues"] for found in stats_of(path).values())


def test_columns_without_values_and_with_nan_lack_nothing(tmp_path):
    table = pa.table(
        {
            "empty": pa.nulls(3, pa.string()),
            "nan": pa.array([1.0, float("nan"), 2.0]),
            "flag": pa.array([True, None, False]),
            "list": pa.array([[1], None, []], pa.list_(pa.int32())),
        }
    )
    write_deltalake(str(tmp_path / "t"), table)
    path = without_statistics(tmp_path / "t")
    refresh(path)
    [found] = stats_of(path).values()

    assert found["minValues"] == {"nan": 1.0}
    assert found["maxValues"] == {}
    assert found["nullCount"] == {"empty": 3, "nan": 0, "flag": 1, "list": 1}
    assert refresh(path).files_chosen == 0


def test_deleted_rows_count_as_rows_and_bound_nothing(tmp_path):
    path = _with_deleted_rows(tmp_path / "t")
    report = refresh(path)
    [found] = stats_of(path).values()

    assert report.rows_read == 6
    assert found["numRecords"] == 10
    assert (found["minValues"]["id"], found["maxValues"]["id"]) == (1, 8)
    assert found["nullCount"]["amount"] == 1
    assert found["tightBounds"] is True
    assert lakehand_rows(path)["id"].to_pylist() == [1, 3, 4, 6, 7, 8]


def _with_deleted_rows(path):
    """Make a table of one file whose rows 0, 2, 5 and 9 are deleted."""
    write_deltalake(str(path), rows(0, 10))
    without_statistics(path)
    [add] = live_adds(path)
    store = open_store(path)
    [vector] = write_deletion_vectors(store, [BitMap64([0, 2, 5, 9])])
    features = ["deletionVectors", "appendOnly", "invariants"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    lists = {"readerFeatures": ["deletionVectors"], "writerFeatures": features}
    commit_by_hand(
        path,
        {"protocol": protocol | lists},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": add | {"deletionVector": vector.to_json(), "stats": '{"numRecords":10}'}},
    )
    return path


def test_rare_types_have_the_bounds_of_the_writer(tmp_path):
    table = pa.table(
        {
            "d": pa.array([Decimal("-1.50"), Decimal("99999999999999999999.99")]),
            "day": [date(1969, 12, 31), date(2026, 1, 1)],
            "s": pa.array([{"x": 1, "long": "é" * 40}, None]),
        }
    )
    write_deltalake(str(tmp_path / "t"), table)
    path = without_statistics(tmp_path / "t")
    refresh(path)
    [add] = live_adds(path)

    assert '"d":99999999999999999999.99' in add["stats"]
    found = json.loads(add["stats"])
    assert found["minValues"]["day"] == "1969-12-31"
    assert found["minValues"]["s"] == {"x": 1, "long": "é" * 32}
    assert found["nullCount"]["s"] == {"x": 1, "long": 1}


def test_ancient_dates_that_readers_shift_are_no_bounds(tmp_path):
    days = pa.table({"day": [date(1500, 1, 1), date(2026, 1, 1)], "n": [1, 2]})
    write_deltalake(str(tmp_path / "t"), days)
    path = without_statistics(tmp_path / "t")
    [file] = path.glob("*.parquet")
    marks = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    pq.write_table(days.replace_schema_metadata(marks), file)
    refresh(state_sizes(path))
    [found] = stats_of(path).values()

    assert found["minValues"] == {"n": 1}
    assert found["maxValues"] == {"day": "2026-01-01", "n": 2}
    assert found["nullCount"] == {"day": 0, "n": 0}


def test_a_predicate_chooses_whole_files(path):
    assert refresh(path, where="region = 'us'").files_refreshed == 3
    assert sum("stats" in add for add in live_adds(path)) == 3


def test_a_predicate_that_metadata_cannot_decide_is_refused(path):
    with pytest.raises(PredicateError, match="cannot be evaluated"):
        refresh(path, where="id > 3")


def test_the_caps_of_a_run_leave_the_rest_for_the_next(path):
    first = refresh(path, max_files_per_run=4)
    second = refresh(path, max_files_per_run=4)

    assert (first.files_refreshed, first.files_remaining) == (4, 2)
    assert (second.files_refreshed, second.files_remaining) == (2, 0)


def test_one_bad_file_does_not_keep_the_others_from_theirs(path):
    broken = min(path.rglob("*.parquet"))
    broken.write_bytes(broken.read_bytes()[:-30])

    report = refresh(path)

    assert report.files_refreshed == 5
    assert [error["code"] for error in report.errors] == ["CORRUPT_FILE"]


def test_if_no_file_can_be_read_the_reason_is_raised(path):
    for file in path.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(CorruptFileError):
        refresh(path)


def test_a_file_with_other_rows_than_the_table_says_is_not_whitewashed(tmp_path):
    path = make_table(tmp_path / "table", commits=1)
    [file, *_] = sorted(path.rglob("*.parquet"))
    pq.write_table(pq.ParquetFile(file).read().slice(1), file)

    report = refresh(state_sizes(path), full=True)

    assert [error["code"] for error in report.errors] == ["CORRUPT_FILE"]
    assert "has 4 rows, but the table records 5" in report.errors[0]["message"]


def test_tasks_run_in_processes_of_their_own_and_tell_their_progress(path, monkeypatch):
    monkeypatch.undo()
    seen = []
    report = refresh(path, on_progress=seen.append)

    assert report.files_refreshed == 6
    assert [(event.phase, event.done, event.total, event.unit) for event in seen] == [
        ("read", 6, 6, "files")
    ]


# Concurrent writers


def racing(monkeypatch, path, actions_of):
    """Have somebody else commit right before `statistics` does."""
    commit = DeltaTable.commit

    def late(self, change, *, token):
        commit_by_hand(path, *actions_of(change))
        return commit(self, change, token=token)

    monkeypatch.setattr(DeltaTable, "commit", late)


def removal(item):
    return {"remove": {"path": item.file.native["add"]["path"], "dataChange": True}}


def test_a_file_that_was_removed_meanwhile_is_not_brought_back(path, monkeypatch):
    racing(monkeypatch, path, lambda change: [removal(change.refreshed[0])])
    report = refresh(path)

    assert (report.files_refreshed, report.files_dropped, report.retries) == (5, 1, 1)
    assert len(live_adds(path)) == 5
    assert lakehand_rows(path).num_rows == 25


def test_if_every_file_was_touched_nothing_is_written(path, monkeypatch):
    racing(monkeypatch, path, lambda change: [removal(item) for item in change.refreshed])
    with pytest.raises(CommitConflictError, match="statistics were left"):
        refresh(path)

    assert lakehand_rows(path).num_rows == 0


def test_appends_do_not_matter(path, monkeypatch):
    racing(monkeypatch, path, lambda _: [{"add": {**live_adds(path)[0], "path": "other.parquet"}}])
    assert refresh(path).files_refreshed == 6


# With checkpoints, and beside compaction


def test_a_checkpoint_carries_them_on(path):
    refresh(path)
    before = stats_of(path)
    table = open_table(path, engine="local")
    table.checkpoint()

    assert refresh(path).outcome == "nothing_to_do"
    bounds = table.snapshot(statistics=["id"]).files["bounds"].to_pylist()
    assert sorted(b["id"]["min"] for b in bounds) == sorted(
        found["minValues"]["id"] for found in before.values()
    )


def test_files_of_a_checkpoint_are_refreshed(path):
    table = open_table(path, engine="local")
    table.checkpoint()
    report = refresh(path)

    assert report.files_refreshed == 6
    assert sorted(found["minValues"]["id"] for found in stats_of(path).values()) == [
        0, 1, 10, 11, 20, 21,
    ]  # fmt: skip


def test_compaction_may_do_both_in_two_commits(tmp_path):
    path = without_statistics(make_table(tmp_path / "table", commits=4))
    seen = lakehand_rows(path)

    report = open_table(path, engine="local").compact(
        file_filter=lambda files: pc.match_substring(files["path"], "region=us"),
        recompute_statistics=True,
    )

    assert report.statistics is not None
    assert (report.files_removed, report.statistics.files_refreshed) == (4, 4)
    assert report.statistics.version == report.version + 1
    assert all(found["numRecords"] for found in stats_of(path).values())
    assert_same_rows(lakehand_rows(path), seen)


def test_what_forbids_rewriting_forbids_it(path):
    uniform = {"delta.universalFormat.enabledFormats": "iceberg"}
    [metadata] = [
        line["metaData"]
        for line in map(
            json.loads, (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        )
        if "metaData" in line
    ]
    commit_by_hand(path, {"metaData": metadata | {"configuration": uniform}})
    with pytest.raises(RefusedError):
        refresh(path)
