"""Texts of few values stay numbers from the decoder to the encoder, and nobody can tell."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakehand.formats.delta.read import sql_rows
from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.model.work import Group
from lakehand.parquet.dictionaries import dictionary_strings
from lakehand.prove.digest import Digester
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run
from support.copyable_tables import append_file, create, delete_rows

ODD = ["", "it's", 'a "b"', "null\0byte", "é\U0010ffff", "%", "NULL"]
LONG = "y" * 5_000

CASES = {
    "the same everywhere": [ODD * 40] * 4,
    "none, and many of them": [[None, *ODD] * 40, [None] * 300, ["x"] * 300],
    "none but in the first": [["a", "b"] * 100, [None, "a"] * 100],
    "others in later files": [["a", "b"] * 100, ["c", "a"] * 100, ["b", "d", None] * 100],
    "others in a row": [["a", "b"] * 5_000, ["a"] * 9_999 + ["zz"], ["b"] * 10_000],
    "many in later files": [["a"] * 300, [f"text {i}" for i in range(300)]],
    "long ones": [[LONG, "a"] * 100, ["b", LONG] * 100],
    "of one row": [["a"], ["a"], [None]],
}


def make(path, files, *, kind=None):
    kind = kind or pa.string()
    table = create(path, pa.schema({"id": pa.int64(), "text": kind, "note": pa.string()}))
    for number, texts in enumerate(files):
        ids = pa.array(range(number * 10_000, number * 10_000 + len(texts)), pa.int64())
        notes = ids.cast(pa.string()) if kind == pa.string() else ["few"] * len(ids)
        columns = {"id": ids, "text": pa.array(texts, kind), "note": notes}
        append_file(table, pa.table(columns))
    return table


def recode(table):
    """Rewrite all files of a table as one, in a task that proves it; nothing is committed."""
    snapshot = table.snapshot()
    inputs = table.data_files(snapshot, range(snapshot.file_count))
    group = Group(id=0, inputs=inputs, method="recode")
    run = Run.start(table.store, {"groups": [group.to_json()]}, snapshot=snapshot)
    spec = WriteSpec(target_file_bytes=2**30)
    task = RewriteTask(worker=table.worker(snapshot), run=run, spec=spec)
    [output] = task({"group": group.to_json()})["outputs"]
    return table.store.local_path(output["path"]), json.loads(output["native"]["stats"])


def rows_of(table):
    snapshot = table.snapshot()
    inputs = table.data_files(snapshot, range(snapshot.file_count))
    return table.worker(snapshot).read(inputs).read_all()


@pytest.mark.parametrize("guess", [None, ["a"], ["a", "b"], ["", "it's"]])
@pytest.mark.parametrize("case", CASES)
def test_all_texts_come_out_as_they_went_in(tmp_path, case, guess, monkeypatch):
    table = make(tmp_path / "table", CASES[case])
    before = rows_of(table)
    if guess is not None:
        monkeypatch.setattr(sql_rows, "dictionary_strings", lambda *_: {1: pa.array(guess)})

    path, statistics = recode(table)

    assert pq.read_table(path).cast(before.schema).equals(before)
    found = pq.read_metadata(path).row_group(0).column(1).statistics
    bounds = pc.min_max(before["text"]).as_py()
    nulls = before["text"].null_count
    assert found.null_count == statistics["nullCount"]["text"] == nulls
    if max(map(len, bounds.values())) < len(LONG):
        assert (found.min, found.max) == (bounds["min"], bounds["max"])
        assert statistics["minValues"]["text"] == bounds["min"]


@pytest.mark.parametrize("case", ["the same everywhere", "none but in the first"])
def test_files_are_the_same_bytes_as_without(tmp_path, case, monkeypatch):
    table = make(tmp_path / "table", CASES[case])
    with_numbers, _ = recode(table)

    monkeypatch.setattr(sql_rows, "dictionary_strings", lambda *_: {})
    without, _ = recode(table)

    assert with_numbers.read_bytes() == without.read_bytes()


def test_rows_that_are_deleted_stay_so(tmp_path):
    table = make(tmp_path / "table", [["a", "b", "c"] * 1_000] * 2)
    delete_rows(table, 0, range(1, 3_000, 3))
    before = rows_of(table)

    path, _ = recode(table)

    assert pq.read_table(path).cast(before.schema).equals(before)
    assert before["text"].to_pylist().count("b") == 1_000


def test_texts_beside_nested_columns_stay_texts(tmp_path):
    kind = pa.struct({"x": pa.list_(pa.int64()), "y": pa.string()})
    table = make(tmp_path / "table", [[{"x": [1, None], "y": "z"}, None] * 50] * 2, kind=kind)
    before = rows_of(table)

    path, _ = recode(table)

    assert pq.read_table(path).to_pylist() == before.to_pylist()


def test_only_columns_of_few_texts_come_as_numbers(tmp_path):
    table = make(tmp_path / "table", [ODD * 1_000])
    snapshot = table.snapshot()
    worker, inputs = table.worker(snapshot), table.data_files(snapshot, [0])

    def types(**options):
        with Digester(worker.moved_rows) as digester:
            [batch] = worker.read_digested(inputs, digester, limits=TaskLimits(), **options)
        return [str(kind) for kind in batch.schema.types]

    assert types() == ["int64", "string", "string"]
    assert types(dictionaries=True)[0::2] == ["int64", "string"]
    assert types(dictionaries=True)[1].startswith("dictionary<values=string")


def test_long_texts_are_no_numbers(tmp_path):
    """They would have no bounds in footers."""
    texts = pa.array([LONG, "a"] * 100)
    short = pa.array(["a"] * 200)
    pq.write_table(pa.table({"long": texts, "short": short}), tmp_path / "a")

    found = dictionary_strings([tmp_path / "a"], {7: 0, 8: 1})

    assert {key: values.to_pylist() for key, values in found.items()} == {8: ["a"]}


def test_texts_of_several_files_are_listed_while_they_are_few(tmp_path):
    files = {"a": range(20), "b": range(10, 30), "c": range(20), "d": range(40)}
    for name, numbers in files.items():
        pq.write_table(pa.table({"x": [str(number) for number in numbers] * 2}), tmp_path / name)

    def found(*names):
        return dictionary_strings([tmp_path / name for name in names], {0: 0})

    assert found("a", "b", "c")[0].to_pylist() == [str(number) for number in range(30)]
    assert not found("a", "d", "c")
    assert not dictionary_strings([tmp_path / "a"], {})
