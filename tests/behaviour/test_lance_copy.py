"""Pages of Lance fragments that are moved as they are, and those that are written anew."""

from __future__ import annotations

import json
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from lakehand.errors import ProofError
from lakehand.formats.lance import rewriting
from lakehand.formats.lance.table import LanceTable
from lakehand.model.work import Group
from lakehand.storage import open_store
from support.lance_tables import compact_lance, data_sizes, fragment_count, rows_of

HEALTHY_ROWS = 100_000


def wide_rows(start: int = 0, count: int = HEALTHY_ROWS) -> pa.Table:
    numbers = np.arange(start, start + count)
    words = pa.array([f"word {number % 997}" for number in numbers.tolist()])
    return pa.table({"id": numbers, "twice": numbers * 2, "word": words})


def make_table(path, *, count: int = HEALTHY_ROWS, fragments: int = 5) -> str:
    for number in range(fragments):
        lance.write_dataset(wide_rows(number * count, count), str(path), mode="append")
    return str(path)


def pages(path: str) -> list[int]:
    [fragment] = lance.dataset(path).get_fragments()
    [file] = fragment.data_files()
    columns = LanceFileReader(f"{path}/data/{file.path}").metadata().columns
    return [len(column.pages) for column in columns]


def test_healthy_pages_are_moved_and_their_rows_proved(tmp_path):
    path = make_table(tmp_path / "t")
    rows = rows_of(path)

    report = compact_lance(path)

    assert report.methods.copy == 1
    assert (report.proof.kind, report.proof.rows) == ("digest", 5 * HEALTHY_ROWS)
    assert (rows_of(path), fragment_count(path), pages(path)) == (rows, 1, [5, 5, 5])
    sizes = {size for _, size in data_sizes(path)}
    assert report.bytes_after in sizes


def delete_a_row(path):
    lance.dataset(path).delete("id = 7")


def add_a_column(path):
    lance.dataset(path).add_columns({"thrice": "id * 3"})


def drop_a_column(path):
    lance.dataset(path).drop_columns(["twice"])


def append_in_another_order(path):
    lance.write_dataset(wide_rows(1_000_000).select(["word", "twice", "id"]), path, mode="append")


def append_few(path):
    for number in range(4):
        lance.write_dataset(wide_rows(1_000_000 + number, 1), path, mode="append")


def build_an_index(path):
    lance.dataset(path).create_scalar_index("id", "BTREE")


@pytest.mark.parametrize(
    "spoil",
    [
        delete_a_row,
        add_a_column,
        drop_a_column,
        append_in_another_order,
        append_few,
        build_an_index,
    ],
)
def test_what_may_mean_something_else_in_another_file_is_written_anew(tmp_path, spoil):
    path = make_table(tmp_path / "t")
    spoil(path)
    rows = rows_of(path)

    report = compact_lance(path)

    assert (report.outcome, report.methods.copy) == ("committed", 0)
    assert (rows_of(path), fragment_count(path)) == (rows, 1)


def test_small_pages_are_written_anew_so_that_scans_get_faster(tmp_path):
    path = make_table(tmp_path / "t", count=1_000, fragments=8)
    assert compact_lance(path).methods.copy == 0
    assert pages(path) == [1, 1, 1]


def test_pages_that_were_moved_while_they_were_small_do_not_count_as_healthy(tmp_path):
    path = make_table(tmp_path / "t", count=10_000, fragments=10)
    lance.dataset(path).optimize.compact_files(compaction_mode="force_binary_copy")
    assert pages(path) == [10, 10, 10]
    for number in range(4):
        lance.write_dataset(wide_rows(1_000_000 + number), path, mode="append")

    assert compact_lance(path).methods.recode == 1
    assert max(pages(path)) < 10


def test_nothing_is_moved_unproved(tmp_path):
    path = make_table(tmp_path / "t")
    assert compact_lance(path, prove="counts").methods.copy == 0


def test_files_of_moved_pages_end_at_the_target_size(tmp_path):
    path = make_table(tmp_path / "t", fragments=8)
    table = LanceTable(open_store(path))
    snapshot = table.snapshot()
    inputs = table.data_files(snapshot, range(8))
    target = sum(file.bytes for file in inputs) // 4
    group = Group(id=0, inputs=inputs, reason="small_files", target_file_bytes=target)
    group = replace(group, native=table.native_group(snapshot, group))

    files = table.worker(snapshot).run_native(group, stem="unused", is_copied=True)

    assert [file.rows for file in files] == [2 * HEALTHY_ROWS] * 4
    assert all(file.bytes > 0.8 * target for file in files)


def test_columns_that_were_crossed_are_seen_and_nothing_is_committed(tmp_path, monkeypatch):
    path = make_table(tmp_path / "t")
    version, rewrite = lance.dataset(path).version, rewriting.run_task

    def crossed(*args):
        account = json.loads(rewrite(*args))
        account["new_fragments"][0]["files"][0]["fields"] = [1, 0, 2]
        return json.dumps(account)

    monkeypatch.setattr(rewriting, "run_task", crossed)
    with pytest.raises(ProofError):
        compact_lance(path)
    assert lance.dataset(path).version == version
