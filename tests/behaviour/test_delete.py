"""Deletion by a condition: rows for which it is true go, and no others, whatever the files say."""

from __future__ import annotations

import json
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.cli.main import run
from lakehand.errors import (
    PredicateError,
    ProofError,
    RefusedError,
    TaskFailedError,
    UnknownColumnError,
)
from lakehand.formats.delta.read import scanner
from support.deduplications import (
    PROPERTIES,
    append,
    contents,
    delete_inline,
    in_order,
    once_at,
    rows,
    tasks_inline,
)
from support.small_tables import fingerprint

KINDS = list(PROPERTIES)


def make(path, *batches, kind="copies", **properties):
    for batch in batches:
        append(path, rows(*batch), configuration={**PROPERTIES[kind], **properties})
    return path


#: Conditions in SQL, and what Python makes of them for (id, at, value).
CONDITIONS = {
    "id >= 3": lambda id_, _at, _value: id_ is not None and id_ >= 3,
    "id IS NULL OR at = 1": lambda id_, at, _value: id_ is None or at == 1,
    "NOT (at > 0)": lambda _id, at, _value: at is not None and at <= 0,
    "id = 1 AND value = 1": lambda id_, _at, value: id_ == 1 and value == 1,
    "true": lambda *_: True,
    "id = 77": lambda *_: False,
}
ROW = st.tuples(
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(0, 2)),
    st.integers(0, 1),
)
BATCH = st.lists(ROW, min_size=1, max_size=6)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(BATCH, min_size=1, max_size=3),
    where=st.sampled_from(list(CONDITIONS)),
    kind=st.sampled_from(KINDS),
    feed=st.sampled_from(["true", "false"]),
)
def test_exactly_the_rows_that_fulfil_the_condition_go(
    tmp_path_factory, batches, where, kind, feed
):
    path = tmp_path_factory.mktemp("t") / "t"
    make(path, *batches, kind=kind, **{"delta.enableChangeDataFeed": feed})
    every = [row for batch in batches for row in batch]
    left = in_order(row for row in every if not CONDITIONS[where](*row))

    report = delete_inline(path, where)

    assert contents(path) == left
    assert report.rows_removed == len(every) - len(left)
    assert (report.outcome == "committed") == (len(left) < len(every))


def test_files_of_which_metadata_says_all_are_dropped_unread(tmp_path):
    path = make(tmp_path / "t", [(1, 0, 0)], [(2, 0, 0), (3, 0, 0)], [(3, 1, 1)])

    report = delete_inline(path, "id >= 2")

    assert (report.rows_read, report.files_removed, report.proof) == (0, 2, None)
    assert contents(path) == [(1, 0, 0)]


def test_a_deletion_by_partition_reads_no_file(tmp_path):
    data = pa.table({"part": ["a", "b", "a"], "n": [1, 2, 3]})
    append(tmp_path / "t", data, partition_by=["part"])

    report = delete_inline(tmp_path / "t", "part = 'a'")

    assert (report.rows_removed, report.rows_read, report.files_after) == (2, 0, 1)
    assert contents(tmp_path / "t") == [("b", 2)]


