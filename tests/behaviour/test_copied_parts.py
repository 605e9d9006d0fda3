"""Files divided at their row groups, and crumbs recoded into a copy, hold the same rows."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lakehand.errors import ProofError
from lakehand.formats.delta.worker import DeltaWorker
from lakehand.formats.delta.write.copier import DeltaCopier
from lakehand.rewrite.run import compact
from lakehand.settings import Settings
from support.copyable_tables import append_file, copy_files, create, delete_rows
from support.rows import assert_same_rows, delta_table, lakehand_rows

FLAT = pa.schema([("id", pa.int64()), ("name", pa.string())])


def _settings(**values) -> Settings:
    return Settings({"engine": "local", **values}, environment={})


def _flat(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    names = pa.array(ids % 100, mask=ids % 7 == 0).cast(pa.string())
    return pa.table({"id": ids, "name": names}, schema=FLAT)


def _row_groups(path, file) -> list[int]:
    metadata = pq.ParquetFile(path / file).metadata
    return [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]


def _outputs(path, result) -> pa.Table:
    return pa.concat_tables([pq.read_table(path / file.path) for file in result.outputs])


def test_an_oversized_file_is_divided_without_being_decoded(tmp_path):
    table = create(tmp_path, FLAT)
    append_file(table, _flat(0, 2_400_000), row_group_rows=100_000)
    expected = lakehand_rows(tmp_path).sort_by("id")
    [size] = table.snapshot().files["bytes"].to_pylist()
    settings = _settings(target_file_bytes=size // 3, oversized_file_ratio=2.0)

    report = compact(table, settings=settings)

    assert (report.methods.copy, report.files_after, report.proof.kind) == (1, 3, "ranges")
    sizes = table.snapshot().files["bytes"].to_pylist()
    assert max(sizes) < 1.1 * min(sizes)
    assert abs(report.bytes_after - report.forecast.bytes_after) < 0.1 * report.bytes_after
    assert lakehand_rows(tmp_path).sort_by("id").equals(expected)
    assert compact(table, settings=settings).outcome == "nothing_to_do"


def test_files_are_divided_at_their_borders_where_those_are_near(tmp_path):
    table = create(tmp_path, FLAT)
    for start in range(0, 6_000, 1_000):
        append_file(table, _flat(start, 1_000), row_group_rows=250)

    result = copy_files(table, target_file_bytes=table.snapshot().files["bytes"][0].as_py() * 3)

    rows = [(file.rows, json.loads(file.native["stats"])) for file in result.outputs]
    assert [(count, s["minValues"]["id"], s["maxValues"]["id"]) for count, s in rows] == [
        (3_000, 0, 2_999),
        (3_000, 3_000, 5_999),
    ]


LEAVES = {
    "whole": lambda n: n - 5_000,
    "text": lambda n: None if n % 11 == 0 else f"{n:05d} " + "é" * 40,
    "part": lambda n: float("nan") if n == 1_500 else n / 7,
    "sum": lambda n: Decimal(n) / 100,
    "wide": lambda n: Decimal(n) / 3,
    "day": lambda n: date(2020, 1, 1) + timedelta(days=n),
    "at": lambda n: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=n * 777_777),
    "raw": lambda n: n.to_bytes(4),
    "list": lambda n: None if n % 5 == 0 else [n],
    "pair": lambda n: None if n % 3 == 0 else {"x": None if n % 2 else n},
    "none": lambda _: None,
}
TYPES = pa.schema(
    {
        "whole": pa.int64(),
        "text": pa.string(),
        "part": pa.float64(),
        "sum": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 10),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "raw": pa.binary(),
        "list": pa.list_(pa.int64()),
        "pair": pa.struct([("x", pa.int64())]),
        "none": pa.int32(),
    }
)


@pytest.fixture
def divided(tmp_path):
    """Return a file of all types in four row groups, divided into two."""
    columns = {name: [make(n) for n in range(4_000)] for name, make in LEAVES.items()}
    columns["wide"] = pc.round(pa.array(columns["wide"]), 10).to_pylist()
    table = create(tmp_path, TYPES)
    append_file(table, pa.table(columns, schema=TYPES), row_group_rows=1_000)
    size = table.snapshot().files["bytes"][0].as_py()
    return tmp_path, copy_files(table, target_file_bytes=size // 2)


def test_parts_of_a_file_have_the_statistics_of_their_rows(divided):
    path, result = divided
    assert [file.rows for file in result.outputs] == [2_000, 2_000]
    for file in result.outputs:
        stats, rows = json.loads(file.native["stats"]), pq.read_table(path / file.path)
        low, high, nulls = (stats[name] for name in ("minValues", "maxValues", "nullCount"))
        assert stats["numRecords"] == len(rows)
        for name in ("text", "part", "whole", "day", "none", "sum"):
            assert nulls[name] == rows[name].null_count
        assert nulls["pair"]["x"] == pc.struct_field(rows["pair"], "x").null_count
        ends = pc.min_max(rows["whole"]).as_py()
        assert {"min": low["whole"], "max": high["whole"]} == ends
        assert low["text"] <= pc.min(rows["text"]).as_py() <= high["text"]
        assert (low["day"], high["day"]) == tuple(
            str(end) for end in pc.min_max(rows["day"]).as_py().values()
        )


def test_bounds_that_a_footer_cannot_be_trusted_with_are_left_out(divided):
    _, result = divided
    for file in result.outputs:
        stats = json.loads(file.native["stats"])
        assert not {"wide", "raw", "list", "none"} & stats["minValues"].keys()
        # The whole file holds a NaN, which footers do not tell.
        assert "part" not in stats["maxValues"]
        assert "list" not in stats["nullCount"]


@pytest.fixture
def mixed(tmp_path):
    """Return a table of two files worth copying, three crumbs, and one with deleted rows."""
    table = create(tmp_path, FLAT, delta__enableDeletionVectors="true")
    for start in (0, 100_000):
        append_file(table, _flat(start, 100_000), row_group_rows=100_000)
    for start in (200_000, 200_050, 200_100):
        append_file(table, _flat(start, 50))
    delete_rows(table, _file_with(table, 200_050), range(0, 50, 2))
    return table


def _file_with(table, first: int) -> int:
    snapshot = table.snapshot(statistics=["id"])
    bounds = pc.struct_field(snapshot.files["bounds"].combine_chunks(), "id")
    return pc.struct_field(bounds, "min").to_pylist().index(first)


def test_crumbs_and_worn_files_are_recoded_into_the_copy_of_the_others(mixed, tmp_path):
    before = lakehand_rows(tmp_path).sort_by("id")

    report = compact(mixed, settings=_settings())

    assert (report.methods.copy, report.files_after, report.proof.kind) == (1, 1, "mixed")
    assert (report.proof.rows, report.rows_written) == (200_125, 200_125)
    [file] = mixed.snapshot().files["path"].to_pylist()
    assert _row_groups(tmp_path, file) == [100_000, 100_000, 125]
    assert lakehand_rows(tmp_path).sort_by("id").equals(before)
    assert compact(mixed, settings=_settings()).outcome == "nothing_to_do"


def test_nothing_is_left_of_the_file_that_crumbs_were_recoded_into(mixed, tmp_path):
    before = {file.name for file in tmp_path.glob("*.parquet")}

    result = copy_files(mixed, recoded=(2, 3, 4))

    new = {file.name for file in tmp_path.glob("*.parquet")} - before
    assert new == {file.path for file in result.outputs}


def test_crumbs_that_cannot_join_the_copy_have_all_recoded(tmp_path):
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    for start in (0, 1_000, 2_000):
        write_deltalake(str(tmp_path), _flat(start, 1_000).cast(required), mode="append")
    before = lakehand_rows(tmp_path)

    result = copy_files(delta_table(tmp_path), recoded=(1,))

    assert (result.method, result.proof.kind) == ("recode", "digest")
    assert_same_rows(_outputs(tmp_path, result).cast(before.schema), before)


@pytest.mark.parametrize("place", ["copied", "recoded"])
def test_a_byte_that_changed_on_its_way_is_caught(mixed, tmp_path, monkeypatch, place):
    real = DeltaCopier.copy

    @contextmanager
    def damaged(self, *args, **options):
        with real(self, *args, **options) as copies:
            [file] = copies.files
            target, ranges = tmp_path / file.staged.path, file.copied.ranges
            data = bytearray(target.read_bytes())
            data[ranges[0 if place == "copied" else -1].start + 9] ^= 1
            target.write_bytes(data)
            yield copies

    monkeypatch.setattr(DeltaCopier, "copy", damaged)
    with pytest.raises(ProofError, match="differ from their source"):
        copy_files(mixed, recoded=(2, 3, 4))


def test_a_value_that_changed_while_crumbs_were_recoded_is_caught(mixed, monkeypatch):
    real = DeltaWorker.write

    def changed(self, batches, *args, **options):
        shifted = (b.set_column(0, "id", pc.add(b.column("id"), 1)) for b in batches)
        return real(self, shifted, *args, **options)

    monkeypatch.setattr(DeltaWorker, "write", changed)
    with pytest.raises(ProofError, match="rows read have the digest"):
        copy_files(mixed, recoded=(2, 3, 4))


def test_row_ids_that_files_hold_are_copied_with_their_rows(tmp_path):
    table = create(tmp_path, FLAT, delta__enableRowTracking="true")
    for start in range(0, 4_000, 500):
        append_file(table, _flat(start, 500))
    identified = lakehand_rows(tmp_path, row_identity=True).sort_by("id")
    size = table.snapshot().files["bytes"][0].as_py()
    report = compact(table, settings=_settings(target_file_bytes=4 * size))
    assert (report.methods.recode, report.files_removed) == (2, 8)

    result = copy_files(table)

    assert (result.method, result.proof.kind) == ("copy", "ranges")
    worker = table.worker(table.snapshot())
    copied = worker.read_staged(result.outputs, row_identity=True).read_all()
    assert copied.sort_by("id").equals(identified)


def test_row_ids_that_follow_from_positions_are_not_copied(tmp_path):
    table = create(tmp_path, FLAT, delta__enableRowTracking="true")
    for start in (0, 1_000):
        append_file(table, _flat(start, 1_000))
    result = copy_files(table)

    assert (result.method, result.proof.rows) == ("recode", 2_000)


def test_rows_of_a_table_that_merely_supports_row_ids_get_fresh_ones(tmp_path):
    table = create(tmp_path, FLAT, delta__feature__rowTracking="supported")
    for start in range(0, 400_000, 100_000):
        append_file(table, _flat(start, 100_000), row_group_rows=100_000)

    report = compact(table, settings=_settings())

    assert report.methods.copy == 1
    [file] = table.data_files(table.snapshot(), [0])
    assert file.native["add"]["baseRowId"] == 400_000
    assert file.native["add"]["defaultRowCommitVersion"] == report.version
