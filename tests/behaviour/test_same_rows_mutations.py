"""An output that changes between being written and being proved is never committed."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import ProofError
from lakehand.formats.delta.write import file_schema
from lakehand.observe.steps import Step, listen
from lakehand.parquet import row_group_copy as parquet_copy
from lakehand.parquet.footer import (
    MAGIC,
    ChunkField,
    FileField,
    chunks,
    field,
    parse_footer,
    struct_list,
)
from lakehand.parquet.thrift import decode, encode
from support.exact_values import exact, exact_rows
from support.forced_compactions import compact_here
from support.rows import lakehand_rows
from support.small_tables import commit_by_hand, fingerprint

LEGACY = {
    "org.apache.spark.version": "3.5.0",
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.timeZone": "Europe/Berlin",
}
ANCIENT_DAY = -300_000
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "left": pa.string(),
        "right": pa.string(),
        "ratio": pa.float64(),
        "list": pa.list_(pa.int32()),
        "pair": pa.struct({"x": pa.int32(), "y": pa.string()}),
        "day": pa.date32(),
    }
)
KINDS = ("long", "string", "string", "double", None, None, "date")
#: Two equal rows in each file: what replaces both together, an XOR would not see.
ROWS = [
    {"id": 1, "left": "a", "right": "b", "ratio": -0.0, "list": None, "pair": None},
    {"id": 1, "left": "a", "right": "b", "ratio": -0.0, "list": None, "pair": None},
    {"id": 2, "left": "", "right": None, "ratio": 1.5, "list": [1], "pair": {"x": 1, "y": ""}},
    {"id": 3, "left": None, "right": "", "ratio": None, "list": [], "pair": {"x": None, "y": None}},
]


def delta_type(field: pa.Field, kind: str | None):
    if kind:
        return kind
    if field.name == "list":
        return {"type": "array", "elementType": "integer", "containsNull": True}
    members = [("x", "integer"), ("y", "string")]
    return {"type": "struct", "fields": [delta_field(name, kind) for name, kind in members]}


def delta_field(name, kind):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


@pytest.fixture
def path(tmp_path):
    """Three files with a page index and Spark's mark of the old calendar."""
    path = tmp_path / "t"
    (path / "_delta_log").mkdir(parents=True)
    fields = [
        delta_field(field.name, delta_type(field, kind))
        for field, kind in zip(SCHEMA, KINDS, strict=True)
    ]
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    commit_by_hand(path, {"protocol": protocol}, {"metaData": metadata})
    for number in range(3):
        add_file(path, f"part-{number}.parquet", number)
    return path


def add_file(path, name, number):
    days = pa.array([ANCIENT_DAY + number] * len(ROWS), pa.int32()).view(pa.date32())
    rows = pa.Table.from_pylist([{**row, "day": None} for row in ROWS], SCHEMA)
    write(path / name, rows.set_column(6, "day", days), LEGACY)
    add = {"path": name, "partitionValues": {}, "size": (path / name).stat().st_size}
    add |= {"modificationTime": number, "dataChange": True}
    commit_by_hand(path, {"add": {**add, "stats": json.dumps({"numRecords": len(ROWS)})}})


