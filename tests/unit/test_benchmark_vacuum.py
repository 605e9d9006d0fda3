"""What the benchmark of vacuum publishes."""

from __future__ import annotations

import json

from bench_vacuum import SECTION, meets_goal, table
from sections import PAGE


def result(*seconds, peak_mib=100):
    runs = [{"seconds": one, "cpu_seconds": one, "peak_mib": peak_mib} for one in seconds]
    return {"runs": runs, "files_left": 10}


def test_the_page_shows_the_stored_results():
    page = PAGE.read_text()
    found = json.loads(SECTION.results.read_text()) if SECTION.results.exists() else None
    assert page == SECTION.with_results(page, found), "run: benchmarks/bench_vacuum.py --draw"


def test_the_goal_is_to_be_the_fastest_in_less_than_a_gigabyte():
    assert meets_goal({"lakehand-local": result(1, 9, 2), "delta-rs": result(3)})
    assert not meets_goal({"lakehand-local": result(4), "delta-rs": result(3)})
    assert not meets_goal({"lakehand-local": result(1, peak_mib=1024), "delta-rs": result(3)})


def test_a_contender_that_failed_stands_in_the_table_with_its_words():
    results = {"lakehand-local": result(2), "delta-spark": {"runs": [], "error": "too slow"}}
    found = {"taken_on": "2026-11-16", "files": 9, "cores": 2, "load_before": 1.0}
    lines = table(found | {"results": results}).splitlines()
    assert "| 2.0 | 2.0 | 1.00x |" in lines[-2]
    assert "too slow" in lines[-1]
