"""Rows that come in by their keys: what is there afterwards, in every kind of table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.errors import (
    DuplicateKeyError,
    RefusedError,
    SchemaMismatchError,
    UnknownColumnError,
    ValidationError,
    WriterCollisionError,
)
from support.deduplications import PROPERTIES, contents, in_order, once_at, rows
from support.small_tables import fingerprint
from support.upserts import changelog, fed_changes, make, upsert, upserted

KINDS = list(PROPERTIES)
FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
BEFORE = [(1, 0, 0), (2, 0, 0), (3, 0, 0)], [(4, 0, 0), (5, 0, 0)]
EVERY = [row for batch in BEFORE for row in batch]

KEY = st.one_of(st.none(), st.integers(0, 6))
GIVEN = st.dictionaries(KEY, st.integers(10, 12), min_size=1, max_size=5)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(st.sets(KEY, min_size=1, max_size=4), min_size=1, max_size=3),
    rounds=st.lists(GIVEN, min_size=1, max_size=2),
    gone=st.sets(KEY, max_size=3),
    kind=st.sampled_from(KINDS),
    tracked=st.booleans(),
)
def test_a_table_is_what_a_dictionary_would_be(
    tmp_path_factory, batches, rounds, gone, kind, tracked
):
    path = tmp_path_factory.mktemp("t") / "t"
    model = {}
    files = [[(k, n, 0) for k in keys if k not in model and not model.update({k: (k, n, 0)})]
             for n, keys in enumerate(batches)]  # fmt: skip
    make(path, *filter(None, files), **PROPERTIES[kind], **(TRACKED if tracked else {}))

    for given_rows in rounds:
        report = upsert(path, [(key, 9, value) for key, value in given_rows.items()])
        updated = sum(key in model for key in given_rows)
        assert (report.rows_updated, report.rows_inserted) == (updated, len(given_rows) - updated)
        model |= {key: (key, 9, value) for key, value in given_rows.items()}
        assert contents(path) == in_order(model.values())
    if gone:
        log = changelog(*(("D", (key, None, None)) for key in gone))
        assert upsert(path, log).rows_deleted == len(gone & model.keys())
        assert contents(path) == in_order(row for key, row in model.items() if key not in gone)


@pytest.mark.parametrize("kind", KINDS)
def test_one_commit_says_all_and_its_proof_holds(tmp_path, kind):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES[kind])
    table = lakehand.open_table(path, engine="local")
    version = table.snapshot().version

    report = upsert(path, changelog(("U", (2, 1, 1)), ("D", (4, None, None)), ("I", (9, 1, 1))))

    assert contents(path) == in_order([(1, 0, 0), (2, 1, 1), (3, 0, 0), (5, 0, 0), (9, 1, 1)])
    assert (report.version, table.snapshot().version) == (version + 1, version + 1)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
    assert (report.rows_before, report.rows_after, report.rows_given) == (5, 5, 3)
    assert (report.proof.removed_rows, report.proof.added_rows) == (2, 2)
    assert (report.files_marked > 0) == (kind == "vectors")
    [check] = table.verify(version=report.version).proofs
    assert check.outcome == "equal"
    entry = table.history(limit=1)[0]
    assert (entry.operation, entry.metrics["numTargetRowsUpdated"]) == ("MERGE", "1")


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_told_completely(tmp_path, kind):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES[kind], **FEED)

    report = upsert(path, changelog(("U", (2, 1, 1)), ("D", (4, None, None)), ("I", (9, 1, 1))))

    assert fed_changes(path, report.version) == in_order(
        [
            ("update_preimage", 2, 0, 0),
            ("update_postimage", 2, 1, 1),
            ("delete", 4, 0, 0),
            ("insert", 9, 1, 1),
        ]
    )


def test_rows_that_only_come_need_no_change_files(tmp_path):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES["vectors"], **FEED)

    report = upsert(path, [(8, 1, 1)])

    assert (report.change_files_added, report.files_marked) == (0, 0)
    assert fed_changes(path, report.version) == [("insert", 8, 1, 1)]


def test_only_files_that_may_hold_a_key_are_read(tmp_path):
    path = make(tmp_path / "t", [(1, 0, 0), (9, 0, 0)], [(20, 0, 0)], [(30, 0, 0), (39, 0, 0)])

    report = upsert(path, [(9, 1, 1), (35, 1, 1), (50, 1, 1)])

    assert (report.files_scanned, report.rows_read, report.rows_inserted) == (2, 4, 2)
    assert len(contents(path)) == 7


def test_a_row_moves_to_another_partition(tmp_path):
    schema = pa.schema([("part", pa.string()), ("id", pa.int64())])
    table = lakehand.create_table(
        tmp_path / "t", schema, partition_by=["part"], properties=FEED, engine="local"
    )
    table.append(pa.table({"part": ["a", "a", "b"], "id": [1, 2, 3]}))

    report = table.upsert(pa.table({"part": ["c", None], "id": [2, 3]}), key=["id"])

    assert in_order(zip(*table.to_arrow().to_pydict().values(), strict=True)) == in_order(
        [("a", 1), ("c", 2), (None, 3)]
    )
    assert (report.rows_updated, report.rows_inserted) == (2, 0)
    found = {f["part"] for f in table.snapshot().files["partition"].to_pylist()}
    assert found == {"a", "c", None}


def test_a_key_with_its_partition_looks_into_no_other(tmp_path):
    schema = pa.schema([("part", pa.string()), ("id", pa.int64())])
    table = lakehand.create_table(tmp_path / "t", schema, partition_by=["part"], engine="local")
    table.append(pa.table({"part": ["a", "b", "c"], "id": [1, 1, 1]}))

    report = table.upsert(pa.table({"part": ["b"], "id": [1]}), key=["id", "part"])

    assert (report.files_scanned, report.rows_updated) == (1, 1)


def test_rows_of_the_table_that_share_a_key_give_way_to_one(tmp_path):
    path = make(tmp_path / "t", [(1, 0, 0), (1, 0, 1)], [(1, 0, 2), (2, 0, 0)], **FEED)

    report = upsert(path, [(1, 9, 9)])

    assert contents(path) == [(1, 9, 9), (2, 0, 0)]
    assert (report.rows_updated, report.rows_deleted) == (1, 2)
    kinds = sorted(change[0] for change in fed_changes(path, report.version))
    assert kinds == ["delete", "delete", "update_postimage", "update_preimage"]


def test_keys_may_be_texts_times_and_floats(tmp_path):
    at = pa.timestamp("us", "UTC")
    schema = pa.schema([("k", pa.string()), ("at", at), ("f", pa.float64()), ("n", pa.int64())])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    nan = float("nan")
    before = {"k": ["x" * 40, "ü", None], "at": [1, 2, 3], "f": [0.0, nan, 1.5], "n": [1, 2, 3]}
    table.append(pa.table(before, schema))

    given_rows = {**before, "f": [-0.0, nan, 1.5], "n": [10, 20, 30]}
    report = table.upsert(pa.table(given_rows, schema), key=["k", "at", "f"])

    assert (report.rows_updated, report.rows_inserted) == (3, 0)
    assert sorted(table.to_arrow()["n"].to_pylist()) == [10, 20, 30]


def test_keys_alone_delete_rows(tmp_path):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES["vectors"])
    table = lakehand.open_table(path, engine="local")

    report = table.delete_keys(pa.table({"id": [1, 4, 77]}), key=["id"])

    assert (report.operation, report.rows_deleted, report.rows_after) == ("delete_keys", 2, 3)
    assert contents(path) == [(2, 0, 0), (3, 0, 0), (5, 0, 0)]


def test_without_anything_to_change_nothing_is_committed(tmp_path):
    path = make(tmp_path / "t", *BEFORE)
    before = fingerprint(path)

    report = upsert(path, changelog(("D", (77, None, None))))

    assert (report.outcome, fingerprint(path)) == ("nothing_to_do", before)


def test_a_dry_run_counts_and_writes_nothing(tmp_path):
    path = make(tmp_path / "t", *BEFORE)
    before = fingerprint(path)

    report = upsert(path, [(1, 1, 1), (8, 1, 1)], dry_run=True)

    assert (report.outcome, report.rows_updated, report.rows_inserted) == ("dry_run", 1, 1)
    assert fingerprint(path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_meanwhile_are_found_too(tmp_path, kind):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES[kind])
    other = lakehand.open_table(path, engine="local")
    late = once_at("commit", lambda: other.append(rows((8, 5, 5), (7, 5, 5))))

    report = upsert(path, [(8, 1, 1), (2, 1, 1)], on_progress=late)

    assert contents(path) == upserted(EVERY, [(8, 1, 1), (7, 5, 5), (2, 1, 1)])
    assert (report.rows_updated, report.rows_inserted, report.retries) == (2, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_moved_meanwhile_are_found_where_they_are(tmp_path, kind):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES[kind])
    other = lakehand.open_table(path, engine="local")
    late = once_at("commit", lambda: other.compact(min_files=2))

    report = upsert(path, [(2, 1, 1), (9, 1, 1)], on_progress=late)

    assert contents(path) == upserted(EVERY, [(2, 1, 1), (9, 1, 1)])
    assert report.rows_updated == 1


def test_an_epoch_is_brought_in_once(tmp_path):
    path = make(tmp_path / "t", *BEFORE)
    mark = {"writer_id": "w", "epoch": 3}

    first = upsert(path, [(1, 1, 1)], **mark)
    upsert(path, [(1, 2, 2)])
    again = upsert(path, [(1, 1, 1)], **mark)

    gone = upsert(path, changelog(("D", (77, None, None))), writer_id="w", epoch=4)

    assert lakehand.open_table(path).transactions() == {"w": 4}
    assert (first.outcome, again.outcome, gone.outcome) == (
        "committed", "nothing_to_do", "nothing_to_do",
    )  # fmt: skip
    assert contents(path) == upserted(EVERY, [(1, 2, 2)])


def test_two_who_write_under_one_name_find_out(tmp_path):
    path = make(tmp_path / "t", *BEFORE)
    other = lakehand.open_table(path, engine="local")
    late = once_at("commit", lambda: other.append(rows((8, 5, 5)), writer_id="w", epoch=4))

    with pytest.raises(WriterCollisionError):
        upsert(path, [(1, 1, 1)], writer_id="w", epoch=5, on_progress=late)

    assert contents(path) == upserted(EVERY, [(8, 5, 5)])


BAD = {
    "unknown key": (rows((1, 1, 1)), {"key": ["nobody"]}, UnknownColumnError),
    "no key": (rows((1, 1, 1)), {"key": []}, ValidationError),
    "key as a text": (rows((1, 1, 1)), {"key": "id"}, ValidationError),
    "bookkeeping as a key": (changelog(("I", (1, 1, 1))), {"key": ["_op"]}, ValidationError),
    "key not given": (rows((1, 1, 1)).drop_columns(["id"]), {}, UnknownColumnError),
    "two rows of a key": (rows((1, 1, 1), (1, 2, 2)), {}, DuplicateKeyError),
    "row not whole": (rows((1, 1, 1)).drop_columns(["value"]), {}, SchemaMismatchError),
    "other type": (
        pa.table({"id": ["x"], "at": [1], "value": [1]}), {}, SchemaMismatchError,
    ),
    "other column": (
        rows((1, 1, 1)).append_column("more", pa.array([1])), {}, SchemaMismatchError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_changes_nothing(tmp_path, case):
    data, options, error = BAD[case]
    path = make(tmp_path / "t", *BEFORE)
    before = fingerprint(path)

    with pytest.raises(error):
        upsert(path, data, **options)

    assert fingerprint(path) == before


def test_the_error_shows_the_difference(tmp_path):
    path = make(tmp_path / "t", *BEFORE)

    with pytest.raises(SchemaMismatchError) as caught:
        upsert(path, rows((1, 1, 1)).drop_columns(["value"]))

    assert caught.value.difference == ("column 'value' is missing",)
    assert json.dumps(caught.value.to_json())


@pytest.mark.parametrize("properties", [{"delta.appendOnly": "true"}])
def test_a_table_that_allows_no_changes_is_refused(tmp_path, properties):
    path = make(tmp_path / "t", *BEFORE, **properties)

    with pytest.raises(RefusedError):
        upsert(path, [(1, 1, 1)])


def test_a_table_with_a_column_of_bookkeeping_is_refused(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("_op", pa.string())])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")

    with pytest.raises(RefusedError, match="_op"):
        table.upsert(pa.table({"id": [1], "_op": ["D"]}), key=["id"])


@pytest.mark.parametrize("form", [None, "_op", "__weight"])
def test_no_name_of_a_column_is_in_the_way(tmp_path, form):
    names = ["id", "number", "live", "__lakehand_sign", "_ts_ms", "c0", "k0"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    table.append(pa.table({name: [1, 2] for name in names}))
    given = pa.table({"id": [2, 3], **{name: [20, 30] for name in names[1:]}})
    if form is not None:
        given = given.append_column(form, pa.array({"_op": ["U", "I"], "__weight": [1, 1]}[form]))

    table.upsert(given, key=["id"])

    found = [tuple(row.values()) for row in table.to_arrow().to_pylist()]
    assert sorted(found) == [(1,) * 7, (2, *(20,) * 6), (3, *(30,) * 6)]


@pytest.mark.parametrize("name", ["__lakehand_file", "__LAKEHAND_POSITION", "__lakehand_row_id"])
def test_names_under_which_rows_are_found_are_refused(tmp_path, name):
    schema = pa.schema([("id", pa.int64()), (name, pa.int64())])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    given = pa.table({"id": [1], name: [1]})
    for call in (
        lambda: table.upsert(given, key=["id"]),
        lambda: table.delete_keys(given.select(["id"]), key=["id"]),
        lambda: table.delete(where="id = 1"),
        lambda: table.deduplicate(key=["id"]),
    ):
        with pytest.raises(RefusedError, match=f"a column '{name}'"):
            call()


def test_rows_keep_their_ids(tmp_path):
    path = make(tmp_path / "t", *BEFORE, **PROPERTIES["vectors"], **TRACKED)
    before = identities(path)

    report = upsert(path, [(2, 1, 1), (9, 1, 1)])

    after = identities(path)
    assert {k: v[0] for k, v in after.items() if k in before} == {
        k: v[0] for k, v in before.items()
    }
    assert after[9][0] not in {row_id for row_id, _ in before.values()}
    assert {k for k, v in after.items() if v[1] == report.version} == {2, 9}


def identities(path):
    """Return the id and the version of every row, by its key."""
    table = lakehand.open_table(path)._handle
    snapshot = table.snapshot()
    files = table.data_files(snapshot, range(snapshot.file_count))
    found = table.worker(snapshot).read(files, row_identity=True).read_all()
    ids, versions = (found.column(found.num_columns - n).to_pylist() for n in (2, 1))
    return dict(zip(found["id"].to_pylist(), zip(ids, versions, strict=True), strict=True))
