"""A few rows tell whether a dictionary makes a column smaller, and hardly ever much wrongly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.parquet.dictionaries import columns_without_dictionary

ROWS = 200_000
#: Near the border both ways take about as much, and the wrong one may be chosen.
TOLERATED = 1.2
KINDS = {
    "int32": lambda numbers: pa.array(numbers, pa.int32()),
    "int64": lambda numbers: pa.array(numbers.astype(np.int64) * 7_919),
    "decimal": lambda numbers: pa.array(numbers, pa.int32()).cast(pa.decimal128(15, 2)),
    "timestamp": lambda numbers: pa.array(numbers * 86_400_000_000, pa.timestamp("us", "UTC")),
    "text": lambda numbers: pa.array(numbers, pa.int32()).cast(pa.string()),
    "bytes": lambda numbers: pa.array([b"%08x" % (n * 2_654_435_761 % 2**32) for n in numbers]),
}


def stored_bytes(values: pa.Array, codec: str, *, with_dictionary: bool) -> int:
    sink = pa.BufferOutputStream()
    table = pa.table({"c": values})
    pq.write_table(
        table,
        sink,
        compression=codec,
        use_dictionary=with_dictionary,
        store_decimal_as_integer=True,
        row_group_size=max(1, len(table)),
    )
    group = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0)
    return group.column(0).total_compressed_size


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("distinct", [1, 50, 3_000, 40_000, 10**9])
@pytest.mark.parametrize("kind", KINDS)
def test_the_smaller_way_is_chosen(kind, distinct, codec):
    numbers = np.random.default_rng(1).integers(0, distinct, size=ROWS)
    values = KINDS[kind](numbers)

    useless = columns_without_dictionary(pa.table({"c": values}), codec)

    plain, by_dictionary = (
        stored_bytes(values, codec, with_dictionary=wanted) for wanted in (False, True)
    )
    chosen = plain if useless else by_dictionary
    assert chosen <= TOLERATED * min(plain, by_dictionary)


@pytest.mark.parametrize("values", [pa.nulls(5), pa.array([], pa.int64()), pa.array([True, False])])
def test_nothing_is_said_of_what_has_nothing_to_say(values):
    assert not columns_without_dictionary(pa.table({"c": values}), "zstd")


def test_nulls_do_not_count_as_values():
    numbers = np.arange(ROWS, dtype=np.int64) * 7_919
    values = pa.array(numbers, mask=numbers % 10 != 0)

    assert columns_without_dictionary(pa.table({"c": values}), "zstd") == {"c"}


def test_values_in_runs_are_not_taken_for_few():
    values = np.arange(ROWS) // 4 * 7_919

    assert columns_without_dictionary(pa.table({"c": values}), "zstd") == {"c"}
