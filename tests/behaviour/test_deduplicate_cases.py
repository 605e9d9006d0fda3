"""Odd cases of deduplication: what counts as equal, who came first, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

import lakehand
from lakehand.cli.main import run
from lakehand.engine import local
from lakehand.errors import (
    CommitConflictError,
    ProofError,
    RefusedError,
    ReplanError,
    UnknownColumnError,
    ValidationError,
)
from lakehand.formats.delta.deletion_vectors import row_deletion
from lakehand.rows import deduplicate as story
from lakehand.rows import deletes, duplicates, row_changes, row_operation
from lakehand.rows.key_equality import KeyEquality
from lakehand.runs import operation
from support.compactions import InlineRunner, compact_inline, open_table
from support.deduplications import (
    PROPERTIES,
    SCHEMA,
    append,
    contents,
    deduplicate_inline,
    kept,
    once_at,
    rows,
    tasks_inline,
)
from support.hand_made_tables import add_by_hand, make_by_hand
from support.hand_written_logs import field
from support.small_tables import commit_by_hand, fingerprint
from support.unharmed import assert_clean

NAN = float("nan")


def column(path, name):
    return sorted(lakehand.open_table(path).to_arrow()[name].to_pylist(), key=repr)


def one_column(path, *batches, kind=None, **options):
    for number, values in enumerate(batches):
        array = pa.array(values, kind)
        data = pa.table({"k": array, "n": [10 * number + i for i in range(len(array))]})
        append(path, data, **options)
    return path


def test_keys_take_zeros_of_both_signs_and_all_nans_as_equal(tmp_path):
    path = one_column(tmp_path / "t", [0.0, NAN, None], [-0.0, NAN, 1.0], kind=pa.float64())

    deduplicate_inline(path, key=["k"])

    assert column(path, "n") == [0, 1, 12, 2]


def test_exact_duplicates_tell_zeros_of_both_signs_apart(tmp_path):
    for zero in (0.0, -0.0, 0.0):
        append(tmp_path / "t", pa.table({"k": pa.array([zero, NAN, None], pa.float64())}))

    report = deduplicate_inline(tmp_path / "t", exact=True)

    assert str(column(tmp_path / "t", "k")) == "[-0.0, 0.0, None, nan]"
    assert (report.exact_duplicates_removed, report.key) == (5, None)


def test_exact_duplicates_look_into_nested_values(tmp_path):
    kind = pa.struct({"a": pa.list_(pa.int32()), "m": pa.map_(pa.string(), pa.float64())})
    values = [
        {"a": None, "m": None},
        {"a": [], "m": [("x", 0.0)]},
        {"a": [1, None], "m": [("x", 0.0)]},
        None,
    ]
    for _ in range(2):
        append(tmp_path / "t", pa.table({"k": pa.array(values, kind)}))

    report = deduplicate_inline(tmp_path / "t", exact=True)

    assert (report.duplicates_removed, report.rows_after) == (4, 4)
    assert column(tmp_path / "t", "k") == sorted(pa.array(values, kind).to_pylist(), key=repr)


def test_a_key_of_several_columns_counts_nulls_as_equal(tmp_path):
    path = tmp_path / "t"
    append(path, rows((1, None, 0), (1, 1, 1), (None, None, 2)))
    append(path, rows((1, None, 3), (None, 1, 4), (None, None, 5)))

    deduplicate_inline(path, key=["id", "at"])

    assert contents(path) == [(1, 1, 1), (1, None, 0), (None, 1, 4), (None, None, 2)]


def test_rows_whose_hashes_collide_are_no_duplicates(tmp_path, monkeypatch):
    monkeypatch.setattr(KeyEquality, "_hash", lambda _self: "7::UBIGINT")
    path = tmp_path / "t"
    append(path, rows((1, 0, 0), (2, 0, 1), (3, 0, 2)))
    append(path, rows((2, 0, 3), (4, 0, 4)))

    report = deduplicate_inline(path, key=["id"])

    assert contents(path) == [(1, 0, 0), (2, 0, 1), (3, 0, 2), (4, 0, 4)]
    assert report.duplicate_distribution == {1: 1}


def test_hashes_may_be_divided_among_many_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(story, "partitions_for", lambda *_args, **_options: 7)
    batches = [[(i % 50, 0, 100 * b + i) for i in range(60)] for b in range(3)]
    for batch in batches:
        append(tmp_path / "t", rows(*batch))

    report = deduplicate_inline(tmp_path / "t", key=["id"], keep="last")

    assert contents(tmp_path / "t") == kept(batches, keep="last")
    assert (report.duplicates_removed, report.files_after) == (130, 1)
    assert report.duplicate_distribution == {5: 10, 2: 40}


def test_hashes_that_do_not_fit_into_memory_are_compared_in_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "BYTES_A_ROW", 2**26)
    batches = [[(i % 50, 0, 100 * b + i) for i in range(60)] for b in range(3)]
    for batch in batches:
        append(tmp_path / "t", rows(*batch))

    report = deduplicate_inline(tmp_path / "t", key=["id"], keep="last")

    assert contents(tmp_path / "t") == kept(batches, keep="last")
    assert report.duplicate_distribution == {5: 10, 2: 40}


def test_another_deduplication_that_is_not_seen_leaves_nothing_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("lakehand.rows.row_operation.living_runs", lambda *_, **__: [])
    path, batches = tmp_path / "t", [[(1, 0, 0), (2, 0, 1)], [(1, 0, 2), (2, 0, 3), (3, 0, 4)]]
    for batch in batches:
        append(path, rows(*batch))
    other = once_at("commit", lambda: deduplicate_inline(path, key=["id"]))

    report = deduplicate_inline(path, key=["id"], on_progress=other)

    assert contents(path) == kept(batches, keep="first")
    assert (report.outcome, report.version, report.duplicates_removed) == ("nothing_to_do", 2, 0)
    assert_clean(path)


def test_the_driver_compares_nothing_of_a_large_table(tmp_path, monkeypatch):
    monkeypatch.setattr(row_operation, "INLINE_BYTES", -1)
    for value in range(2):
        append(tmp_path / "t", rows((1, 0, value), (value + 5, 0, 9)))
    ran = []

    class Recording(InlineRunner):
        def run(self, function, *arguments, **options):
            ran.append(type(function).__name__)
            return super().run(function, *arguments, **options)

    monkeypatch.setattr(operation, "open_runner", lambda *_args, **_options: Recording())
    lakehand.open_table(tmp_path / "t", engine="local").deduplicate(key=["id"])

    assert ran == ["HashTask", "CompareTask", "ValuesTask", "RankTask", "RemovalTask"]


def test_little_work_is_done_without_another_process(tmp_path, monkeypatch):
    for value in range(2):
        append(tmp_path / "t", rows((1, 0, value), (value + 5, 0, 9)))
    monkeypatch.delattr(local, "take_worker")

    report = lakehand.open_table(tmp_path / "t", engine="local").deduplicate(key=["id"])

    assert (report.outcome, report.duplicates_removed) == ("committed", 1)


def test_texts_that_are_no_utf_8_are_compared_by_their_bytes(tmp_path):
    texts = pa.array([b"\xff\xfe", b"\xff\xfd", b"ok", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    path = make_by_hand(tmp_path / "t", field("k", "string"), field("n", "long"))
    for first in (0, 10):
        add_by_hand(path, {"k": broken, "n": pa.array(range(first, first + 4), pa.int64())})

    deduplicate_inline(path, key=["k"], keep="latest", order_by="k")

    assert column(path, "n") == [10, 11, 12, 13]


def test_rows_that_are_deleted_already_are_no_duplicates_and_stay_deleted(tmp_path):
    properties = {"delta.enableDeletionVectors": "true"}
    path = make_by_hand(tmp_path / "t", field("id", "long"), properties=properties)
    add_by_hand(path, {"id": pa.array([1, 2, 3, 2], pa.int64())}, deleted=BitMap64([0]))
    add_by_hand(path, {"id": pa.array([1, 3], pa.int64())})

    report = deduplicate_inline(path, key=["id"])

    assert column(path, "id") == [1, 2, 3]
    assert (report.rows_before, report.files_marked) == (5, 2)
    assert open_table(str(path)).snapshot().files["deleted_rows"].to_pylist() == [2, 1]


def test_a_file_with_a_vector_is_written_anew_without_all_that_goes(tmp_path):
    path = make_by_hand(tmp_path / "t", field("id", "long"))
    add_by_hand(path, {"id": pa.array([1, 2, 3, 2], pa.int64())}, deleted=BitMap64([0]))
    add_by_hand(path, {"id": pa.array([1, 3], pa.int64())})

    report = deduplicate_inline(path, key=["id"])

    assert column(path, "id") == [1, 2, 3]
    assert (report.rows_before, report.files_marked) == (5, 0)
    assert open_table(str(path)).snapshot().files["deleted_rows"].to_pylist() == [0, 0]


def test_a_partition_column_may_be_the_key(tmp_path):
    for _ in range(2):
        data = pa.table({"part": ["a", "b", "a"], "n": [1, 2, 3]})
        append(tmp_path / "t", data, partition_by=["part"])

    deduplicate_inline(tmp_path / "t", key=["part"])

    assert column(tmp_path / "t", "part") == ["a", "b"]


def test_a_row_is_no_younger_because_others_of_its_file_were_deleted(tmp_path):
    path = tmp_path / "t"
    append(path, rows((1, 0, 0), (2, 0, 1)), configuration=PROPERTIES["vectors"])
    append(path, rows((1, 0, 2)))
    with tasks_inline():
        lakehand.open_table(path, engine="local").delete(where="id = 2")
    lakehand.open_table(path).checkpoint()

    deduplicate_inline(path, key=["id"], keep="last")

    assert contents(path) == [(1, 0, 2)]


def test_who_came_first_is_the_same_after_a_compaction_where_rows_are_tracked(tmp_path):
    path, tracked = tmp_path / "t", {"delta.enableRowTracking": "true"}
    table = lakehand.create_table(path, SCHEMA, properties=tracked)
    batches = [[(1, 0, 0), (2, 0, 1)], [(1, 0, 2), (3, 0, 3)], [(4, 0, 4), (2, 0, 5)]]
    for batch in batches:
        table.append(rows(*batch))
    compact_inline(path, min_files=2)
    table.append(rows((3, 0, 6)))

    deduplicate_inline(path, key=["id"], keep="first")

    assert contents(path) == kept(batches, keep="first")


def test_files_older_than_the_log_come_before_all_others(tmp_path):
    path = make_by_hand(tmp_path / "t", field("id", "long"), field("n", "long"))
    for number in range(2):
        add_by_hand(path, {"id": pa.array([1], pa.int64()), "n": pa.array([number], pa.int64())})
    lakehand.open_table(path).checkpoint()
    (path / "_delta_log" / f"{1:020}.json").unlink()

    deduplicate_inline(path, key=["id"], keep="last")

    assert column(path, "n") == [1]


def test_a_change_by_others_in_the_files_at_hand_is_taken_in(tmp_path):
    path = tmp_path / "t"
    append(path, rows((1, 0, 0), (2, 0, 1)))
    append(path, rows((1, 0, 2), (2, 0, 3)))
    deleted = once_at("commit", lambda: DeltaTable(str(path)).delete("value = 1"))

    report = deduplicate_inline(path, key=["id"], on_progress=deleted)

    # The other engine wrote its file anew, so what it left counts as younger.
    assert contents(path) == [(1, 0, 2), (2, 0, 3)]
    assert (report.retries, report.duplicates_removed) == (1, 1)
    assert_clean(path)


def test_a_compaction_meanwhile_is_taken_in(tmp_path):
    path = tmp_path / "t"
    batches = [[(1, 0, 0)], [(1, 0, 1), (2, 0, 2)], [(2, 0, 3), (3, 0, 4)]]
    for batch in batches:
        append(path, rows(*batch))
    compacted = once_at("commit", lambda: compact_inline(path, min_files=2))

    deduplicate_inline(path, key=["id"], on_progress=compacted)

    assert {row[0] for row in contents(path)} == {1, 2, 3}
    assert len(contents(path)) == 3


def test_others_who_never_stop_are_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(row_changes, "_TRIES", 3)
    path = tmp_path / "t"
    for value in range(2):
        append(path, rows((1, 0, value)))

    def add(progress):
        if progress.phase == "commit":
            append(path, rows((1, 1, 1)))

    with pytest.raises(CommitConflictError, match="would have had to read"):
        deduplicate_inline(path, key=["id"], on_progress=add, settings={"commit_attempts": 3})

    assert len(contents(path)) == 5
    assert_clean(path)


@pytest.mark.parametrize("phase", ["rewrite", "commit"])
def test_a_schema_that_changes_meanwhile_stops_the_work(tmp_path, phase):
    path = tmp_path / "t"
    for value in range(2):
        append(path, rows((1, 0, value)))
    wider = pa.table({"id": [9], "more": ["x"]})
    changed = once_at(phase, lambda: append(path, wider, schema_mode="merge"))

    with pytest.raises(ReplanError):
        deduplicate_inline(path, key=["id"], on_progress=changed)

    assert len(contents(path)) == 3
    assert_clean(path)


def test_a_vector_that_says_too_little_is_never_committed(tmp_path, monkeypatch):
    path = tmp_path / "t"
    for value in range(2):
        append(path, rows((1, 0, value), (value + 5, 0, 9)), configuration=PROPERTIES["vectors"])
    before = fingerprint(path)
    write = row_deletion.write_deletion_vectors

    def forget(store, bitmaps, **options):
        return write(store, [BitMap64([bitmap.min() + 1]) for bitmap in bitmaps], **options)

    monkeypatch.setattr(row_deletion, "write_deletion_vectors", forget)
    with pytest.raises(ProofError, match="nothing was changed"):
        deduplicate_inline(path, key=["id"])

    assert fingerprint(path) == before


def test_a_vector_that_brings_deleted_rows_back_is_never_committed(tmp_path, monkeypatch):
    properties = {"delta.enableDeletionVectors": "true"}
    path = make_by_hand(tmp_path / "t", field("id", "long"), properties=properties)
    add_by_hand(path, {"id": pa.array([9, 1, 2, 2], pa.int64())}, deleted=BitMap64([0]))
    before = fingerprint(path)
    write = row_deletion.write_deletion_vectors

    def forget_the_first(store, bitmaps, **options):
        return write(store, [bitmap - BitMap64([0]) for bitmap in bitmaps], **options)

    monkeypatch.setattr(row_deletion, "write_deletion_vectors", forget_the_first)
    with pytest.raises(ProofError, match="2 rows were to be hidden, 1 are"):
        deduplicate_inline(path, key=["id"])

    assert fingerprint(path) == before


def test_a_file_that_lacks_another_row_is_never_committed(tmp_path, monkeypatch):
    path = tmp_path / "t"
    for value in range(2):
        append(path, rows((1, 0, value), (value + 5, 0, 9)), configuration=PROPERTIES["copies"])
    before = fingerprint(path)
    leave_out = deletes._without

    def leave_out_the_next(batches, positions):
        return leave_out(batches, positions + 1)

    monkeypatch.setattr(deletes, "_without", leave_out_the_next)
    with pytest.raises(ProofError, match="nothing was changed"):
        deduplicate_inline(path, key=["id"])

    assert fingerprint(path) == before


def test_counts_alone_prove_no_values(tmp_path):
    path = tmp_path / "t"
    for value in range(2):
        append(path, rows((1, 0, value), (value + 5, 0, 9)))

    report = deduplicate_inline(path, key=["id"], settings={"prove": "counts"})

    assert (report.proof.kind, report.proof.rows, report.proof.digest) == ("counts", 1, None)
    assert len(contents(path)) == 3


def test_a_table_that_is_only_appended_to_is_refused(tmp_path):
    for value in range(2):
        append(tmp_path / "t", rows((1, 0, value)), configuration={"delta.appendOnly": "true"})
    before = fingerprint(tmp_path / "t")

    with pytest.raises(RefusedError, match=r"delta\.appendOnly"):
        deduplicate_inline(tmp_path / "t", key=["id"])

    assert fingerprint(tmp_path / "t") == before


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({}, ValidationError, "key columns, or exact duplicates"),
        ({"key": ["id"], "exact": True}, ValidationError, "key columns, or exact duplicates"),
        ({"key": "id"}, ValidationError, "a list of columns"),
        ({"key": ["id", "id"]}, ValidationError, "each named once"),
        ({"key": ["nobody"]}, UnknownColumnError, "the columns are: id, s"),
        ({"key": ["s"]}, RefusedError, "no column of single values"),
        ({"key": ["id"], "keep": "latest"}, ValidationError, "needed to keep the latest"),
        ({"key": ["id"], "order_by": "id"}, ValidationError, "needed to keep the latest"),
        ({"key": ["id"], "keep": "any"}, ValidationError, "first, last, latest"),
        ({"key": ["id"], "keep": "latest", "order_by": "s"}, RefusedError, "single values"),
    ],
)
def test_what_is_not_definite_is_refused(tmp_path, request_, error, words):
    append(tmp_path / "t", pa.table({"id": [1], "s": [{"a": 1}]}))

    with pytest.raises(error, match=words):
        deduplicate_inline(tmp_path / "t", **request_)


def test_an_empty_table_has_nothing_to_do(tmp_path):
    table = lakehand.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]), engine="local")

    report = table.deduplicate(key=["id"])

    assert (report.outcome, report.rows_before, report.max_duplicates_per_key) == (
        "nothing_to_do",
        0,
        0,
    )


def test_the_command_prints_one_document(tmp_path, capsys):
    path = tmp_path / "t"
    for value in range(3):
        append(path, rows((1, value, value), (2 + value, 0, 0)))

    with tasks_inline():
        arguments = ["--key", "id", "--keep", "latest", "--order-by", "at", "--engine", "local"]
        code = run(["deduplicate", str(path), *arguments, "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (code, document["outcome"], document["duplicates_removed"]) == (0, "committed", 2)
    assert document["duplicate_distribution"] == {"2": 1}
    assert contents(path) == [(1, 2, 2), (2, 0, 0), (3, 0, 0), (4, 0, 0)]


def test_a_commit_by_others_that_is_no_change_of_rows_is_in_nobodys_way(tmp_path):
    path = tmp_path / "t"
    for value in range(2):
        append(path, rows((1, 0, value)))
    info = {"commitInfo": {"operation": "TEST", "timestamp": 0}}
    noted = once_at("commit", lambda: commit_by_hand(path, info))

    report = deduplicate_inline(path, key=["id"], on_progress=noted)

    assert contents(path) == [(1, 0, 0)]
    assert (report.version, report.retries) == (3, 1)
