"""Merges: what a table is afterwards, clause by clause, in every kind of table."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import (
    ConstraintError,
    MultipleMatchesError,
    PredicateError,
    RefusedError,
    SchemaMismatchError,
    UnknownColumnError,
    ValidationError,
)
from lakehand.model.snapshot import ROW_ID
from lakehand.rows import merge_into, row_operation
from lakehand.rows.merge_matching import MergeMatchTask
from support.merges import (
    SOURCE,
    TARGET,
    MultipleMatches,
    as_source,
    in_order,
    in_table,
    make_target,
    random_merge,
    random_rows,
)
from support.small_tables import fingerprint

VECTORS, FEED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}
KINDS = {
    "rewritten": {},
    "vectors": VECTORS,
    "all": {**VECTORS, **FEED, "delta.enableRowTracking": "true"},
    "partitioned": {**VECTORS, "partition_by": "part"},
    "mapped": {**FEED, "delta.columnMapping.mode": "name"},
}


def row(id_, part="a", n=0, note=None):
    return {"id": id_, "part": part, "n": n, "note": note}


def source(*rows, kind="u"):
    return pa.Table.from_pylist([{**one, "kind": kind} for one in rows], SOURCE)


BEFORE = [row(1), row(2)], [row(3, "b"), row(4, "b", 4)]


@pytest.fixture
def path(tmp_path):
    make_target(tmp_path / "t", BEFORE, **VECTORS)
    return tmp_path / "t"


@pytest.fixture
def table(path):
    return lakehand.open_table(path, engine="local")


def check_random(path, seed, **options):
    """Compare with the model: rows, numbers, and that an error changes nothing."""
    chance = random.Random(seed)
    merge = random_merge(chance)
    files = [random_rows(chance, chance.randrange(1, 6)) for _ in range(chance.randrange(1, 4))]
    given = as_source(
        chance, random_rows(chance, chance.randrange(9), distinct=chance.random() < 0.6)
    )
    make_target(path, files, **list(KINDS.values())[seed % len(KINDS)])
    before = [one for rows in files for one in rows]
    try:
        expected = merge.model(before, given)
    except MultipleMatches:
        state = fingerprint(path)
        with pytest.raises(MultipleMatchesError):
            merge.run(path, given, **options)
        assert fingerprint(path) == state
        return
    report = merge.run(path, given, **options)
    assert in_table(path) == in_order(expected)
    assert report.rows_after - report.rows_before == len(expected) - len(before)
    assert report.rows_after == len(expected)
    assert lakehand.open_table(path).verify(deep=True).outcome == "sound"


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.one_in(12)
def test_a_merge_leaves_what_the_model_says(tmp_path, seed):
    check_random(tmp_path / "t", seed)


def test_the_first_clause_that_holds_decides(table):
    report = (
        table.merge(source(row(1, n=7), row(2, n=8), row(4, n=9)), on="t.id = s.id")
        .when_matched_delete(condition="s.n = 8")
        .when_matched_update({"n": "s.n + 1"}, condition="t.n = 0")
        .when_matched_update({"note": "'rest'"})
        .execute()
    )
    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (2, 1, 0)
    assert in_order(table.to_arrow().to_pylist()) == in_order(
        [row(1, n=8), row(3, "b"), row(4, "b", 4, "rest")]
    )


def test_conditions_are_not_evaluated_where_they_do_not_decide(table):
    """`n + 1` overflows for the largest number, of which other clauses take care."""
    most = 2**31 - 1
    given = source(row(1, n=most), row(2, n=5), row(9, n=5), row(8, n=most))
    merge = table.merge(given, on="t.id = s.id AND s.id <> 8")
    merge = merge.when_matched_delete(condition=f"s.n = {most}")
    merge = merge.when_matched_update({"n": "s.n"}, condition="s.n + 1 > t.n")
    merge = merge.when_not_matched_insert({"id": "s.id"}, condition="s.id = 8")
    report = merge.when_not_matched_insert_all(condition="s.n + 1 > 0").execute()
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 1, 2)
    table.merge(source(row(2, n=most)), on=["id"]).when_not_matched_insert_all(
        condition="s.n + 1 > 0"
    ).execute()


def test_columns_that_both_have_may_be_given_as_a_list(table):
    merge = table.merge(source(row(1, n=5), row(9, n=9)), on=["id"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert {one["id"]: one["n"] for one in table.to_arrow().to_pylist()} == {
        1: 5, 2: 0, 3: 0, 4: 4, 9: 9,
    }  # fmt: skip


def test_aliases_may_be_chosen_and_names_left_out_where_one_table_has_them(table):
    data = pa.table({"key": pa.array([1, 2]), "kind": ["u", "d"]})
    merge = table.merge(data, on="old.id = key", target_alias="old", source_alias="new")
    merge = merge.when_matched_delete(condition="kind = 'd'")
    merge.when_matched_update({"old.NOTE": "concat(new.kind, part)"}).execute()
    assert in_order(table.to_arrow(where="id < 3").to_pylist()) == in_order([row(1, note="ua")])


def test_a_condition_may_have_a_long_list_of_values(table):
    merge = table.merge(source(row(1, n=5), row(2, n=6)), on="t.id = s.id")
    merge = merge.when_matched_delete(condition=f"t.id IN ({', '.join(map(str, range(2, 90)))})")
    merge = merge.when_matched_update(
        {"n": "s.n"}, condition=f"s.n IN ({', '.join(map(str, range(90)))})"
    )
    report = merge.execute()
    assert (report.rows_deleted, report.rows_updated, report.files_scanned) == (1, 1, 1)
    assert table.to_arrow(where="id < 3").to_pylist() == [row(1, n=5)]


@pytest.mark.parametrize("alias", ["my table", "a.b", "select", "we`ird", "1"])
def test_an_alias_may_be_any_name(table, alias):
    merge = table.merge(
        source(row(1, n=5)), on=["id"], target_alias=alias, source_alias=f"{alias} s"
    )
    assert merge.when_matched_update_all().execute().rows_updated == 1


def test_the_source_may_be_a_table_and_the_same_table(table):
    merge = table.merge(table, on="t.id = s.id + 1")
    report = merge.when_matched_update({"n": "s.n + 10"}).execute()
    assert report.rows_updated == 3
    assert [one["n"] for one in sorted(table.to_arrow().to_pylist(), key=lambda r: r["id"])] == [
        0, 10, 10, 10,
    ]  # fmt: skip


def test_a_merge_may_be_executed_again_if_its_source_can_be_read_again(table, tmp_path):
    """An exhausted source has no rows, so that all of the table would be deleted."""
    other = lakehand.create_table(tmp_path / "s", TARGET, engine="local")
    other.append(pa.Table.from_pylist([row(1), row(2)], TARGET))
    merge = table.merge(other, on=["id"]).when_not_matched_by_source_delete()
    assert [merge.execute().rows_deleted for _ in range(2)] == [2, 0]

    stream = table.merge(source(row(1)).to_reader(), on=["id"]).when_not_matched_by_source_delete()
    assert stream.execute().rows_deleted == 1
    with pytest.raises(ValidationError, match="read already"):
        stream.execute()
    assert table.to_arrow()["id"].to_pylist() == [1]


def test_several_matches_of_a_row_are_an_error_that_shows_some(table, path):
    before = fingerprint(path)
    merge = table.merge(source(row(1, n=5), row(1, n=6)), on=["id"])
    with pytest.raises(MultipleMatchesError, match=r"1 of its rows.*id = 1") as caught:
        merge.when_matched_update({"n": "s.n"}).execute()
    assert caught.value.rows == 1
    with pytest.raises(MultipleMatchesError):
        merge.when_matched_delete(condition="s.n > 4").execute()
    assert fingerprint(path) == before


def test_several_matches_are_no_error_where_they_agree_or_one_acts(table):
    twice = source(row(1, n=5), row(1, n=6))
    table.merge(twice, on=["id"]).when_matched_update({"n": "s.n"}, condition="s.n = 6").execute()
    assert table.to_arrow(where="id = 1").to_pylist() == [row(1, n=6)]
    report = table.merge(twice, on=["id"]).when_matched_delete().execute()
    assert (report.rows_deleted, table.to_arrow(where="id = 1").num_rows) == (1, 0)


def test_nulls_match_nothing_unless_told_to(tmp_path):
    make_target(tmp_path / "t", [[row(None), row(1)]])
    table = lakehand.open_table(tmp_path / "t", engine="local")
    table.merge(source(row(None, n=5)), on="t.id = s.id").when_not_matched_insert_all().execute()
    assert table.to_arrow(where="id IS NULL").num_rows == 2
    report = table.merge(source(row(None)), on="t.id <=> s.id").when_matched_delete().execute()
    assert report.rows_deleted == 2


def test_rows_without_a_match_in_the_source_change_also_if_it_is_empty(table):
    merge = table.merge(source(), on=["id"])
    merge = merge.when_not_matched_by_source_delete(condition="t.part = 'b'")
    report = merge.when_not_matched_by_source_update({"n": "t.n - 1"}).execute()
    assert (report.rows_deleted, report.rows_updated) == (2, 2)
    assert in_order(table.to_arrow().to_pylist()) == in_order([row(1, n=-1), row(2, n=-1)])


def test_only_files_that_may_hold_a_row_of_interest_are_read(tmp_path):
    files = [[row(10 * n + m, n=n) for m in range(10)] for n in range(5)]
    make_target(tmp_path / "t", files)
    table = lakehand.open_table(tmp_path / "t", engine="local")

    def scanned(on, *, condition=None, dry_run=True):
        merge = table.merge(source(row(3), row(25), row(None)), on=on, dry_run=dry_run)
        merge = merge.when_matched_delete()
        if condition:
            merge = merge.when_not_matched_by_source_delete(condition=condition)
        return merge.execute().files_scanned

    assert scanned("t.id = s.id") == 2
    assert scanned("s.id + 20 = t.id") == 2
    assert scanned("t.id = s.id AND t.n > 0") == 1
    assert scanned("t.id <=> s.id") == 5
    assert scanned("t.id > s.id") == 5
    assert scanned("t.id = s.id", condition="t.n = 4") == 3
    assert scanned("t.id = s.id", condition="1 = 1") == 5


def test_a_dry_run_counts_and_writes_nothing(table, path):
    before = fingerprint(path)
    merge = table.merge(source(row(1), row(9)), on=["id"], dry_run=True)
    report = merge.when_matched_delete().when_not_matched_insert_all().execute()
    assert report.outcome == "dry_run"
    assert (report.rows_deleted, report.rows_inserted) == (1, 1)
    assert fingerprint(path) == before


def test_without_anything_to_change_nothing_is_committed(table):
    version = table.version()
    merge = table.merge(source(row(99)), on=["id"])
    report = merge.when_matched_delete().execute()
    assert (report.outcome, report.version, table.version()) == ("nothing_to_do", version, version)


def test_an_epoch_is_merged_once(table):
    def merge():
        begun = table.merge(source(row(1, n=1)), on=["id"], writer_id="w", epoch=3)
        return begun.when_matched_update({"n": "t.n + s.n"}).execute()

    assert [merge().outcome, merge().outcome] == ["committed", "nothing_to_do"]
    assert table.to_arrow(where="id = 1")["n"].to_pylist() == [1]
    assert table.transactions()["w"] == 3


def row_ids(table):
    handle = table._handle
    snapshot = handle.snapshot()
    files = handle.data_files(snapshot, list(range(snapshot.file_count)))
    rows = handle.worker(snapshot).read(files, row_identity=True).read_all()
    return dict(zip(rows["id"].to_pylist(), rows[ROW_ID].to_pylist(), strict=True))


def test_changes_are_told_and_rows_keep_their_ids(tmp_path):
    make_target(tmp_path / "t", BEFORE, **KINDS["all"])
    table = lakehand.open_table(tmp_path / "t", engine="local")
    before = row_ids(table)
    merge = table.merge(source(row(1, n=7), row(9)), on=["id"]).when_matched_update({"n": "s.n"})
    merge = merge.when_not_matched_insert_all()
    report = merge.when_not_matched_by_source_delete(condition="t.id = 2").execute()

    after = row_ids(table)
    assert {key: after[key] for key in (1, 3, 4)} == {key: before[key] for key in (1, 3, 4)}
    assert after[9] not in before.values()
    found = table.changes(from_version=report.version).read_all().to_pylist()
    assert sorted((one["_change_type"], one["id"], one["n"]) for one in found) == [
        ("delete", 2, 0), ("insert", 9, 0), ("update_postimage", 1, 7), ("update_preimage", 1, 0),
    ]  # fmt: skip


def test_the_history_says_what_delta_spark_would(table):
    merge = table.merge(source(row(1), row(9)), on="t.id = s.id")
    merge.when_matched_delete(condition="s.n = 0").when_not_matched_insert_all().execute()
    [entry] = table.history(limit=1)
    assert entry.operation == "MERGE"
    assert entry.parameters["predicate"] == '"t.id = s.id"'
    assert json.loads(entry.parameters["matchedPredicates"]) == [
        {"predicate": "s.n = 0", "actionType": "delete"}
    ]
    assert entry.metrics["numTargetRowsDeleted"] == entry.metrics["numTargetRowsInserted"] == "1"


def test_generated_columns_defaults_and_constraints_hold(tmp_path, make_ruled):
    table = make_ruled(tmp_path / "t")
    data = pa.table({"id": pa.array([1, 5]), "n": pa.array([3, 4], pa.int32())})
    merge = table.merge(data, on=["id"]).when_matched_update({"n": "s.n"})
    merge.when_not_matched_insert({"id": "s.id", "n": "s.n"}).execute()
    assert sorted((r["id"], r["n"], r["twice"]) for r in table.to_arrow().to_pylist()) == [
        (1, 3, 6), (2, 2, 4), (5, 4, 8),
    ]  # fmt: skip
    version = table.version()
    with pytest.raises(ConstraintError, match="n < 100"):
        table.merge(data, on=["id"]).when_matched_update({"n": "100"}).execute()
    with pytest.raises(ConstraintError):
        table.merge(data, on=["id"]).when_matched_update({"id": "NULL"}).execute()
    assert table.version() == version


@pytest.fixture
def make_ruled():
    """Make a table with a constraint, a generated column and one that must not be null."""

    def make(path):
        fields = [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "twice",
                "type": "integer",
                "nullable": True,
                "metadata": {"delta.generationExpression": "n * 2"},
            },
        ]
        log = path / "_delta_log"
        log.mkdir(parents=True)
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
            {
                "metaData": {
                    "id": "ruled",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": fields}),
                    "partitionColumns": [],
                    "configuration": {"delta.constraints.small": "n < 100"},
                    "createdTime": 0,
                }
            },
        ]
        text = "".join(f"{json.dumps(action)}\n" for action in actions)
        (log / f"{0:020d}.json").write_text(text)
        table = lakehand.open_table(path, engine="local")
        rows = {"id": pa.array([1, 2]), "n": pa.array([1, 2], pa.int32())}
        table.append(pa.table(rows))
        return table

    return make


def test_values_of_nested_and_odd_types_are_taken_as_they_are(tmp_path):
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(9, 2)),
            ("who", pa.struct([("name", pa.string()), ("age", pa.int32())])),
        ]
    )
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    one = {
        "id": 1,
        "tags": ["a"],
        "at": None,
        "price": Decimal("1.50"),
        "who": {"name": "x", "age": 1},
    }
    table.append(pa.Table.from_pylist([one, {**one, "id": 2}], schema))
    data = pa.table(
        {
            "id": pa.array([2, 3], pa.uint16()),
            "tags": pa.array([["n", None], []], pa.large_list(pa.large_string())),
            "at": pa.array([1_000, 2_000], pa.timestamp("ns", "UTC")),
            "price": pa.array([Decimal("2.25"), None], pa.decimal128(9, 2)),
            "who": pa.array([{"name": "y", "age": 2}, None], schema.field("who").type),
        }
    )
    merge = table.merge(data, on=["id"]).when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    found = {r["id"]: r for r in table.to_arrow().to_pylist()}
    assert (found[2]["tags"], found[2]["price"], found[2]["who"]["age"]) == (
        ["n", None], Decimal("2.25"), 2,
    )  # fmt: skip
    assert (found[3]["tags"], found[3]["who"]) == ([], None)
    assert found[1]["who"] == one["who"]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris")),
        (pa.timestamp("us", "UTC"), pa.timestamp("s", "+01:00")),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.date32(), pa.date64()),
        (pa.binary(), pa.binary(8)),
    ],
    ids=str,
)
def test_a_source_may_have_the_types_that_an_append_may_have(tmp_path, kind, given):
    data = pa.table({"id": [1, 2], "x": pa.array([0, 0], pa.int64()).view(given)})
    schema = pa.schema([("id", pa.int64()), ("x", kind)])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    table.append(data.slice(0, 1))
    before = table.to_arrow()["x"].to_pylist()
    merge = table.merge(data, on="t.id = s.id AND t.x = s.x").when_matched_update_all()
    report = merge.when_not_matched_insert_all().execute()
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert table.to_arrow()["x"].to_pylist() == before * 2


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda m: m, ValidationError, "no clause"),
        (lambda m: m.when_matched_delete().when_matched_delete(), ValidationError, "no row would"),
        (lambda m: m.when_matched_update({}), ValidationError, "assigns no column"),
        (lambda m: m.when_matched_update({"n": 1}), ValidationError, "string with an SQL"),
        (lambda m: m.when_matched_update({"n": "1", "t.N": "2"}), ValidationError, "twice"),
        (lambda m: m.when_matched_update({"no": "1"}), UnknownColumnError, "no column named 'no'"),
        (lambda m: m.when_matched_update({"n": "no"}), UnknownColumnError, "'no'"),
        (lambda m: m.when_matched_update({"n": "id"}), PredicateError, "in both tables"),
        (lambda m: m.when_matched_update({"n": "s.note"}), PredicateError, "string"),
        (lambda m: m.when_matched_update({"n": "s.n +"}), PredicateError, "cannot parse"),
        (lambda m: m.when_matched_delete(condition="s.n"), PredicateError, "true or false"),
        (lambda m: m.when_matched_delete(condition="(SELECT 1)"), PredicateError, "SELECT"),
        (
            lambda m: m.when_not_matched_insert({"id": "t.id"}),
            UnknownColumnError,
            "t.id",
        ),
        (
            lambda m: m.when_not_matched_by_source_delete(condition="s.n = 1"),
            UnknownColumnError,
            "s.n",
        ),
        (
            lambda m: m.when_matched_update_all(except_columns=["nope"]),
            UnknownColumnError,
            "nope",
        ),
    ],
)
def test_what_cannot_be_is_a_typed_error_and_changes_nothing(table, path, build, error, words):
    before = fingerprint(path)
    with pytest.raises(error, match=words):
        build(table.merge(source(row(1)), on=["id"])).execute()
    assert fingerprint(path) == before


def test_a_source_that_lacks_columns_updates_and_inserts_those_it_has(table):
    data = pa.table({"id": [1, 9], "n": pa.array([5, 6], pa.int32())})
    with pytest.raises(ValidationError, match="'part', 'note'"):
        table.merge(data, on=["id"]).when_matched_update_all().execute()
    merge = table.merge(data, on=["id"]).when_matched_update_all(except_columns=["part", "NOTE"])
    merge.when_not_matched_insert_all(except_columns=["part", "note"]).execute()
    assert in_order(table.to_arrow(where="id IN (1, 9)").to_pylist()) == in_order(
        [row(1, n=5), row(9, None, 6)]
    )


def test_a_value_that_does_not_fit_is_an_error_and_changes_nothing(table, path):
    before = fingerprint(path)
    merge = table.merge(pa.table({"id": [1], "big": [2**40]}), on=["id"])
    with pytest.raises((PredicateError, SchemaMismatchError)):
        merge.when_matched_update({"n": "s.big"}).execute()
    with pytest.raises(PredicateError):
        merge.when_matched_update({"n": "t.n + 2147483647 + 1"}).execute()
    assert fingerprint(path) == before


def test_sources_and_conditions_that_cannot_be_used_are_refused(table):
    two = pa.Table.from_arrays([pa.array([1]), pa.array([1])], names=["id", "ID"])
    with pytest.raises(ValidationError, match="more than one column named"):
        table.merge(two, on="t.id = s.id").when_matched_delete().execute()
    for on in ("", [], "   "):
        with pytest.raises(ValidationError, match="join condition"):
            table.merge(source(), on=on)
    with pytest.raises(ValidationError, match="same alias"):
        table.merge(source(), on=["id"], source_alias="T")
    with pytest.raises(ValidationError, match="rows cannot be taken"):
        table.merge(3, on=["id"]).when_matched_delete().execute()


def test_tables_that_only_grow_are_refused(tmp_path):
    make_target(tmp_path / "t", BEFORE, **{"delta.appendOnly": "true"})
    merge = lakehand.open_table(tmp_path / "t").merge(source(row(1)), on=["id"])
    with pytest.raises(RefusedError, match="appendOnly"):
        merge.when_matched_delete().execute()


def test_a_column_of_the_table_may_be_called_as_anything(tmp_path):
    schema = pa.schema([("number", pa.int64()), ("position", pa.int64()), ("v0", pa.string())])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    table.append(pa.table({"number": [1, 2], "position": [7, 8], "v0": ["a", "b"]}))
    data = pa.table({"number": [2, 3], "position": [0, 0], "v0": ["new", "new"]})
    merge = table.merge(data, on="t.`number` = s.`number`").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    assert sorted(tuple(r.values()) for r in table.to_arrow().to_pylist()) == [
        (1, 7, "a"), (2, 0, "new"), (3, 0, "new"),
    ]  # fmt: skip


def test_the_time_is_one_for_the_whole_merge(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    table.append(pa.table({"id": [1], "at": pa.array([None], schema.field("at").type)}))
    merge = table.merge(pa.table({"id": [1, 2]}), on=["id"])
    merge = merge.when_matched_update({"at": "current_timestamp()"})
    merge.when_not_matched_insert({"id": "s.id", "at": "current_timestamp()"}).execute()
    assert len(set(table.to_arrow()["at"].to_pylist())) == 1


def test_tasks_in_other_processes_find_the_same_rows(tmp_path, monkeypatch):
    for module in (row_operation, merge_into):
        monkeypatch.setattr(module, "INLINE_BYTES", -1)
    monkeypatch.setattr(MergeMatchTask, "__call__", lambda *_: pytest.fail("it ran here"))
    make_target(tmp_path / "t", BEFORE, **VECTORS)
    table = lakehand.open_table(tmp_path / "t", engine="local")
    merge = table.merge(source(row(1, n=5), row(9)), on="t.id = s.id")
    merge = merge.when_matched_update({"n": "s.n"}, condition="t.n IN (0, 1)")
    merge = merge.when_not_matched_insert_all()
    report = merge.when_not_matched_by_source_delete(condition="t.part = 'b'").execute()
    assert report.rows_deleted == 2
    assert in_table(tmp_path / "t") == in_order([row(1, n=5), row(2), row(9)])


def test_a_merge_into_lance(tmp_path):
    pytest.importorskip("lance")
    import lance

    lance.write_dataset(
        pa.Table.from_pylist([one for rows in BEFORE for one in rows], TARGET), tmp_path / "t"
    )
    table = lakehand.open_table(tmp_path / "t", engine="local")
    merge = table.merge(source(row(1, n=5), row(9)), on=["id"]).when_matched_update({"n": "s.n"})
    merge = merge.when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete(condition="t.part = 'b'").execute()
    assert in_order(lance.dataset(tmp_path / "t").to_table().to_pylist()) == in_order(
        [row(1, n=5), row(2), row(9)]
    )


AT = datetime(2020, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        (pa.array([AT, None], pa.timestamp("us", "UTC")), "t.x > TIMESTAMP'2019-12-31 00:00:00'"),
        (pa.array([AT, None], pa.timestamp("ns", "UTC")), "year(t.x) = 2020"),
        (pa.array([AT, None], pa.timestamp("s", "Europe/Paris")), "t.x <=> s.x"),
        (pa.array([AT.date(), None], pa.date32()), "t.x = DATE'2020-01-01'"),
        (pa.array([1.5, None], pa.float16()), "t.x < 2D"),
        (pa.array([2**63, None], pa.uint64()), "t.x = s.x AND t.x > 5"),
        (pa.array(["a", None], pa.large_string()), "t.x = 'a'"),
        (pa.array(["a", None]).dictionary_encode(), "t.x = 'a'"),
        (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), "s.x IS NOT NULL"),
    ],
    ids=lambda given: str(getattr(given, "type", "")),
)
def test_columns_of_lance_have_their_own_types_in_a_merge(tmp_path, values, condition):
    lance = pytest.importorskip("lance")
    rows = pa.table({"id": [1, 2], "x": values})
    lance.write_dataset(rows, tmp_path / "t")
    table = lakehand.open_table(tmp_path / "t", engine="local")
    given = pa.table({"id": [1, 2, 3], "x": values.take(pa.array([0, 0, 0]))})
    merge = table.merge(given, on=["id"]).when_matched_delete(condition="t.x IS NULL AND t.id = 1")
    merge = merge.when_matched_update_all(condition=f"t.id = 1 AND {condition}")
    report = merge.when_not_matched_insert_all().execute()
    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (1, 0, 1)
    after = lance.dataset(tmp_path / "t").to_table()
    assert after.schema.field("x").type == values.type
    one, other = values.to_pylist()
    found = dict(zip(after["id"].to_pylist(), after["x"].to_pylist(), strict=True))
    assert found == {1: one, 2: other, 3: one}
