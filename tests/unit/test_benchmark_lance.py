"""What the benchmark of Lance publishes."""

from __future__ import annotations

import json

from bench_lance import CASES, SECTION, all_equal, table
from sections import PAGE


def result(*seconds, is_equal=True):
    first, *others = [{"seconds": one, "cpu_seconds": one, "peak_mib": 100} for one in seconds]
    return {"first": first, "runs": others, "is_equal": is_equal}


def found(**results):
    around = {"taken_on": "2026-11-16", "cores": 2, "load_before": 1.0}
    return around | {"fragments": 8, "rows": 80, "results": results, "scans": {"as written": [3]}}


def test_the_page_shows_the_stored_results():
    page = PAGE.read_text()
    stored = json.loads(SECTION.results.read_text()) if SECTION.results.exists() else None
    assert f"<!-- end of {SECTION.name} -->" in page
    assert page == SECTION.with_results(page, stored), "run: benchmarks/bench_lance.py --draw"


def test_each_case_is_held_against_lance_at_the_same_work():
    for case in CASES.values():
        peer = CASES[case.peer]
        assert (peer.parts, peer.contender.partition("-")[0]) == (case.parts, "lance")
        assert ("one-core" in peer.contender) == ("one-core" in case.contender)


def test_the_first_run_stands_apart_and_other_rows_are_called_so():
    counted = result(7, 1)
    results = found(one=result(9, 3, 2, 4), counts=counted, lance=result(8, 2, is_equal=False))
    text = table(results)
    # Its process has compacted before, in another case.
    assert "| 1.00 | 1.00 | 0.50x | 1.0 | 100 | | equal |" in text
    assert "| **lakehand** `compact` | 3.00 | 4.00 | 1.50x | 3.0 | 100 | 9.00 | equal |" in text
    assert "| 2.00 | 2.00 | 1.00x | 2.0 | 100 | 8.00 | **not equal** |" in text
    assert not all_equal(results)


def test_a_contender_that_failed_stands_in_the_table_with_its_words():
    text = table(found(one=result(9, 3), lance={"error": "too slow"}))
    assert "| Lance `compact_files()` | too slow |" in text
    assert "| 3.00 | 3.00 | | 3.0 |" in text
