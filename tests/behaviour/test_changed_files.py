"""Files that are no longer the ones that were committed: nobody rewrites them, or hides it."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import lakehand
from lakehand.errors import CorruptFileError
from support.damage import ROWS, data_file, expect_another_row, make_whole_table, rows_of
from support.deduplications import deduplicate_inline, delete_inline
from support.forced_compactions import compact_here
from support.small_tables import fingerprint
from support.tasks_here import run_tasks_here

OPERATIONS = {
    "copy": lambda path: compact_here(path, method="copy"),
    "recode": lambda path: compact_here(path, method="recode"),
    "sort": lambda path: lakehand.open_table(path, engine="local").compact(
        sort_by="id DESC", min_files=2
    ),
    "deduplicate": lambda path: deduplicate_inline(path, key=["name"]),
    "delete": lambda path: delete_inline(path, "id = 121"),
    "upsert": lambda path: lakehand.open_table(path, engine="local").upsert(
        rows_of(4).slice(2, 3), key=["id"]
    ),
    "statistics": lambda path: lakehand.open_table(path, engine="local").statistics(full=True),
    "read": lambda path: lakehand.open_table(path).to_arrow(),
    "read_a_part": lambda path: lakehand.open_table(path).to_arrow(where="id = 121"),
}


@pytest.fixture
def path(tmp_path):
    return make_whole_table(tmp_path / "table")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_file_of_another_size_than_the_table_says_is_not_used(path, operation, monkeypatch):
    run_tasks_here(monkeypatch)
    # As many rows, the same ids and bounds; only the writer, and so the size, is another.
    pq.write_table(rows_of(4), data_file(path, 4), compression="gzip")
    before = fingerprint(path)
    problems = _problems(lambda: OPERATIONS[operation](path))
    assert problems
    assert all("bytes" in problem and "the table" in problem for problem in problems)
    assert _log(fingerprint(path)) == _log(before)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.startswith("read")])
def test_a_file_with_another_number_of_rows_than_the_table_says_is_not_rewritten(
    path, operation, monkeypatch
):
    run_tasks_here(monkeypatch)
    expect_another_row(path)
    before = fingerprint(path)
    problems = _problems(lambda: OPERATIONS[operation](path))
    assert problems
    assert all(f"{ROWS} " in problem and f"{ROWS + 1}" in problem for problem in problems)
    assert _log(fingerprint(path)) == _log(before)


def _problems(operate) -> list[str]:
    """Return what an operation says is wrong, be it raised or reported."""
    try:
        report = operate()
    except CorruptFileError as error:
        return [error.message]
    return [error["message"] for error in report.errors if error["code"] == "CORRUPT_FILE"]


def _log(files: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in files.items() if key.startswith("_delta_log/")}