def write(path, rows, key_values):
    options = {"store_schema": False, "write_page_index": True, "compression": "snappy"}
    with pq.ParquetWriter(path, rows.schema, **options) as writer:
        writer.write_table(rows, row_group_size=max(1, rows.num_rows // 2))
        writer.add_key_value_metadata(key_values)


def assert_caught(path, change, *, method="recode", **settings):
    """Change the staged file when it is written, and see that the table stays as it was."""
    before = fingerprint(path)
    touched = []

    def tamper(step):
        if step is Step.TASK_WRITTEN:
            for file in path.glob("lakehand-*.parquet"):
                change(file)
                touched.append(file)

    listen(tamper)
    try:
        with pytest.raises(ProofError, match="nothing was changed"):
            compact_here(path, method=method, **settings)
    finally:
        listen(None)
    assert touched
    assert fingerprint(path) == before


def replaced(rows, name, values):
    place = rows.column_names.index(name)
    return rows.set_column(place, rows.schema.field(name), [pa.array(values, rows[name].type)])


def changed_values(name, change):
    """Return a mutation of the values of one column."""
    return lambda rows: replaced(rows, name, change(rows[name].to_pylist()))


def first_replaced(old, new):
    def change(values):
        place = values.index(old)
        return [*values[:place], new, *values[place + 1 :]]

    return change


def pair_replaced_by_another_pair(rows):
    places = [n for n, row in enumerate(exact(rows["id"])) if row == 1][:2]
    return replaced(rows, "id", [7 if n in places else v for n, v in enumerate(exact(rows["id"]))])


def two_columns_swapped(rows):
    left, right = rows["left"], rows["right"]
    return rows.set_column(1, "left", right).set_column(2, "right", left)


def a_row_dropped_and_another_doubled(rows):
    return pa.concat_tables([rows.slice(2), rows.slice(2, 2)])


def a_row_dropped(rows):
    return rows.slice(1)


def a_value_moved_to_another_row(rows):
    ids = rows["id"].to_pylist()
    here, there = ids.index(2), ids.index(3)
    ids[here], ids[there] = ids[there], ids[here]
    return replaced(rows, "id", ids)


MUTATIONS = {
    "one of two equal rows changed": changed_values("id", first_replaced(1, 7)),
    "a pair of equal rows replaced by another pair": pair_replaced_by_another_pair,
    "two columns swapped": two_columns_swapped,
    "a value moved to another row": a_value_moved_to_another_row,
    "null turned into an empty list": changed_values("list", first_replaced(None, [])),
    "an empty list turned into null": changed_values("list", first_replaced([], None)),
    "an empty list turned into one of a null": changed_values("list", first_replaced([], [None])),
    "null turned into an empty string": changed_values("right", first_replaced(None, "")),
    "an empty string turned into null": changed_values("left", first_replaced("", None)),
    "null turned into a struct of nulls": changed_values(
        "pair", first_replaced(None, {"x": None, "y": None})
    ),
    "-0.0 turned into 0.0": changed_values("ratio", first_replaced(-0.0, 0.0)),
    "null turned into NaN": changed_values("ratio", first_replaced(None, float("nan"))),
    "a row dropped": a_row_dropped,
    "a row dropped and another doubled": a_row_dropped_and_another_doubled,
    "a column left out": lambda rows: rows.drop_columns(["left"]),
    "a column under another name": lambda rows: rows.rename_columns({"left": "other"}),
}


def rewritten(mutate, *, keep_markers=True):
    """Return a change of a file in place that leaves all but its rows as they are."""

    def change(file):
        metadata = pq.read_metadata(file).metadata or {}
        markers = {key.decode(): value.decode() for key, value in metadata.items()}
        rows = mutate(pq.read_table(file))
        write(file, rows, markers if keep_markers else {})

    return change


@pytest.fixture
def unsummed(monkeypatch):
    """No checksum of indexes and footer, as if the encoder itself had written something else."""
    monkeypatch.setattr(file_schema, "_has_its_tail", lambda _store, _file: True)


@pytest.mark.usefixtures("unsummed")
@pytest.mark.parametrize("prove", ["digest", "independent"])
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_output_is_caught_and_nothing_committed(path, name, prove):
    assert_caught(path, rewritten(MUTATIONS[name]), prove=prove)


@pytest.mark.usefixtures("unsummed")
@pytest.mark.parametrize("prove", ["digest", "independent"])
def test_a_lost_calendar_marker_is_caught(path, prove):
    assert_caught(path, rewritten(lambda rows: rows, keep_markers=False), prove=prove)


@pytest.mark.usefixtures("unsummed")
def test_a_changed_calendar_marker_is_caught(path):
    def change(file):
        markers = {"org.apache.spark.version": "3.5.0"}
        write(file, pq.read_table(file), markers)

    assert_caught(path, change)


@pytest.mark.usefixtures("unsummed")
def test_the_same_rows_in_another_file_are_proved(path):
    expected = exact_rows(lakehand_rows(path))
    listen(
        lambda step: (
            [rewritten(lambda rows: rows)(file) for file in path.glob("lakehand-*.parquet")]
            if step is Step.TASK_WRITTEN
            else None
        )
    )
    try:
        report = compact_here(path, method="recode")
    finally:
        listen(None)

    assert (report.outcome, report.files_after) == ("committed", 1)
    # Its size is another one than the table says, so it is read without the table.
    [file] = path.glob("lakehand-*.parquet")
    assert exact_rows(pq.read_table(file)) == expected


@pytest.mark.parametrize("prove", ["digest", "independent", "counts"])
@pytest.mark.parametrize("index", [ChunkField.COLUMN_INDEX, ChunkField.OFFSET_INDEX])
def test_a_damaged_page_index_is_caught_though_no_row_is_read_by_it(path, index, prove):
    def change(file):
        data = bytearray(file.read_bytes())
        length = int.from_bytes(data[-8:-4], "little")
        footer = parse_footer(bytes(data[-8 - length : -8]), path="", file_bytes=len(data))
        [first, *_] = chunks(footer.row_groups[0])
        # Some way into it, where values are.
        data[field(first, index) + 4] ^= 1
        file.write_bytes(bytes(data))

    assert_caught(path, change, prove=prove)


# Copies


def edit_footer(file, edit):
    data = file.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode(data[-8 - length : -8])
    edit(footer)
    changed = encode(footer)
    file.write_bytes(data[: -8 - length] + changed + len(changed).to_bytes(4, "little") + MAGIC)


def without_markers(file):
    def edit(footer):
        footer[FileField.KEY_VALUES] = struct_list([])

    edit_footer(file, edit)


def columns_swapped(file):
    def edit(footer):
        schema = footer[FileField.SCHEMA][1][1]
        schema[2], schema[3] = schema[3], schema[2]

    edit_footer(file, edit)


def row_group_doubled(file):
    def edit(footer):
        groups = footer[FileField.ROW_GROUPS][1][1]
        groups[0] = groups[1]

    edit_footer(file, edit)


def bit_flipped(file):
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "change",
    [without_markers, columns_swapped, row_group_doubled, bit_flipped, rewritten(a_row_dropped)],
    ids=["marker lost", "columns swapped", "row group doubled", "bit flipped", "row dropped"],
)
def test_a_changed_copy_is_caught_and_nothing_committed(path, change):
    assert_caught(path, change, method="copy")


def test_a_stale_offset_index_is_caught(path, monkeypatch):
    monkeypatch.setattr(parquet_copy, "shift_offset_index", lambda data, _delta: data)
    assert_caught(path, lambda _file: None, method="copy")


def test_a_copy_keeps_the_calendar_of_its_files(path):
    report = compact_here(path, method="copy")

    [file] = path.glob("lakehand-*.parquet")
    found = pq.read_metadata(file).metadata
    assert report.methods.copy == 1
    assert {key: found[key.encode()].decode() for key in LEGACY} == LEGACY
