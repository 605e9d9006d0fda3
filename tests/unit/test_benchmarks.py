"""The benchmarks' own parts: what they publish, and what they measure processes with."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from chart import picture
from goals import verdicts_on
from outcomes import Comparison, Content, Report, Result, Run
from process_tree import Watch
from publish import PAGE, PICTURE, tables, with_results

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = ROOT / "benchmarks" / "results" / "compact.json"
BEFORE = Content(files=10, bytes=1000, rows=100, digest="7")


def _result(name, *seconds, after=BEFORE, is_same_rows=True):
    runs = [Run(seconds=one, cpu_seconds=one, peak_mib=100) for one in seconds]
    return Result(name=name, runs=runs, after=after, is_same_rows=is_same_rows)


def _report(*results, name="large"):
    comparison = Comparison(name=name, remark="", before=BEFORE, results=results)
    return Report(
        taken_on="2026-11-15",
        scale=5.0,
        machine={"cores": 2, "memory_gib": 24, "load_before": 0.1},
        versions={"lakehand": "0.1.0"},
        comparisons=(comparison,),
    )


def _verdicts(report):
    return {v.goal: (v.found, v.word) for v in verdicts_on(report.comparisons[0], "lakehand-spark")}


def test_the_page_shows_the_stored_results():
    page = (ROOT / "docs" / PAGE).read_text()
    report = Report.read(PUBLISHED) if PUBLISHED.exists() else None
    assert page == with_results(page, report), "run: benchmarks/bench_compact.py --draw"
    drawn = ROOT / "docs" / PICTURE
    assert (drawn.read_text() if drawn.exists() else None) == (picture(report) if report else None)


def test_stored_results_come_back_as_they_were(tmp_path):
    report = _report(_result("lakehand-spark", 1.0, 3.0), Result(name="delta-rs", error="no"))
    report.write(tmp_path / "results" / "compact.json")
    assert Report.read(tmp_path / "results" / "compact.json") == report


def test_a_goal_is_met_at_its_limit_and_missed_beyond():
    ours, theirs = _result("lakehand-spark", 1.0, 9.0, 2.0), _result("delta-rs", 20.0)
    goal = "at least 10 times as fast as delta-rs"
    assert _verdicts(_report(ours, theirs))[goal] == ("10.0 times", "met")
    slower = _result("lakehand-spark", 2.001)
    assert _verdicts(_report(slower, theirs))[goal] == ("10.0 times", "missed")


def test_goals_of_peers_that_did_not_run_are_not_judged():
    found = _verdicts(_report(_result("lakehand-spark", 6.0), Result(name="bytes", error="no")))
    assert found["under 5 s"] == ("6.00 s", "missed")
    assert not any("copied bytes" in goal for goal in found)


def test_more_bytes_and_other_rows_are_missed_goals():
    grown = Content(files=2, bytes=1001, rows=99, digest="8")
    ours = _result("lakehand-spark", 1.0, after=grown, is_same_rows=False)
    found = _verdicts(_report(ours))
    assert found["not more bytes after than before"] == ("1 bytes more (+0.100%)", "missed")
    assert found["the same rows after as before"] == ("not equal", "missed")
    assert "**wrong: 99**" in tables(_report(ours))


def test_the_table_tells_median_worst_and_ratio():
    report = _report(_result("lakehand-spark", 1.0, 3.0, 2.0), _result("delta-rs", 50.0))
    assert "| **lakehand on Spark** | 2.00 | 3.00 | 1.0x | 2.00 | 100 |" in tables(report)
    assert "| delta-rs | 50.0 | 50.0 | 25x |" in tables(report)


def test_the_picture_has_a_bar_for_each_contender_that_ran():
    slow, failed = _result("delta-spark", 100.0), Result(name="delta-rs", error="a < b")
    root = ET.fromstring(picture(_report(_result("lakehand-spark", 1.0), slow, failed)))
    bars = [bar for bar in root.findall(".//{*}rect") if bar.get("class") != "ground"]
    ours, theirs = (float(bar.get("width")) for bar in bars)
    words = " ".join(text.text for text in root.findall(".//{*}text"))
    assert 0 < ours < theirs
    assert "100 s · 100x" in words
    assert "cannot" in words


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_work_and_memory_of_children_are_counted_also_when_they_have_ended():
    child = "import time; held = b'x' * 200_000_000; end = time.process_time() + 0.3\n"
    child += "while time.process_time() < end: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])\n"
    parent += "print('ended', flush=True); input()"
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with Watch(process.pid) as watch:
            assert process.stdout.readline() == b"ended\n"
        process.communicate(b"\n")
    assert watch.cpu_seconds >= 0.3
    assert watch.peak_rss_bytes > 200_000_000
