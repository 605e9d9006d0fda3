"""Shredded variants are put together as their writer took them apart."""

from __future__ import annotations

import json
import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import CorruptFileError
from lakehand.parquet.variant_shredding import reassemble, unreadable_type
from support.variant_json import variant_to_json

SCHEMAS = [
    "BIGINT",
    "VARCHAR",
    "VARCHAR[]",
    "STRUCT(a BIGINT)",
    "STRUCT(a VARCHAR, b DOUBLE, zz BOOLEAN)",
    "STRUCT(a STRUCT(b BIGINT, c VARCHAR[]), b STRUCT(a STRUCT(a VARCHAR)))",
    "STRUCT(a STRUCT(b BIGINT[])[], b VARCHAR)",
]
#: One of each type that Parquet's variants have.
EVERY_TYPE = """{
    'tiny': (-7)::TINYINT, 'small': 300::SMALLINT, 'int': -70000, 'long': 5000000000,
    'd4': 1.50::DECIMAL(9, 2), 'd8': 12345678901.5::DECIMAL(18, 1),
    'd16': -123456789012345678901234567890.12::DECIMAL(38, 2), 'f': 1.5::FLOAT, 'd': 'nan'::DOUBLE,
    'yes': true, 'day': DATE '1969-12-31', 'at': TIMESTAMP '2026-01-02 03:04:05.000006',
    'zoned': TIMESTAMPTZ '2026-01-02 03:04:05.000006+00', 'clock': TIME '03:04:05.000006',
    'fine': TIMESTAMP_NS '2026-01-02 03:04:05.000006007', 'bytes': '\\x00\\xFF'::BLOB,
    'text': 'ü', 'long text': repeat('x', 64), 'id': uuid '00112233-4455-6677-8899-aabbccddeeff',
    'nothing': NULL, 'list': [1, NULL], 'inner': {'k': ''}
}"""


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def random_document(choose, depth=0):
    kind = choose.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [random_document(choose, depth + 1) for _ in range(choose.randrange(4))]
    if kind == 7:
        names = choose.sample(["a", "b", "c", "zz", "ü", ""], choose.randrange(5))
        return {name: random_document(choose, depth + 1) for name in names}
    numbers = (choose.randrange(-(2**40), 2**40), choose.random(), choose.randrange(100))
    return [None, True, *numbers, choose.choice(["", "x" * 63, "x" * 64, "ü"])][kind]


def shred(connection, path, rows, shredding):
    """Let DuckDB write variants, and return them as Arrow reads the file."""
    options = f"FORMAT parquet, SHREDDING {{'v': '{shredding}'}}"
    connection.execute(f"COPY (SELECT v FROM {rows}) TO '{path}' ({options})")
    return pq.read_table(path)["v"].combine_chunks()


def documents(variants, values):
    pairs = zip(variants.field("metadata").to_pylist(), values.to_pylist(), strict=True)
    return [None if value is None else variant_to_json(names, value) for names, value in pairs]


@pytest.mark.parametrize("shredding", SCHEMAS)
def test_variants_shredded_by_duckdb_are_put_together_again(connection, tmp_path, shredding):
    choose = random.Random(shredding)
    objects = [
        {name: random_document(choose, 1) for name in choose.sample("ab", choose.randrange(3))}
        for _ in range(60)
    ]
    expected = [*objects, *(random_document(choose) for _ in range(60))]
    texts = pa.table({"text": [json.dumps(document) for document in expected]})
    connection.register("texts", texts)

    variants = shred(
        connection, tmp_path / "v", "(SELECT text::JSON::VARIANT AS v FROM texts)", shredding
    )

    assert pa.types.is_struct(variants.type)
    assert variants.type.get_field_index("typed_value") >= 0
    found = documents(variants, reassemble(variants))
    assert [text and json.loads(text) for text in found] == expected


def test_values_of_every_type_survive_shredding(connection, tmp_path):
    rows = f"(SELECT {EVERY_TYPE}::VARIANT AS v)"
    plain = tmp_path / "plain.parquet"
    connection.execute(f"COPY (SELECT v FROM {rows}) TO '{plain}' (FORMAT parquet)")
    kind = connection.execute(f"SELECT typeof({EVERY_TYPE})").fetchall()[0][0].replace("'", "''")
    whole = pq.read_table(plain)["v"].combine_chunks()

    variants = shred(connection, tmp_path / "v", rows, kind.replace('"NULL"', "INTEGER"))

    expected = json.loads(documents(whole, reassemble(whole))[0])
    assert len(expected) == 22
    assert json.loads(documents(variants, reassemble(variants))[0]) == expected


