"""Scores order jobs by what they are worth, within a bound, and learn from forecasts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.service.scores import (
    MOST_HEAD_START,
    Calibration,
    Limits,
    TableNumbers,
    calibrated_factor,
    head_start,
    score_table,
)

MIB = 2**20
LIMITS = Limits()
#: A table that needs nothing.
HEALTHY = TableNumbers(
    file_count=20,
    total_bytes=20 * 128 * MIB,
    seconds_since_vacuum=60.0,
    seconds_since_cleanup=60.0,
)
SMALL_FILES = replace(
    HEALTHY,
    file_count=120,
    small_file_count=100,
    small_bytes=100 * MIB,
    excess_file_count=99,
    most_in_partition=100,
)


def step(numbers, name, **options):
    scored = score_table(numbers, LIMITS, **options)
    return next(step for step in scored.steps if step.step == name)


def test_nothing_is_due_of_a_healthy_table():
    scored = score_table(HEALTHY, LIMITS)
    assert (scored.is_due, scored.score, scored.reasons) == (False, 0.0, ())


@pytest.mark.parametrize(
    ("change", "name", "ratio"),
    [
        ({"excess_file_count": 9, "small_file_count": 10, "most_in_partition": 10}, "compact", 1),
        ({"excess_file_count": 9, "small_file_count": 99, "most_in_partition": 55}, "compact", 5.5),
        ({"worn_file_count": 1, "most_deleted_ratio": 0.5}, "compact", 10),
        ({"oversized_file_count": 1}, "compact", 1),
        ({"commits_since_checkpoint": 9}, "checkpoint", 0.9),
        ({"commits_since_checkpoint": 25}, "checkpoint", 2.5),
        ({"seconds_since_vacuum": None}, "vacuum", 1),
        ({"seconds_since_vacuum": 9e9}, "vacuum", 0),
        ({"seconds_since_vacuum": 2 * 86_400.0, "removed_file_count": 1}, "vacuum", 2),
        ({"seconds_since_cleanup": None}, "clean_logs", 1),
        ({"seconds_since_cleanup": 43_200.0, "commits_since_cleanup": 1}, "clean_logs", 0.5),
    ],
)
def test_a_step_is_due_when_a_value_reaches_its_limit(change, name, ratio):
    found = step(replace(HEALTHY, **change), name)
    assert found.ratio == pytest.approx(ratio)
    assert found.is_due == (ratio >= 1)


def test_reasons_name_the_numbers_and_the_limits():
    scored = score_table(replace(SMALL_FILES, commits_since_checkpoint=25), LIMITS)
    assert scored.reasons == (
        "100 small files, compaction would save 99 (due from 10 in a partition)",
        "25 commits to replay; due every 10",
    )
    assert scored.urgency == 1


def test_steps_that_the_policy_excludes_are_not_scored():
    assert score_table(SMALL_FILES, LIMITS, steps=("vacuum", "checkpoint")).score == 0.0


def test_more_reads_are_worth_more_and_lost_work_costs_more():
    plain = step(SMALL_FILES, "compact")
    assert step(SMALL_FILES, "compact", reads_per_day=48.0).score == pytest.approx(2 * plain.score)
    assert step(SMALL_FILES, "compact", lost_share=0.5).score == pytest.approx(plain.score / 2)
    calibrated = step(SMALL_FILES, "compact", calibration={"compact": 3.0})
    assert calibrated.core_seconds == pytest.approx(3 * plain.core_seconds)
    assert calibrated.forecast_core_seconds == plain.core_seconds


def test_a_tiny_table_is_due_but_comes_later():
    tiny = replace(SMALL_FILES, file_count=100, total_bytes=MIB, small_bytes=MIB)
    assert step(tiny, "compact").is_due
    assert step(tiny, "compact").benefit_seconds < step(SMALL_FILES, "compact").benefit_seconds / 20


def test_raised_thresholds_need_more_files():
    assert not score_table(SMALL_FILES, replace(LIMITS, raised=16.0)).is_due


@given(score=st.floats(0, 1e30), other=st.floats(0, 1e30), importance=st.floats(0, 1e9))
@settings(max_examples=200, deadline=None)
def test_a_higher_score_never_starts_later_and_no_head_start_is_without_bound(
    score, other, importance
):
    low, high = sorted((score, other))
    earlier, later = (head_start(one, importance=importance) for one in (high, low))
    assert -MOST_HEAD_START <= later <= earlier <= MOST_HEAD_START


def test_calibration_makes_forecasts_better():
    generator = random.Random(7)
    known, plain, calibrated = Calibration(), [], []
    for _ in range(60):
        forecast = generator.uniform(1, 100)
        actual = forecast * 3 * generator.uniform(0.8, 1.25)
        plain.append(abs(forecast - actual) / actual)
        calibrated.append(abs(forecast * known.factor - actual) / actual)
        known = known.after(forecast=forecast, actual=actual)
    assert sorted(plain)[30] > 0.5
    assert sorted(calibrated)[30] < 0.2
    assert known.factor == pytest.approx(3.0, rel=0.2)
    assert known.error < 0.3


def test_a_forecast_without_an_actual_changes_nothing_and_one_outlier_is_bounded():
    known = Calibration(factor=2.0, count=4)
    assert known.after(forecast=0.0, actual=1.0) == known.after(forecast=1.0, actual=0.0) == known
    assert known.after(forecast=1e-9, actual=1e9).factor <= 20.0


def test_a_table_without_forecasts_of_its_own_uses_those_of_all():
    of_all = Calibration(factor=4.0, count=50)
    assert calibrated_factor(None, None) == 1.0
    assert calibrated_factor(None, of_all) == 4.0
    assert calibrated_factor(Calibration(factor=2.0, count=3), of_all) == 2.0
    assert 2.0 < calibrated_factor(Calibration(factor=2.0, count=1), of_all) < 4.0
