"""The return on jobs: cost against measured benefit, and thresholds that follow from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehand.service.config import parse_config
from lakehand.service.config_sections import CostsSection
from lakehand.service.returns import (
    JobReturn,
    raised_by,
    read_return_summary,
    read_returns,
    saved_by,
)
from lakehand.service.scores import Limits, TableNumbers, score_table
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from support.job_stores import add_pool, add_tables, claim_by, request

#: A core second costs 1, and so do 60 s of reading.
COSTS = CostsSection(core_hour=3600.0, gib_month=0.0)
DAY = 86_400.0


@pytest.fixture
def table(database):
    add_pool(database)
    return add_tables(database, 1)[0]


def run_job(database, table, *, files, spent, state="succeeded"):
    """Run a job that saves files and costs something."""
    queue = JobQueue(database)
    queue.enqueue(request(table))
    job = queue.claim(claim_by())
    report = {"files_before": 100, "files_after": 100 - files}
    report |= {"bytes_before": 1000, "bytes_after": 1000}
    end = AttemptEnd(outcome="committed", report=report, spent={"cost": spent, "core_seconds": 1.0})
    if state == "slice":
        queue.requeue(job.id, job.fence, end, waits_for="turn", counts=False)
    else:
        queue.finish(job.id, job.fence, end, state=state)
    return job.id


def test_a_job_is_worth_what_readers_save_until_the_next_one(database, table, clock):
    first = run_job(database, table, files=50, spent=10.0)
    clock.advance(2 * DAY)
    second = run_job(database, table, files=10, spent=10.0)
    clock.advance(DAY / 2)
    newest, oldest = read_returns(database, table, COSTS)
    assert (newest.job, newest.is_open, oldest.job, oldest.is_open) == (second, True, first, False)
    # 50 files, each 20 ms to open, 24 reads a day, two days.
    assert oldest.benefit == pytest.approx(50 * 0.02 * 24 * 2)
    assert oldest.value == pytest.approx(48 - 10)
    assert newest.benefit == pytest.approx(10 * 0.02 * 24 / 2)
    assert newest.to_json()["return"] == pytest.approx(2.4 - 10)


def test_what_is_read_more_often_is_worth_more(database, table, clock):
    run_job(database, table, files=50, spent=10.0)
    clock.advance(2 * DAY)
    (usual,) = read_returns(database, table, COSTS)
    (important,) = read_returns(database, table, COSTS, importance=8.0)
    assert important.benefit == pytest.approx(8 * usual.benefit)
    (named,) = read_return_summary(
        database, COSTS, importance_of=lambda url, _: 8.0 if url else 1.0
    ).tables
    assert named.benefit == pytest.approx(8 * usual.benefit)


def test_slices_of_one_job_count_together(database, table, clock):
    run_job(database, table, files=5, spent=1.0, state="slice")
    clock.advance(1)
    run_job(database, table, files=7, spent=2.0)
    clock.advance(DAY)
    (one,) = read_returns(database, table, COSTS)
    assert (one.files_saved, one.cost, one.core_seconds) == (12, 3.0, 2.0)
    assert one.days == pytest.approx(1.0)


def test_three_negative_returns_in_a_row_double_the_thresholds(database, table, clock):
    raised = []
    for _ in range(8):
        run_job(database, table, files=1, spent=100.0)
        clock.advance(60)
        raised.append(raised_by(read_returns(database, table, COSTS)))
    # The newest is not counted yet: its benefit may still come.
    assert raised == [1, 1, 1, 2, 2, 2, 4, 4]
    run_job(database, table, files=90, spent=0.001)
    clock.advance(DAY)
    assert raised_by(read_returns(database, table, COSTS)) == 1, "one that pays ends it"


def test_raised_thresholds_keep_a_table_from_being_due():
    numbers = TableNumbers(
        file_count=20, total_bytes=20, small_file_count=15, small_bytes=15, excess_file_count=14,
        most_in_partition=15,
    )  # fmt: skip
    assert score_table(numbers, Limits(), steps=["compact"]).is_due
    assert not score_table(numbers, Limits(raised=2.0), steps=["compact"]).is_due


def test_thresholds_are_raised_to_a_limit():
    lost = JobReturn(
        job=1, verb="compact", ended_at=0.0, core_seconds=1.0, bytes=1.0, requests=1.0, cost=1.0,
        files_saved=0, bytes_saved=0, days=0.0, benefit=0.0, is_open=False,
    )  # fmt: skip
    assert raised_by([lost] * 100) == 8.0
    assert raised_by([replace(lost, is_open=True), lost, lost]) == 1.0
    assert raised_by([]) == 1.0


def test_prices_are_read_and_checked():
    costs = parse_config({"costs": {"core_hour": 1.5, "gib_written": 2}}).costs
    assert (costs.core_hour, costs.gib_written) == (1.5, 2)
    assert costs.cost_of(core_seconds=7200.0, bytes_written=2**30) == 5.0


def test_reports_of_any_kind_tell_what_they_saved():
    assert saved_by({}) == (0, 0)
    assert saved_by({"outcome": "committed", "steps": [{"step": "vacuum", "report": None}]}) == (
        0,
        0,
    )
