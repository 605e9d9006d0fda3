"""delta-spark reads golden tables that lakehand has rewritten as it read them before."""

from __future__ import annotations

import pytest

from support.golden import ABSENT_REASON, GOLDEN, expected_of
from support.golden_copies import copy_golden, rewrite, rewritten_names

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=ABSENT_REASON)

WITH_DATA = [name for name in rewritten_names() if "data" in expected_of(name)]
#: One of each kind: types, calendars, partitions, mapping, deletion vectors, paths.
CHOSEN = [
    "data-reader-date-types-America/Los_Angeles",
    "data-reader-map",
    "data-reader-nested-struct",
    "data-reader-primitives",
    "data-skipping-basic-stats-all-types-columnmapping-id",
    "decimal-various-scale-precision",
    "dv-with-columnmapping",
    "hive/deltatbl-special-chars-in-partition-column",
    "kernel-timestamp-INT96",
    "parquet-all-types-legacy-format",
    "spark-variant-checkpoint",
    "type-widening-nested",
]
#: What the expected rows were written with.
AS_EXPECTED = {"spark.sql.jsonGenerator.ignoreNullFields": "true"}


def assert_read_as_before(oracle, name, path):
    with oracle.configured(AS_EXPECTED):
        assert oracle.rows(path) == expected_of(name)["data"]


@pytest.mark.parametrize("name", CHOSEN)
def test_delta_spark_reads_a_rewritten_golden_table_as_before(oracle, name, tmp_path):
    path = copy_golden(name, tmp_path)

    rewrite(path, "merge")
    rewrite(path, "split")

    assert_read_as_before(oracle, name, path)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in WITH_DATA if name not in CHOSEN])
def test_delta_spark_reads_every_other_rewritten_golden_table_as_before(oracle, name, tmp_path):
    path = copy_golden(name, tmp_path)
    for way in ("copy", "split", "merge"):
        rewrite(path, way)
        assert_read_as_before(oracle, name, path)
