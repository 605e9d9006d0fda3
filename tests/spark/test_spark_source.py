"""Spark reads and writes tables through `format("lakehand")` and `to_spark`, without any jar."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand.formats.scan import plan_scan
from support import spark_tables
from support.golden import ABSENT_REASON, GOLDEN
from support.spark_tables import every_type

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"


def sorted_rows(table):
    return sorted(map(repr, table.to_pylist()))


def files_in(place):
    return {path.relative_to(place) for path in place.rglob("*.parquet")}


@pytest.mark.only_on("spark", "cluster", "connect")
@pytest.mark.one_in(3)
def test_values_of_every_type_come_back_as_they_went_in(host, tmp_path):
    place = tmp_path / "t"
    host.call(spark_tables.write, every_type(), place, "append", {"partition_by": "part"})

    model, *found = host.call(spark_tables.described, every_type(), place)
    assert [one["types"] for one in found] == [model["types"]] * 2
    assert [one["rows"] for one in found] == [model["rows"]] * 2
    assert lakehand.open_table(place).snapshot().version == 1


@pytest.mark.only_on("spark")
def test_an_overwrite_takes_the_place_of_all_or_of_one_part(host, tmp_path):
    place = tmp_path / "t"
    rows = "SELECT id, CAST(id % 2 AS STRING) AS part FROM range({}, {})"
    host.call(spark_tables.write, rows.format(0, 100), place, "append", {"partition_by": "part"})
    host.call(spark_tables.write, rows.format(0, 10), place, "overwrite")
    assert sorted(host.call(spark_tables.read, place)["id"].to_pylist()) == list(range(10))

    some = f"{rows.format(20, 30)} WHERE id % 2 = 1"
    host.call(spark_tables.write, some, place, "overwrite", {"where": "part = '1'"})
    ids = [*range(0, 10, 2), *range(21, 30, 2)]
    assert sorted(host.call(spark_tables.read, place)["id"].to_pylist()) == ids


@pytest.mark.only_on("spark")
def test_a_batch_with_a_writer_id_and_an_epoch_is_written_once(host, tmp_path):
    place = tmp_path / "t"
    options = {"writer_id": "nightly", "epoch": "7"}
    for _ in range(2):
        host.call(spark_tables.write, "SELECT id FROM range(10)", place, "append", options)

    table = lakehand.open_table(place)
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(10))
    assert table.transactions() == {"nightly": 7}
    assert len(files_in(place)) == table.snapshot().file_count


@pytest.mark.only_on("spark")
def test_columns_rows_and_versions_are_chosen_before_files_are_read(host, tmp_path):
    place = tmp_path / "t"
    for first in (0, 100, 200):
        rows = f"SELECT id, id * 2 AS twice FROM range({first}, {first + 100}, 1, 1)"
        host.call(spark_tables.write, rows, place)
    chosen = {"columns": "twice", "where": "id >= 150 AND id < 160"}

    expected = [2 * i for i in range(150, 160)]
    found = host.call(spark_tables.read, place, chosen)
    assert (found.schema.names, sorted(found["twice"].to_pylist())) == (["twice"], expected)
    # One file alone can hold such rows: were the others read, they would be missed now.
    wanted = plan_scan(lakehand.open_table(place)._handle, where="id = 150").files
    assert (len(wanted), len(files_in(place))) == (1, 3)
    for path in place.glob("*.parquet"):
        if path.name != wanted[0].path:
            path.unlink()
    frame = {"columns": ["twice"], "where": "id >= 150 AND id < 160"}
    assert sorted(host.call(spark_tables.to_spark, place, frame)["twice"].to_pylist()) == expected
    for when in ({"version": "2"}, {"versionAsOf": "2"}):
        found = host.call(spark_tables.read, place, chosen | when)
        assert sorted(found["twice"].to_pylist()) == expected
    assert host.call(spark_tables.read, place, {"version": "0"}).num_rows == 0


@pytest.mark.only_on("spark")
def test_a_frame_keeps_the_version_that_it_was_made_from(host, tmp_path):
    place, rows = tmp_path / "t", "SELECT id FROM range(10)"
    host.call(spark_tables.write, rows, place)

    assert host.call(spark_tables.read_twice_around, place, rows) == [10, 10]
    assert host.call(spark_tables.read, place).num_rows == 20


GOLDEN_TABLES = (
    "dv-partitioned-with-checkpoint",
    "dv-with-columnmapping",
    "table-with-columnmapping-mode-id",
    "data-reader-timestamp_ntz-name-mode",
    "data-reader-partition-values",
    "kernel-timestamp-INT96",
    "parquet-all-types",
    "type-widening",
)


@pytest.mark.only_on("spark")
@pytest.mark.skipif(not GOLDEN.exists(), reason=ABSENT_REASON)
def test_tables_that_spark_alone_cannot_read_are_read_by_its_tasks(host):
    for name in GOLDEN_TABLES:
        place = GOLDEN / "tables" / name
        model = lakehand.open_table(place).to_arrow()
        assert model.num_rows > 0, name
        assert sorted_rows(host.call(spark_tables.to_spark, place, {})) == sorted_rows(model), name


@pytest.mark.only_on("spark")
def test_the_examples_of_the_guide_work(host, tmp_path):
    pieces = re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    feed = {"delta.enableChangeDataFeed": "true"}
    table = lakehand.create_table(
        tmp_path / "orders", schema, partition_by=["day"], properties=feed
    )
    table.append(pa.table({"id": [1, 2], "day": ["mon", "tue"]}))
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "1.json").write_text('{"id": 9, "day": "sun"}')

    host.call(spark_tables.run, "\n".join(pieces).replace("path/to", str(tmp_path)))

    # Appended, then those of Tuesday replaced by one, then appended once more, then the stream's.
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 7, 7, 8, 8, 9]


BAD_WRITES = {
    "SchemaMismatchError: these rows do not fit": ("SELECT id AS colour FROM range(3)", {}),
    "SchemaMismatchError: column 'v' is of type variant": (
        "SELECT id, parse_json('1') AS v FROM range(3)",
        {},
    ),
    "UnknownSettingError: there is no option 'partitions'": (
        "SELECT id FROM range(3)",
        {"partitions": "id"},
    ),
    "two options: writer_id and epoch": ("SELECT id FROM range(3)", {"writer_id": "w"}),
    "register LakehandSource.with_storage_options": (
        "SELECT id FROM range(3)",
        {"storage.secret": "x"},
    ),
}


@pytest.mark.only_on("spark")
def test_bad_writes_are_refused_in_words_and_leave_nothing(host, tmp_path):
    place = tmp_path / "t"
    host.call(spark_tables.write, "SELECT id FROM range(10)", place)
    before = files_in(place)
    for message, (query, options) in BAD_WRITES.items():
        said = host.call(spark_tables.write_or_say_why_not, query, place, "append", options)
        assert message in (said or "no error")
    assert files_in(place) == before
    assert lakehand.open_table(place).to_arrow().num_rows == 10


@pytest.mark.only_on("spark")
def test_files_of_tasks_that_ended_well_are_deleted_when_another_one_fails(host, tmp_path):
    place = tmp_path / "t"
    host.call(spark_tables.write, "SELECT id FROM range(10)", place)
    before = files_in(place)
    # It fails late, when the others have ended: Spark kills those that have not, and their files
    # are left to vacuum.
    late = "reflect('java.lang.Thread', 'sleep', 3000L)"
    failing = f"raise_error(concat('no such row', {late}))"
    query = f"SELECT IF(id = 30, {failing}, id) AS id FROM range(0, 40, 1, 4)"

    said = host.call(spark_tables.write_or_say_why_not, query, place)

    assert "no such row" in said
    assert files_in(place) == before
    assert lakehand.open_table(place).to_arrow().num_rows == 10


@pytest.mark.only_on("spark")
def test_files_of_a_killed_task_are_deleted_with_the_commit(host, tmp_path):
    place, trace = tmp_path / "t", tmp_path / "killed"
    query = "SELECT id FROM range(0, 40, 1, 2)"

    host.call(spark_tables.write_with_a_killed_task, query, place, trace)

    table = lakehand.open_table(place)
    assert trace.exists()
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(40))
    assert {str(path) for path in files_in(place)} == {*table.snapshot().files["path"].to_pylist()}


@pytest.mark.only_on("spark")
def test_spark_writes_and_reads_on_s3_and_shows_no_secret(host, s3_server):
    uri = s3_server.new_uri()
    query = "SELECT id FROM range(100)"
    host.call(spark_tables.write, query, uri, "append", {}, s3_server.options)

    found = host.call(spark_tables.read, uri, {}, s3_server.options)
    assert sorted(found["id"].to_pylist()) == list(range(100))
    events = "".join(path.read_text() for path in host.folder.glob("events/*") if path.is_file())
    assert "lakehand" in events
    secrets = [value for name, value in s3_server.options.items() if "secret" in name]
    assert secrets
    assert not [secret for secret in secrets if json.dumps(secret)[1:-1] in events]
