"""Any table, of any types, from any writers, holds the same rows after a compaction."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.exact_values import exact_rows
from support.forced_compactions import compact_here
from support.plain_reader import live_adds, plain_rows, rows_of_file
from support.random_tables import TRAITS, make_random_table
from support.rows import lakehand_rows
from support.true_statistics import assert_true_statistics

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
TARGETS = st.sampled_from([1_500, 4_000, 2**27])
METHODS = st.sampled_from(["recode", "copy"])


def assert_same_rows_after_compaction(traits, target, method):
    with tempfile.TemporaryDirectory() as directory:
        table = make_random_table(Path(directory) / "t", traits)
        expected = Counter(table.rows)
        assert plain_rows(table) == expected
        before = {add["path"] for add in live_adds(table.path)}

        # A low ratio has files divided, too.
        ratios = {"oversized_file_ratio": 2.0}
        compact_here(table.path, target_file_bytes=target, method=method, **ratios)

        assert plain_rows(table) == expected
        seen = lakehand_rows(table.path, row_identity=traits.tracks_rows)
        assert exact_rows(seen) == expected
        new = [add for add in live_adds(table.path) if add["path"] not in before]
        for add in new:
            rows = rows_of_file(table, add)
            assert rows, "a file without rows"
            if method == "recode":
                is_legacy = "org.apache.spark.legacyDateTime" in traits.markers
                assert_true_statistics(
                    add["stats"], table.columns, rows, table.mode, is_legacy=is_legacy
                )
        if target == 2**27:
            again = compact_here(table.path, target_file_bytes=target, method=method)
            assert again.outcome == "nothing_to_do"


@settings(max_examples=25, suppress_health_check=SLOW)
@given(traits=TRAITS, target=TARGETS, method=METHODS)
def test_compaction_keeps_every_row_of_any_table(traits, target, method):
    assert_same_rows_after_compaction(traits, target, method)


@pytest.mark.soak
@settings(max_examples=1_000, suppress_health_check=SLOW)
@given(traits=TRAITS, target=TARGETS, method=METHODS)
def test_compaction_keeps_every_row_of_very_many_tables(traits, target, method):
    assert_same_rows_after_compaction(traits, target, method)
