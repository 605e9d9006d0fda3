"""A version that is read again may list its files in another order: verdicts follow the files."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import TableError
from lakehand.formats.delta.table import DeltaTable


def rows(first):
    return pa.table({"id": list(range(first, first + 10)), "value": [first] * 10})


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table whose files come in the opposite order whenever bounds are asked for."""
    made = lakehand.create_table(tmp_path / "t", rows(0).schema)
    for first in range(0, 50, 10):
        made.append(rows(first))
    real = DeltaTable.snapshot

    def reordered(self, **options):
        found = real(self, **options)
        backwards = list(reversed(range(found.file_count)))
        return (
            replace(found, files=found.files.take(backwards))
            if options.get("statistics")
            else found
        )

    monkeypatch.setattr(DeltaTable, "snapshot", reordered)
    return made


def ids(table):
    return sorted(table.to_arrow()["id"].to_pylist())


def test_a_delete_of_whole_files_deletes_these(table):
    table.delete(where="id < 10", engine="local")
    assert ids(table) == list(range(10, 50))


def test_an_upsert_replaces_its_rows(table):
    table.upsert(pa.table({"id": [3, 100], "value": [7, 7]}), key=["id"], engine="local")
    found = {row["id"]: row["value"] for row in table.to_arrow().to_pylist()}
    assert (len(found), found[3], found[100]) == (51, 7, 7)
    assert ids(table) == [*range(50), 100]


def test_a_merge_finds_its_rows(table):
    source = pa.table({"id": [3, 41], "value": [7, 7]})
    merge = table.merge(source, on=["id"], engine="local")
    merge.when_matched_delete().when_not_matched_insert_all().execute()
    assert ids(table) == [i for i in range(50) if i not in {3, 41}]


def test_a_read_with_a_condition_finds_its_rows(table):
    assert table.to_arrow(where="id < 10")["id"].to_pylist() == list(range(10))


def test_a_version_with_other_files_when_read_again_is_an_error(table, monkeypatch):
    real = DeltaTable.snapshot

    def shorter(self, **options):
        found = real(self, **options)
        return replace(found, files=found.files.slice(1)) if options.get("statistics") else found

    monkeypatch.setattr(DeltaTable, "snapshot", shorter)
    with pytest.raises(TableError, match="was read twice"):
        table.delete(where="id < 10", engine="local")
    assert table.version() == 5
