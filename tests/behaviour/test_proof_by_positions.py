"""Rows hidden by deletion vectors: the vectors are proved, and the files are not read for it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ProofError
from lakehand.formats.delta.deletion_vectors import row_deletion
from lakehand.parquet import checksums
from lakehand.settings import Settings
from lakehand.storage import CountingStore
from lakehand.table import Table
from support.deduplications import PROPERTIES, tasks_inline

VECTORS = PROPERTIES["vectors"]
ROWS = 4_000


def wide_table(place):
    """Make a table of one file: keys of few bytes, and many that do not compress."""
    noise = np.random.default_rng(7).bytes(ROWS * 1_000)
    payload = [noise[start : start + 1_000] for start in range(0, len(noise), 1_000)]
    rows = pa.table({"id": range(ROWS), "payload": pa.array(payload, pa.binary())})
    table = lakehand.create_table(place, rows.schema, properties=VECTORS, engine="local")
    table.append(rows)
    [path] = place.glob("*.parquet")
    return path


def one_row(number=17):
    return pa.table({"id": [number], "payload": pa.array([b"new"], pa.binary())})


def counted_upsert(place, **options):
    """Upsert one row; return the report and the bytes that were read of files that were there."""
    handle = lakehand.open_table(place)._handle
    store = CountingStore(handle.store)
    names = [path.name for path in place.glob("*.parquet")]
    settings = Settings({"engine": "local", **options})
    table = Table(type(handle)(store), format_name="delta", settings=settings)
    report = table.upsert(one_row(), key=["id"])
    return report, sum(store.bytes_read_of(name) for name in names)


def test_an_upsert_reads_key_columns_and_no_others(tmp_path):
    path = wide_table(tmp_path)
    size = path.stat().st_size
    report, read = counted_upsert(tmp_path)
    assert (report.rows_updated, report.files_marked) == (1, 1)
    assert size > 4_000_000
    assert read < size / 20
    assert report.proof.kind == "mixed"
    assert lakehand.open_table(tmp_path).to_arrow()["id"].to_pylist().count(17) == 1


def test_a_local_upsert_reads_key_columns_and_no_others(tmp_path, monkeypatch):
    """DuckDB reads local files itself; what is read beside it are pages with their checksums."""
    seen = []
    real = checksums._is_intact
    monkeypatch.setattr(
        checksums,
        "_is_intact",
        lambda data, start, end: seen.append(end - start) or real(data, start, end),
    )
    path = wide_table(tmp_path)
    seen.clear()
    lakehand.open_table(tmp_path, engine="local").upsert(one_row(), key=["id"])
    assert 0 < sum(seen) < path.stat().st_size / 20


def test_a_second_decoder_is_asked_for_rows_all_the_same(tmp_path):
    size = wide_table(tmp_path).stat().st_size
    report, read = counted_upsert(tmp_path, prove="independent")
    assert (report.proof.kind, read > size) == ("digest", True)


def proof_of(place):
    return lakehand.open_table(place).history()[0].proof


def test_the_commit_says_what_is_proved_and_verify_checks_it_again(tmp_path):
    wide_table(tmp_path)
    counted_upsert(tmp_path)
    proof = proof_of(tmp_path)
    assert (proof["kind"], proof["rows"], proof["removed_rows"]) == ("mixed", ROWS, 1)
    assert len(proof["positions_digest"]) == len(proof["added_digest"]) == 32
    report = lakehand.open_table(tmp_path, engine="local").verify()
    assert (report.outcome, report.proof_outcome) == ("sound", "equal")


def test_a_delete_is_proved_by_positions_and_verified(tmp_path):
    wide_table(tmp_path)
    table = lakehand.open_table(tmp_path, engine="local")
    report = table.delete(where="id < 5 OR id = 900")
    assert (report.proof.kind, report.proof.rows) == ("positions", ROWS - 6)
    assert table.verify().proof_outcome == "equal"


@pytest.mark.parametrize("wrong", ["one more", "one less", "another", "an old one back"])
def test_a_vector_that_storage_gives_back_otherwise_stops_the_commit(tmp_path, monkeypatch, wrong):
    wide_table(tmp_path)
    table = lakehand.open_table(tmp_path, engine="local")
    table.delete(where="id = 5")
    real = row_deletion.write_deletion_vectors

    def write_others(store, bitmaps, **options):
        for bitmap in bitmaps:
            falsify(bitmap, wrong)
        return real(store, bitmaps, **options)

    monkeypatch.setattr(row_deletion, "write_deletion_vectors", write_others)
    with tasks_inline(), pytest.raises(ProofError, match="rows were to be hidden"):
        table.upsert(one_row(), key=["id"])
    assert table.snapshot().version == 2


def falsify(bitmap, wrong):
    if wrong in {"one less", "another"}:
        bitmap.remove(17)
    if wrong in {"one more", "another"}:
        bitmap.add(18)
    if wrong == "an old one back":
        bitmap.remove(5)


def test_verify_finds_a_vector_that_is_not_that_of_the_proof(tmp_path):
    wide_table(tmp_path)
    counted_upsert(tmp_path)
    commit = tmp_path / "_delta_log" / f"{2:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["lakehand"]["proof"]["positions_digest"] = "0" * 32
    commit.write_text("\n".join(map(json.dumps, lines)))
    [check] = lakehand.open_table(tmp_path, engine="local").verify(version=2).proofs
    assert (check.outcome, check.reason) == ("differs", "positions")


def test_verify_says_when_the_vector_before_is_gone(tmp_path):
    wide_table(tmp_path)
    table = lakehand.open_table(tmp_path, engine="local")
    table.delete(where="id = 5")
    [vector] = tmp_path.rglob("*.bin")
    table.delete(where="id = 6")
    vector.unlink()
    [check] = table.verify(version=3).proofs
    assert (check.outcome, check.reason) == ("cannot_compare", "inputs_gone")


def test_verify_finds_rows_that_come_back(tmp_path):
    wide_table(tmp_path)
    table = lakehand.open_table(tmp_path, engine="local")
    table.delete(where="id = 5")
    table.delete(where="id = 6")
    commit = tmp_path / "_delta_log" / f"{3:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    remove = next(line["remove"] for line in lines if "remove" in line)
    swapped = remove["deletionVector"], add["deletionVector"]
    add["deletionVector"], remove["deletionVector"] = swapped
    commit.write_text("\n".join(map(json.dumps, lines)))
    [check] = lakehand.open_table(tmp_path, engine="local").verify(version=3).proofs
    assert (check.outcome, check.reason) == ("differs", "positions")
    assert "visible again" in check.message


def test_new_rows_with_ids_of_their_own_are_not_recorded(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("payload", pa.binary())])
    properties = {**VECTORS, "delta.enableRowTracking": "true"}
    table = lakehand.create_table(tmp_path / "t", schema, properties=properties, engine="local")
    table.append(pa.table({"id": [17, 18], "payload": [b"a", b"b"]}, schema=schema))
    table.upsert(one_row(), key=["id"])
    [check] = table.verify().proofs
    assert (check.outcome, check.reason) == ("cannot_compare", "not_recorded")
