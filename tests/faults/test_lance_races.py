"""Others change the columns of a Lance table right before a commit of lakehand lands.

Files name columns by numbers, which Lance does not compare: rows that were written for others would
be read under whatever has their numbers by then.
"""

from __future__ import annotations

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehand.errors import RefusedError, ReplanError, SchemaMismatchError
from lakehand.formats.lance import row_commits
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


def add_new(path):
    lance.dataset(path).add_columns(pa.schema([pa.field("new", pa.string())]))


MORE = {
    **OTHERS,
    "append": lambda path: lance.write_dataset(some_rows(1, 3), path, mode="append"),
    "delete": lambda path: lance.dataset(path).delete("id = 1"),
    "compact": lambda path: lance.dataset(path).optimize.compact_files(),
    "same column": add_new,
}


def race(monkeypatch, path, other):
    """Let others change the table right before the first put; return what it is then."""
    put, found = row_commits._put, []

    def racing_put(*args):
        if not found:
            MORE[other](path)
            found.append(lance.dataset(path).to_table())
        return put(*args)

    monkeypatch.setattr(row_commits, "_put", racing_put)
    return found


def filled(rows, columns):
    for name, kind in zip(columns.names, columns.types, strict=True):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), kind))
    return rows


@pytest.mark.parametrize("epoch", [None, 1])
@pytest.mark.parametrize("other", MORE)
def test_a_new_column_holds_the_values_that_came_with_it(path, monkeypatch, other, epoch):
    found = race(monkeypatch, path, other)
    new = some_rows(2000, 2003).append_column("new", pa.array(["a", "b", "c"]))
    mark = {} if epoch is None else {"writer_id": "w", "epoch": epoch}
    try:
        open_here(path).append(new, schema_evolution=True, **mark)
    except (SchemaMismatchError, RefusedError):
        assert other in {"cast", "other columns"}
        expected = as_set(found[0])
    else:
        columns = lance.dataset(path).schema
        expected = as_set(filled(found[0], columns)) | as_set(filled(new, columns))

    assert as_set(lance.dataset(path).to_table()) == expected
    lance.dataset(path).validate()


@pytest.mark.parametrize("other", MORE)
def test_an_upsert_replaces_what_is_there_when_it_lands(path, monkeypatch, other):
    found = race(monkeypatch, path, other)
    new = some_rows(1, 3).set_column(1, "word", pa.array(["new", "new"]))
    try:
        open_here(path).upsert(new, key=["id"])
    except (ReplanError, SchemaMismatchError):
        assert other not in {"append", "delete", "compact"}
        expected = as_set(found[0])
    else:
        kept = found[0].filter(pc.invert(pc.is_in(found[0]["id"], pa.array([1, 2]))))
        expected = as_set(kept) | as_set(new)
        assert lance.dataset(path).count_rows() == kept.num_rows + 2

    assert as_set(lance.dataset(path).to_table()) == expected
    lance.dataset(path).validate()
