"""Minutes of writers beside maintenance, and the same without it: what does it cost them?"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from support.rows import assert_same_rows, delta_rs_rows, lakehand_rows, spark_rows
from support.table_writers import DeltaRsEngine, Model, SparkEngine, Writer, create_table, marks_in
from support.writing_beside_rewrites import Author, MaintenanceLoop, figures_of, write_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

#: With compaction, over all shapes; as long again without it.
SECONDS = float(os.environ.get("LAKEHAND_SOAK_SECONDS", "600"))
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "concurrent_writers.json"
SHAPES = {
    "partitions": {"partitioned": True, "vectors": False},
    "partitions-with-vectors": {"partitioned": True, "vectors": True},
    "whole": {"partitioned": False, "vectors": False},
    "whole-with-vectors": {"partitioned": False, "vectors": True},
}


def test_concurrent_write_and_compact_for_minutes(oracle, tmp_path):
    figures = {name: measure(oracle, tmp_path / name, **SHAPES[name]) for name in SHAPES}

    total = Counter()
    for shape in figures.values():
        total.update(shape["totals"])
    document = {"seconds": SECONDS, "totals": dict(total), "shapes": figures}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    print(RESULTS.read_text())
    assert total["commits"] >= SECONDS / 3
    assert total["conflicts"] >= SECONDS / 30
    assert total["salvages"] >= 1


def measure(oracle, folder, **shape):
    """Let writers write with lakehand and without it; return the figures of both."""
    folder.mkdir()
    seconds = SECONDS / len(SHAPES)
    with contest(oracle, folder / "beside", **shape) as authors:
        with MaintenanceLoop(folder / "beside") as lakehand:
            write_for(authors, seconds=seconds)
        overwritten = assert_nothing_lost(oracle, folder / "beside", authors)
        beside = figures_of(authors)
    with contest(oracle, folder / "alone", **shape) as authors:
        write_for(authors, seconds=seconds)
        alone = figures_of(authors)
    compaction = lakehand.figures()
    lost = compaction["groups_lost"] + compaction["runs_lost"]
    totals = {
        "commits": sum(engine["commits"] for engine in beside.values()),
        "conflicts": lost + sum(engine["attempts_lost_to_lakehand"] for engine in beside.values()),
        "salvages": compaction["salvages"],
        "overwritten_by_delta_spark": overwritten,
    }
    return {"totals": totals, "lakehand": compaction, "writers": beside, "writers_alone": alone}


@contextlib.contextmanager
def contest(oracle, place, *, partitioned, vectors):
    create_table(oracle, place, partitioned=partitioned, vectors=vectors)
    with contextlib.ExitStack() as stack:
        engines = [("delta-spark", SparkEngine(oracle, place), 0.0)]
        # delta-rs writes as if deletion vectors were not there.
        engines += [
            ("delta-rs", stack.enter_context(DeltaRsEngine(place)), 1.0)
            for _ in range(0 if vectors else 2)
        ]
        log = place / "_delta_log"
        yield [
            Author(
                engine=name,
                writer=Writer(engine=engine, log=log),
                number=number,
                rest_seconds=rest,
            )
            for number, (name, engine, rest) in enumerate(engines)
        ]


def assert_nothing_lost(oracle, place, authors):
    """Compare the table with all writes that were acknowledged.

    delta-spark looks whether a version is there and then renames its own onto it, so on a local
    disk it can overwrite a version of somebody else. Such a write is counted and left out.
    """
    acknowledged = [write for author in authors for write in author.writer.acknowledged]
    found = Counter(marks_in(place / "_delta_log"))
    assert set(found.values()) <= {1}
    assert set(found) <= {write.mark for write in acknowledged}
    model, overwritten = Model(), 0
    for write in acknowledged:
        if write.mark in found:
            model.apply(write)
        else:
            overwritten += bool(model.touched(write))
    assert_same_rows(lakehand_rows(place), model.rows())
    assert_same_rows(spark_rows(oracle, place), model.rows())
    assert_same_rows(delta_rs_rows(place), model.rows())
    return overwritten