def test_a_proof_beside_files_that_nobody_read_still_verifies(tmp_path):
    path = make(tmp_path / "t", [(1, 0, 0), (5, 0, 1)], [(6, 0, 0)])

    report = delete_inline(path, "id >= 5")
    found = lakehand.open_table(path, engine="local").verify(version=report.version)

    assert (report.files_removed, report.files_added, report.proof.rows) == (2, 1, 1)
    assert [check.outcome for check in found.proofs] == ["equal"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_meanwhile_and_fulfil_the_condition_go_too(tmp_path, kind):
    path = make(tmp_path / "t", [(1, 0, 0), (5, 0, 1)], kind=kind)
    late = once_at("commit", lambda: append(path, rows((5, 9, 9), (2, 9, 9))))

    delete_inline(path, "id = 5", on_progress=late)

    assert contents(path) == [(1, 0, 0), (2, 9, 9)]


def test_a_dry_run_counts_and_writes_nothing(tmp_path):
    path = make(tmp_path / "t", [(1, 0, 0), (5, 0, 1)])
    before = fingerprint(path)

    report = delete_inline(path, "id = 5", dry_run=True)

    assert (report.outcome, report.rows_removed, report.rows_after) == ("dry_run", 1, 1)
    assert fingerprint(path) == before


def test_change_files_hold_all_rows_that_went(tmp_path):
    feed = {"delta.enableChangeDataFeed": "true"}
    path = make(tmp_path / "t", [(1, 0, 0), (5, 0, 1)], [(5, 1, 2)], **feed)

    report = delete_inline(path, "id = 5")

    found = DeltaTable(str(path)).load_cdf(starting_version=report.version).read_all()
    changed = zip(*(found[name].to_pylist() for name in ("_change_type", "value")), strict=True)
    assert sorted(changed) == [("delete", 1), ("delete", 2)]
    assert report.change_files_added == 2


@pytest.mark.parametrize(
    ("where", "properties", "error"),
    [
        ("nobody = 1", {}, UnknownColumnError),
        ("id = ", {}, PredicateError),
        ("id = 1", {"delta.appendOnly": "true"}, RefusedError),
    ],
)
def test_what_cannot_be_done_changes_nothing(tmp_path, where, properties, error):
    path = make(tmp_path / "t", [(1, 0, 0)], **properties)
    before = fingerprint(path)

    with pytest.raises(error):
        delete_inline(path, where)

    assert fingerprint(path) == before


def test_the_command_prints_one_document(tmp_path, capsys):
    path = make(tmp_path / "t", [(1, 0, 0), (5, 0, 1)])

    with tasks_inline():
        code = run(["delete", str(path), "--where", "id = 5", "--engine", "local", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (code, document["operation"], document["rows_removed"]) == (0, "delete", 1)
    assert contents(path) == [(1, 0, 0)]


@pytest.mark.parametrize("prove", ["digest", "independent"])
def test_rows_that_are_misread_and_rewritten_are_found_by_a_second_decoder(
    tmp_path, monkeypatch, prove
):
    path = make(tmp_path / "t", [(1, 0, 1), (2, 0, 1), (3, 0, 1)])
    given = {file.name for file in path.glob("*.parquet")}
    real = scanner.sql_rows

    def misread(connection, request, files, paths):
        found = real(connection, request, files, paths)
        names = request.output.names
        if not {file.path for file in files} <= given or names != ["id", "at", "value"]:
            return found
        text = f"SELECT a, b, c + 1 AS c FROM ({found.text}) AS misread(a, b, c)"
        return replace(found, text=text)

    monkeypatch.setattr(scanner, "sql_rows", misread)
    table = lakehand.open_table(path)
    if prove == "digest":
        table.delete(where="id = 2", prove=prove)
        assert table.to_arrow()["value"].to_pylist() == [2, 2]
    else:
        with pytest.raises(ProofError, match="one decoder reads"):
            table.delete(where="id = 2", prove=prove)
        monkeypatch.undo()
        assert table.to_arrow().num_rows == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_one_decoder_alone_reads_loses_rows_under_the_proof_by_two(
    tmp_path, monkeypatch, kind
):
    """What is written again is read by the other one; what stays, or goes, was read correctly."""
    path = make(tmp_path / "t", [(1, 0, 1), (2, 0, 1)], [(1, 0, 1)], kind=kind)
    given = {file.name for file in path.glob("*.parquet")}
    real = scanner.sql_rows

    def untrusted(connection, request, files, paths):
        is_given = not {file.path for file in files}.isdisjoint(given)
        return None if is_given else real(connection, request, files, paths)

    monkeypatch.setattr(scanner, "sql_rows", untrusted)
    table = lakehand.open_table(path)

    # One of the files has nothing else, and goes.
    assert table.deduplicate(key=["id"], prove="independent").duplicates_removed == 1
    table.delete(where="id = 2", prove="independent")

    monkeypatch.undo()
    assert contents(path) == [(1, 0, 1)]
    proof = table.history(limit=1)[0].to_json()
    assert ("arrow/duckdb" if kind == "copies" else '"arrow"') in json.dumps(proof, default=str)


def test_that_no_decoder_has_memory_is_not_called_a_missing_decoder(tmp_path, monkeypatch):
    path = make(tmp_path / "t", [(1, 0, 1), (2, 0, 1)])

    def exhausted(*_):
        raise duckdb.OutOfMemoryException("Out of Memory Error")
        yield

    monkeypatch.setattr(scanner.Scanner, "read", exhausted)
    with tasks_inline(), pytest.raises(TaskFailedError, match="Out of Memory"):
        lakehand.open_table(path).delete(where="id = 2")
    assert len(contents(path)) == 2
