"""Empty texts in partition columns are null, as tables keep them, for whoever looks at rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ConstraintError, ValidationError
from lakehand.hot import HotTable
from lakehand.model.table_head import RowRules
from lakehand.schema.conform import Conformer
from lakehand.sink import TableSink

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def make(place, schema=SCHEMA):
    return lakehand.create_table(place, schema, partition_by=["p"])


def rows(number, part=""):
    return pa.table({"id": [number], "p": [part]})


def read(place):
    found = lakehand.open_table(place).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True))


def test_they_are_refused_where_nulls_are(tmp_path):
    strict = pa.field("p", pa.string(), nullable=False)
    table = make(tmp_path, pa.schema([("id", pa.int64()), strict]))
    with pytest.raises(ConstraintError, match="holds a null, which the table forbids"):
        table.append(rows(1))
    assert read(tmp_path) == []


@pytest.mark.parametrize("empty", ["", b""], ids=["text", "binary"])
def test_they_are_null_once_they_are_in_the_table(tmp_path, empty):
    type_ = pa.array([empty]).type
    table = make(tmp_path, pa.schema([("id", pa.int64()), ("p", type_)]))
    full = {"": "x", b"": b"x"}[empty]
    table.append(pa.table({"id": [1, 2], "p": [empty, full]}))
    assert read(tmp_path) == [(1, None), (2, full)]


def test_they_are_the_same_key_as_null(tmp_path):
    table = make(tmp_path)
    for _ in range(2):
        table.upsert(rows(1), key=["id", "p"], engine="local")
    assert read(tmp_path) == [(1, None)]
    table.delete_keys(rows(1), key=["id", "p"], engine="local")
    assert read(tmp_path) == []


def test_no_row_is_of_the_part_with_empty_texts(tmp_path):
    table = make(tmp_path)
    with pytest.raises(ValidationError, match="do not fulfil"):
        table.overwrite(rows(7), where="p = ''")
    table.overwrite(rows(7), where="p IS NULL")
    table.overwrite(rows(8), where="p IS NULL")
    assert read(tmp_path) == [(8, None)]


def test_constraints_see_null():
    rules = RowRules(constraints={"known": "p IS NOT NULL"})
    conformer = Conformer(SCHEMA, table="memory://t", rules=rules, partition_columns=["p"])
    with pytest.raises(ConstraintError, match="known"):
        conformer.conform(rows(1).to_batches()[0])


def test_a_generated_one_that_cannot_stay_is_refused():
    rules = RowRules(generated={"p": "substring(name, 1, 1)"})
    schema = pa.schema([("name", pa.string()), ("p", pa.string())])
    conformer = Conformer(schema, table="memory://t", rules=rules, partition_columns=["p"])
    fitted = conformer.conform(pa.record_batch({"name": ["ab", None]}))
    assert fitted["p"].to_pylist() == ["a", None]
    with pytest.raises(ConstraintError, match="generated column 'p'"):
        conformer.conform(pa.record_batch({"name": [""]}))


def test_a_sink_and_a_hot_table_see_null_too(tmp_path):
    make(tmp_path)
    with TableSink(tmp_path, write_mode="upsert", merge_key="id,p", writer_id="w") as sink:
        for epoch in range(2):
            sink.begin_epoch(epoch)
            sink.write(rows(1))
            sink.commit_epoch()
    with HotTable(tmp_path, key=["id", "p"], hot_durability="none") as hot:
        hot.append(rows(2))
        assert hot.read(where="p IS NULL").num_rows == 2
        hot.delete(rows(1))
        assert hot.read()["id"].to_pylist() == [2]
