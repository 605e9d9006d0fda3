"""Rows of Lance tables put in order: by the same planning and sorting as Delta's."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import lance
import numpy as np
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitConflictError, RefusedError, UnknownColumnError, ValidationError
from lakehand.formats.lance import protocol
from lakehand.observe.steps import Step
from support.compactions import tasks_inline
from support.crash import run_and_kill
from support.deduplications import once_at
from support.lance_tables import (
    ROWS,
    add_indices,
    compact_lance,
    data_sizes,
    fragment_count,
    make_lance,
    rows_of,
    rows_of_every_kind,
    searches,
    some_rows,
    unknown_files,
)


@pytest.fixture
def path(tmp_path):
    path = make_lance(tmp_path / "t")
    lance.dataset(path).delete("id % 10 = 3")
    return path


def clustered(path, **options):
    half = sum(size for _, size in data_sizes(path)) // 2
    with tasks_inline():
        table = lakehand.open_table(path, target_file_bytes=half)
        return table.cluster(**options)


def test_rows_are_sorted_by_the_columns_that_were_asked_for(path):
    rows = rows_of(path)
    with tasks_inline():
        report = lakehand.open_table(path).compact(sort_by="word, id DESC")

    assert (report.outcome, report.methods.sort, report.proof.kind) == ("committed", 1, "digest")
    found = lance.dataset(path).to_table(columns=["id", "word"])
    assert found == found.sort_by([("word", "ascending"), ("id", "descending")])
    assert rows_of(path) == rows


@pytest.mark.parametrize("curve", ["hilbert", "zorder", "linear"])
def test_rows_of_a_clustered_table_are_the_same(path, curve):
    rows = rows_of(path)
    report = clustered(path, by=["id", "word"], curve=curve)

    assert (report.outcome, report.curve) == ("committed", curve)
    assert fragment_count(path) < 8
    assert rows_of(path) == rows


def test_fragments_of_a_clustered_table_lie_apart(tmp_path):
    path = str(tmp_path / "t")
    shuffled = np.random.default_rng(1).permutation(400)
    for number in range(4):
        part = pa.table({"id": shuffled[number::4], "text": ["x" * 50] * 100})
        lance.write_dataset(part, path, mode="append" if number else "create")

    clustered(path, by=["id"], curve="linear")

    spans = [_span(fragment) for fragment in lance.dataset(path).get_fragments()]
    assert len(spans) > 1
    assert all(before[1] < after[0] for before, after in pairwise(spans))


def _span(fragment):
    ids = fragment.to_table(columns=["id"])["id"].to_pylist()
    return min(ids), max(ids)


def test_what_is_in_order_already_is_left_alone_and_new_rows_are_not(path):
    clustered(path, by=["id"])
    version = lance.dataset(path).version
    with tasks_inline():
        table = lakehand.open_table(path, target_file_bytes=10_000)
        assert table.cluster(by=["id"]).outcome == "nothing_to_do"
        assert lance.dataset(path).version == version
        lance.write_dataset(some_rows(5000), path, mode="append")
        assert table.cluster(by=["id"]).outcome == "committed"
    assert rows_of(path)["id"].to_pylist()[-ROWS:] == list(range(5000, 5000 + ROWS))


@pytest.mark.parametrize("curve", ["hilbert", "linear"])
@pytest.mark.parametrize("sort_task_bytes", [1, 2**30])
def test_many_fragments_that_were_put_in_order_together_are_left_alone(
    tmp_path, curve, sort_task_bytes
):
    path = str(tmp_path / "t")
    columns = np.random.default_rng(1).integers(0, 2**62, (2, 12_000))
    lance.write_dataset(pa.table(list(columns), ["a", "b"]), path, max_rows_per_file=1_000)
    sizes = {"target_file_bytes": 16_000, "sort_task_bytes": sort_task_bytes}
    with tasks_inline():
        table = lakehand.open_table(path, **sizes)
        assert table.cluster(by=["a", "b"], curve=curve).outcome == "committed"
        assert fragment_count(path) > 8
        assert table.cluster(by=["a", "b"], curve=curve).outcome == "nothing_to_do"


def test_columns_whose_names_differ_by_case_are_not_taken_for_one_another(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"key": [3, 1, 2, 4], "Key": [1, 2, 3, 4]})
    lance.write_dataset(rows, path, max_rows_per_file=2)
    with tasks_inline():
        table = lakehand.open_table(path)
        assert table.cluster(by="key", curve="linear").columns == ("key",)
        assert lance.dataset(path).to_table()["key"].to_pylist() == [1, 2, 3, 4]
        with pytest.raises(ValidationError, match="ambiguous: it may be key, Key"):
            table.cluster(by="KEY")


def test_columns_of_every_kind_move_with_their_rows(tmp_path):
    path, rows = str(tmp_path / "t"), rows_of_every_kind()
    for number in range(4):
        ids = pa.array([number + 4 * place for place in (3, 1, 0, 2)])
        part = rows.append_column("id", ids)
        lance.write_dataset(part, path, mode="append" if number else "create")
    before = lance.dataset(path).to_table().sort_by("id")

    with tasks_inline():
        lakehand.open_table(path).compact(sort_by="id")

    after = lance.dataset(path).to_table()
    assert (after.schema, after.to_pylist()) == (before.schema, before.to_pylist())


IDENTITY = ["id", "_row_created_at_version", "_row_last_updated_at_version"]


def identities(path):
    scanner = lance.dataset(path).scanner(columns=IDENTITY, with_row_id=True)
    return scanner.to_table().sort_by("id").to_pydict()


def index_coverage(path):
    dataset = lance.dataset(path)
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    return {
        index.name: fragments - {n for part in index.segments for n in part.fragment_ids}
        for index in dataset.describe_indices()
    }


@pytest.mark.parametrize("sort_task_bytes", [1, 2**30])
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_searches_find_the_same_rows_in_another_order(tmp_path, stable_row_ids, sort_task_bytes):
    path = make_lance(tmp_path / "t", stable_row_ids=stable_row_ids)
    add_indices(path)
    lance.dataset(path).delete("id % 10 = 3")
    rows, found = rows_of(path), searches(path)

    with tasks_inline():
        table = lakehand.open_table(path, sort_task_bytes=sort_task_bytes)
        report = table.compact(sort_by="id DESC")

    assert rows_of(path) == rows
    assert lance.dataset(path).to_table()["id"].to_pylist() == rows["id"].to_pylist()[::-1]
    assert searches(path) == found
    assert index_coverage(path) == {"id_idx": set(), "vector_idx": set(), "word_idx": set()}
    assert set(report.indices_updated) <= {"id_idx", "vector_idx", "word_idx"}


@pytest.mark.parametrize("sort_task_bytes", [1, 2**30])
def test_rows_keep_their_ids_and_versions_in_another_order(tmp_path, sort_task_bytes):
    path = make_lance(tmp_path / "t", stable_row_ids=True)
    lance.dataset(path).update({"word": "'changed'"}, where="id % 3 = 0")
    before = identities(path)

    with tasks_inline():
        table = lakehand.open_table(path, sort_task_bytes=sort_task_bytes)
        report = table.cluster(by=["word", "id"])

    assert (report.outcome, fragment_count(path)) == ("committed", 1)
    assert identities(path) == before
    lance.write_dataset(some_rows(5000, 2), path, mode="append")
    assert len(set(identities(path)["_rowid"])) == len(before["id"]) + 2


def test_an_index_that_knows_some_fragments_only_does_not_hinder_an_order(tmp_path):
    path = make_lance(tmp_path / "t")
    add_indices(path)
    lance.write_dataset(some_rows(5000), path, mode="append")
    rows, found = rows_of(path), searches(path)
    clustered(path, by=["id"])
    assert rows_of(path) == rows
    assert searches(path)["scalar"] == found["scalar"]
    assert searches(path)["words"] == found["words"]


def test_rows_deleted_while_they_are_ordered_stay_deleted(tmp_path):
    path = make_lance(tmp_path / "t")
    add_indices(path)
    race = once_at("commit", lambda: lance.dataset(path).delete("id = 5"))
    with tasks_inline(), suppress(CommitConflictError):
        lakehand.open_table(path).compact(sort_by="id DESC", on_progress=race)
    assert rows_of(path)["id"].to_pylist() == [n for n in range(8 * ROWS) if n != 5]


def test_an_order_of_too_many_stable_row_ids_is_refused(tmp_path, monkeypatch):
    path = make_lance(tmp_path / "t", stable_row_ids=True)
    monkeypatch.setattr(protocol, "_MOST_MOVED_IDS", 100)
    with pytest.raises(RefusedError, match="512 rows") as caught:
        clustered(path, by=["id"])
    assert (caught.value.feature, fragment_count(path)) == ("stable row ids", 8)


def test_dates_and_decimals_pass_through_many_tasks(tmp_path):
    path, count = str(tmp_path / "t"), 500
    numbers = np.random.default_rng(0).integers(0, 1000, count)
    rows = pa.table(
        {
            "id": pa.array(range(count)),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "amount": pa.array(numbers).cast(pa.decimal128(21, 2)),
        }
    )
    lance.write_dataset(rows, path, max_rows_per_file=100)
    with tasks_inline():
        lakehand.open_table(path, sort_task_bytes=1).cluster(by=["day"])
    assert rows_of(path) == rows.combine_chunks()


def test_a_column_that_is_none_is_named(path):
    with pytest.raises(UnknownColumnError, match="nowhere"):
        clustered(path, by=["nowhere"])


def sort_lance(path):
    with tasks_inline():
        lakehand.open_table(path, takeover_after="0s").compact(sort_by="id DESC")


@pytest.mark.parametrize("step", [Step.TASK_WRITTEN, Step.COMMIT_PUT])
def test_a_sorted_compaction_that_is_killed_is_ended_by_the_next_call(path, step):
    rows = rows_of(path)
    run_and_kill(step, sort_lance, path)
    assert rows_of(path) == rows

    sort_lance(path)

    assert (rows_of(path), fragment_count(path)) == (rows, 1)
    assert unknown_files(path) == set()


@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize("step", [Step.TASK_WRITTEN, Step.COMMIT_PUT])
def test_searches_are_right_after_an_order_was_killed(tmp_path, step, stable_row_ids):
    path = make_lance(tmp_path / "t", stable_row_ids=stable_row_ids)
    add_indices(path)
    rows, found = rows_of(path), searches(path)
    run_and_kill(step, sort_lance, path)
    assert (rows_of(path), searches(path)) == (rows, found)

    sort_lance(path)

    assert (rows_of(path), searches(path), fragment_count(path)) == (rows, found, 1)
    assert unknown_files(path) == set()


def test_a_compaction_after_it_keeps_the_rows(path):
    clustered(path, by=["id"])
    rows = rows_of(path)
    compact_lance(path, min_files=2)
    assert (rows_of(path), fragment_count(path)) == (rows, 1)


def test_added_and_dropped_columns_survive_another_order(tmp_path):
    path = make_lance(tmp_path / "t")
    lance.dataset(path).add_columns({"twice": "id * 2"})
    lance.dataset(path).drop_columns(["word"])
    rows = rows_of(path)

    clustered(path, by=["twice"])

    assert rows_of(path) == rows
    assert rows.column_names == ["id", "vector", "twice"]
