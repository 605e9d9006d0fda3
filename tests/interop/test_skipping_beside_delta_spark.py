"""What the same questions skip after `cluster`, beside delta-spark's own clustering."""

from __future__ import annotations

import pytest

from lakehand.planning.probes import skip_rate
from support.rows import delta_table
from support.skipping_contest import by_delta_spark, by_lakehand, make_rows, questions

ROWS = 40_000
FILE_BYTES = 40_000


@pytest.mark.parametrize(
    ("columns", "spread", "way"),
    [(2, "uniform", "liquid"), (3, "skewed", "liquid"), (4, "uniform", "zorder")],
)
@pytest.mark.one_in(3)
def test_hilbert_skips_at_least_what_delta_spark_skips(oracle, tmp_path, columns, spread, way):
    rows = make_rows(ROWS, columns, spread)
    probes = questions(rows)
    theirs = by_delta_spark(
        oracle, tmp_path / "theirs", rows, probes, way=way, file_bytes=FILE_BYTES
    )

    ours = by_lakehand(tmp_path / "ours", rows, probes, curve="hilbert", files=theirs.files)

    assert theirs.files > 10
    assert ours.files <= theirs.files
    assert ours.skip_rate >= theirs.skip_rate


def test_delta_spark_reads_the_files_that_the_skip_rate_counts(oracle, tmp_path):
    rows = make_rows(ROWS, 2, "uniform")
    probes = questions(rows)
    path = tmp_path / "table"
    by_lakehand(path, rows, probes, curve="hilbert", files=12)

    files = delta_table(path).snapshot(statistics=probes.columns).files
    rates = skip_rate(files, probes).by_probe
    chosen = range(0, len(rates), 15)

    read = [len(oracle.files_read(path, where=probes.to_sql()[number])) for number in chosen]
    assert read == [round((1 - rates[number]) * files.num_rows) for number in chosen]
