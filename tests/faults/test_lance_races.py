"""Others change the columns of a Lance table right before a commit of lakehand lands.

Files name columns by numbers, which Lance does not compare: rows that were written for others would
be read under whatever has their numbers by then.
"""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from lakehand.errors import SchemaMismatchError
from lakehand.formats.lance.commits import rows as row_commits
from lakehand.observe.steps import Step, listen
from support.formats import open_here, tasks_inline


@pytest.fixture(autouse=True)
def _inline():
    with tasks_inline():
        yield


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(some_rows(0, 6), path, max_rows_per_file=3)
    return path


def some_rows(start, end):
    numbers = range(start, end)
    return pa.table(
        {"id": numbers, "word": [f"w{n}" for n in numbers], "x": [n / 4 for n in numbers]}
    )


def as_set(rows):
    return {tuple(sorted(row.items())) for row in rows.to_pylist()}


def drop_and_add(path):
    lance.dataset(path).drop_columns(["x"])
    lance.dataset(path).add_columns({"x": "cast(id as double)"})


OTHERS = {
    "cast": lambda path: lance.dataset(path).alter_columns({"path": "id", "data_type": pa.int32()}),
    "add": lambda path: lance.dataset(path).add_columns({"twice": "id * 2"}),
    "drop and add": drop_and_add,
    "reordered": lambda path: lance.write_dataset(
        some_rows(500, 503).select(["x", "word", "id"]), path, mode="overwrite"
    ),
    "other columns": lambda path: lance.write_dataset(
        pa.table({"other": [7, 8]}), path, mode="overwrite"
    ),
}
VERBS = {
    "append": lambda path, rows: open_here(path).append(rows),
    "append an epoch": lambda path, rows: open_here(path).append(rows, writer_id="w", epoch=1),
    "overwrite": lambda path, rows: open_here(path).overwrite(rows),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("other", OTHERS)
def test_rows_are_written_for_the_columns_that_are_there(path, monkeypatch, verb, other):
    new, put, found = some_rows(2000, 2003), row_commits._put, []

    def racing_put(*args):
        if not found:
            OTHERS[other](path)
            found.append(lance.dataset(path).to_table())
        return put(*args)

    monkeypatch.setattr(row_commits, "_put", racing_put)
    try:
        VERBS[verb](path, new)
    except SchemaMismatchError:
        assert other in {"cast", "other columns"}
        new = new.slice(0, 0)
        expected = as_set(found[0])
    else:
        kept = set() if verb == "overwrite" else as_set(found[0])
        missing = [name for name in found[0].column_names if name not in new.column_names]
        for name in missing:
            new = new.append_column(name, pa.nulls(len(new), found[0].schema.field(name).type))
        expected = kept | as_set(new)

    assert as_set(lance.dataset(path).to_table()) == expected
    lance.dataset(path).validate()


@pytest.mark.parametrize(
    ("verb", "left"),
    [
        (lambda table: table.deduplicate(key=["id"]), [*range(9)]),
        (lambda table: table.delete(where="id >= 3"), [0, 0, 1, 1, 2, 2]),
    ],
    ids=["deduplicate", "delete"],
)
def test_rows_that_come_before_the_commit_are_looked_at_too(path, verb, left):
    open_here(path).append(some_rows(0, 3))
    arrivals = [some_rows(3, 9)]

    def append_once(step):
        if step is Step.RUN_COMMITTING and arrivals:
            lance.write_dataset(arrivals.pop(), path, mode="append")

    listen(append_once)
    try:
        verb(open_here(path))
    finally:
        listen(None)

    assert not arrivals
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == left