@pytest.mark.parametrize("count", [0, 255, 256, 30_000])
def test_objects_and_arrays_of_any_size_are_put_together(connection, tmp_path, count):
    document = {"a": list(range(count)), **{f"k{i}": "v" for i in range(min(count, 300))}}
    connection.register("texts", pa.table({"text": [json.dumps(document)]}))
    shredding = "STRUCT(a BIGINT[], k7 VARCHAR)"
    rows = "(SELECT text::JSON::VARIANT AS v FROM texts)"

    variants = shred(connection, tmp_path / "v", rows, shredding)

    assert json.loads(documents(variants, reassemble(variants))[0]) == document


NAMES = bytes([1, 2, 0, 1, 2]) + b"ab"
ONE = bytes([3 << 2, 1])
#: {"b": 1}
RESIDUAL = bytes([2, 1, 1, 0, 2]) + ONE


def group(value, typed):
    """Return a variant that is an object with a shredded field `a`."""
    field = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
    kind = pa.struct(
        [
            ("metadata", pa.binary()),
            ("value", pa.binary()),
            ("typed_value", pa.struct([("a", field)])),
        ]
    )
    return pa.array([{"metadata": NAMES, "value": value, "typed_value": typed}, None], kind)


def test_fields_that_were_not_shredded_are_joined_with_those_that_were():
    variants = group(RESIDUAL, {"a": {"value": None, "typed_value": 7}})
    assert documents(variants, reassemble(variants)) == ['{"a":7,"b":1}', None]


def test_nothing_at_all_is_a_null_of_the_variant():
    variants = group(None, None)
    assert documents(variants, reassemble(variants)) == ["null", None]


def test_an_object_without_its_only_field_is_empty():
    variants = group(None, {"a": {"value": None, "typed_value": None}})
    assert documents(variants, reassemble(variants)) == ["{}", None]


def test_a_slice_of_a_batch_is_put_together_as_the_batch():
    variants = pa.concat_arrays([group(RESIDUAL, {"a": {"typed_value": n}}) for n in range(5)])
    whole, part = reassemble(variants).to_pylist(), reassemble(variants[3:9]).to_pylist()
    assert part == whole[3:9]


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (group(ONE, {"a": {"typed_value": 1}}), "no object"),
        (group(RESIDUAL.replace(b"\x01\x01", b"\x01\x00"), {"a": {"typed_value": 1}}), "twice"),
        (group(RESIDUAL.replace(b"\x01\x01", b"\x01\x09"), {"a": {"typed_value": 1}}), "metadata"),
        (group(RESIDUAL[:3], {"a": {"typed_value": 1}}), "too early"),
        (group(None, {"a": {"value": ONE, "typed_value": 1}}), "exclude each other"),
        (group(RESIDUAL[:3] + b"\x09\x02" + ONE, {"a": {"typed_value": 1}}), "behind the end"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(variants, message):
    with pytest.raises(CorruptFileError, match=message):
        reassemble(variants)


@pytest.mark.parametrize("metadata", [b"", b"\x02\x00\x00", b"\x01\x01\x00\x09a", b"\x01\x00\x00"])
def test_metadata_that_cannot_be_read_or_lacks_a_name_is_refused(metadata):
    good = group(None, {"a": {"typed_value": 1}})
    fields = list(good.type)
    parts = [
        pa.array([metadata, None], pa.binary()),
        good.field("value"),
        good.field("typed_value"),
    ]
    with pytest.raises(CorruptFileError):
        reassemble(pa.StructArray.from_arrays(parts, fields=fields, mask=good.is_null()))


@pytest.mark.parametrize(
    ("type_", "unreadable"),
    [
        (pa.uint64(), pa.uint64()),
        (pa.struct([("a", pa.int64())]), pa.int64()),
        (pa.list_(pa.string()), pa.string()),
        (pa.struct([("a", pa.struct([("typed_value", pa.uint8())]))]), pa.uint8()),
        (pa.struct([("a", pa.struct([("typed_value", pa.date32())]))]), None),
    ],
)
def test_types_that_no_variant_has_are_found_before_rows_are_read(type_, unreadable):
    assert unreadable_type(type_) == unreadable
