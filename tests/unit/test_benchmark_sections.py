"""What the benchmarks of clustering and deduplication publish."""

from __future__ import annotations

import json

import bench_cluster
import bench_deduplicate
import bench_growth
import bench_notify
import bench_s3
import bench_skipping
import pytest
from sections import PAGE

AROUND = {"taken_on": "2026-11-16", "cores": 2, "load_before": 1.0, "rows": 12_000_000}


def content(files=10):
    return {"files": files, "bytes": 2_000_000, "rows": 12, "digest": "7"}


def result(*seconds, is_equal=True):
    runs = [{"seconds": one, "cpu_seconds": one, "peak_mib": 100} for one in seconds]
    return {"runs": runs, "after": content(7), "is_equal": is_equal}


def asked(seconds, files_read, *, is_equal=True):
    answered = {"seconds": seconds, "files_read": files_read}
    run = {"spark": answered, "duckdb": answered}
    return {"runs": [run, run], "skip_rate": 0.5, "is_equal": is_equal}


def clustered(results, queries):
    return {**AROUND, "before": content(), "results": results, "queries": queries}


@pytest.mark.parametrize(
    "section",
    [
        bench_cluster.SECTION,
        bench_deduplicate.SECTION,
        bench_growth.SECTION,
        bench_notify.SECTION,
        bench_s3.SECTION,
        bench_skipping.SECTION,
    ],
    ids=lambda section: section.name,
)
def test_the_page_shows_the_stored_results(section):
    page = PAGE.read_text()
    found = json.loads(section.results.read_text()) if section.results.exists() else None
    assert f"<!-- end of {section.name} -->" in page
    assert page == section.with_results(page, found), f"run: bench_{section.name}.py --draw"


def s3_run(moved=1e6, **kinds):
    run = {"seconds": 1.0, "cpu_seconds": 1.0, "peak_mib": 1, "requests": kinds}
    return {"runs": [{**run, "moved_bytes": moved}]}


@pytest.mark.parametrize(
    ("ours", "moved", "missed"), [(9, 1e6, 0), (10, 1e6, 1), (9, 6.553e6, 0), (9, 6.554e6, 1)]
)
def test_requests_are_fewer_and_less_than_a_twentieth_moves(ours, moved, missed):
    results = {
        "compact large": {
            "lakehand-local": s3_run(moved, GET=ours - 2, PUT=2),
            "delta-rs": s3_run(1e8, GET=10),
        }
    }
    assert len(bench_s3.missed_goals(results)) == missed


def test_listings_and_deletions_are_counted_as_such():
    assert bench_s3.kind_of("GET", "/lake?list-type=2&prefix=t%2F") == "LIST"
    assert bench_s3.kind_of("POST", "/lake?delete") == "DELETE"
    assert bench_s3.kind_of("GET", "/lake/t/prefix.parquet") == "GET"
    assert bench_s3.kind_of("POST", "/lake/t/a.parquet?uploads=") == "POST"


def test_a_shuffle_is_judged_by_the_peers_of_the_same_order():
    results = {
        "zorder lakehand-local": result(10, 30, 20),
        "shuffle lakehand-local": result(24),
        "zorder delta-rs": result(36),
        "linear lakehand-local": result(60),
    }
    words = {one.goal: one.word for one in bench_cluster.verdicts(clustered(results, {}))}
    of_lakehand = {goal.split(": ")[-1]: word for goal, word in words.items()}
    assert of_lakehand == {
        "at least 2 times as fast as delta-rs": "missed",
        "at least 1.5 times as fast as delta-rs": "met",
        "under 60 s": "missed",
        "the same rows and answers": "met",
    }


def test_queries_are_shown_for_the_table_before_and_for_every_output():
    results = {
        "zorder lakehand-spark": result(2, 4),
        "zorder delta-rs": {"error": "no", "runs": []},
    }
    queries = {"before": asked(3, 100), "zorder lakehand-spark": asked(1, 20, is_equal=False)}
    text = bench_cluster.table(clustered(results, queries))
    assert "| *before* | 10 | 50.0% | 100 | 3.00 | 3.00 | 100 | 3.00 | 3.00 | equal |" in text
    assert "| 7 | 50.0% | 20 | 1.00 | 1.00 | 20 | 1.00 | 1.00 | **not equal** |" in text
    assert "| delta-rs `z_order` | no |" in text
    assert "the same rows and answers: zorder lakehand-spark, **missed**" in text


def test_only_whole_runs_of_clustering_are_published():
    results = {bench_cluster._key(*way): result(1, 2, 3) for way in bench_cluster.WAYS}
    results["zorder delta-spark"] = result(9)
    assert bench_cluster.is_full(clustered(results, {}))
    assert not bench_cluster.is_full({**clustered(results, {}), "rows": 1000})
    assert not bench_cluster.is_full(clustered({**results, "zorder delta-rs": result(1)}, {}))
    del results["hilbert lakehand-local"]
    assert not bench_cluster.is_full(clustered(results, {}))


def test_other_rows_after_a_deduplication_are_called_so():
    first, second = list(bench_deduplicate.WAYS)[:2]
    results = {first: result(2), second: result(3, is_equal=False)}
    found = {**AROUND, "results": results}
    assert not bench_deduplicate.all_equal(found)
    assert bench_deduplicate.table(found).endswith(
        "| 3.00 | 3.00 | 1.50x | 3.0 | 100 | **not equal** |"
    )


def test_hilbert_must_skip_at_least_what_delta_spark_skips_either_way():
    rates = dict.fromkeys(bench_skipping.LABELS, 0.5)
    layouts = {name: {"files": 60, "skip_rate": rate} for name, rate in rates.items()}
    entry = {"columns": 2, "spread": "uniform", **layouts}
    worse = {**entry, "delta-spark zorder": {"files": 60, "skip_rate": 0.51}}
    assert bench_skipping.meets_goal(entry)
    assert not bench_skipping.meets_goal(worse)
    text = bench_skipping.table({**AROUND, "results": [entry, worse]})
    assert "| 2, uniform | 50.0% of 60 | 50.0% of 60 | 51.0% of 60 |" in text
    assert text.endswith("in 1 of 2 cases.")
