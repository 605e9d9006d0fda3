"""What holds for every plan, whatever the table and the policy."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.planning.policy import CHOSEN
from support.plans import (
    carry_out,
    counted,
    groups,
    keys_of,
    plan,
    reasons,
    snapshot_of,
    survey_of,
    with_policy,
)

CHOSEN_WORDS = {str(reason) for reason in CHOSEN}
#: The last kind fills groups to little more than half, where a small error makes small files.
SIZES = st.one_of(st.integers(1, 120), st.integers(1, 3000), st.sampled_from([26, 27, 49, 53, 55]))
STRATEGIES = st.sampled_from(["greedy", "bin-packing", "sort-by-size"])
caps = st.one_of(st.none(), st.integers(1, 400))


@st.composite
def snapshots(draw):
    entry = st.tuples(
        SIZES,
        st.sampled_from(["a", "b", None]),
        st.sampled_from([100, 100, 0, None]),
        st.sampled_from([0, 0, 0, 3, 20, 80, 100]),
    )
    columns = list(zip(*draw(st.lists(entry, min_size=1, max_size=40)), strict=True))
    sizes, keys, rows, deleted = (list(column) for column in columns)
    return snapshot_of(sizes, keys=keys, rows=rows, deleted=deleted)


@st.composite
def policies(draw):
    return with_policy(
        strategy=draw(STRATEGIES),
        small_file_ratio=draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9])),
        deleted_row_ratio=draw(st.sampled_from([0.0, 0.05, 0.25, 1.0])),
        oversized_file_ratio=draw(st.sampled_from([2.0, 10.0])),
        min_files=draw(st.integers(2, 6)),
    )


@st.composite
def surveys(draw, snapshot):
    """Return the footers of some files, with row groups of one kind each."""
    sizes = snapshot.files["bytes"].to_pylist()
    known = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    splits = draw(st.lists(st.integers(1, 8), min_size=len(sizes), max_size=len(sizes)))
    return survey_of(
        {"path": f"f{n}", "row_groups": [(size // count, 100 // count)] * count}
        for n, (size, is_known, count) in enumerate(zip(sizes, known, splits, strict=True))
        if is_known
    )


@given(snapshots(), policies())
def test_every_file_has_one_reason_and_is_planned_at_most_once(snapshot, policy):
    planning = plan(snapshot, policy)
    planned = [number for group in groups(planning) for number in group]

    assert len(planning.reasons) == snapshot.file_count
    assert len(planned) == len(set(planned))
    chosen = {n for n, reason in enumerate(reasons(planning)) if reason in CHOSEN_WORDS}
    assert chosen == set(planned)
    assert Counter(planning.plan.chosen) + Counter(planning.plan.left) == counted(planning)


@given(snapshots(), policies())
def test_a_group_is_of_one_partition(snapshot, policy):
    keys = keys_of(snapshot).to_pylist()

    for group in groups(plan(snapshot, policy)):
        assert len({keys[number] for number in group}) == 1


@given(snapshots(), policies())
def test_a_group_of_several_files_fits_the_target(snapshot, policy):
    for group in plan(snapshot, policy).plan.groups:
        assert len(group.paths) == 1 or group.expected_bytes <= 1.1 * policy.target_file_bytes


@given(snapshots(), policies())
def test_one_healthy_file_is_never_rewritten(snapshot, policy):
    planning = plan(snapshot, policy)

    for group in groups(planning):
        assert len(group) > 1 or reasons(planning)[group[0]] != "small"


@given(snapshots(), policies())
def test_several_outputs_are_neither_small_nor_oversized(snapshot, policy):
    for group in plan(snapshot, policy).plan.groups:
        if group.expected_files > 1:
            assert group.target_file_bytes >= policy.small_file_bytes
            assert group.target_file_bytes <= policy.oversized_file_bytes


def assert_a_plan_leaves_nothing(data, snapshot, policy):
    survey = data.draw(st.one_of(st.none(), surveys(snapshot)))
    after = carry_out(plan(snapshot, policy, survey=survey), snapshot)

    assert plan(after, policy, survey=survey).plan.groups == ()


@given(st.data(), snapshots(), policies())
def test_planning_what_a_plan_leaves_yields_nothing(data, snapshot, policy):
    assert_a_plan_leaves_nothing(data, snapshot, policy)


@pytest.mark.soak
@settings(max_examples=3_000)
@given(st.data(), snapshots(), policies())
def test_planning_what_any_plan_leaves_yields_nothing(data, snapshot, policy):
    assert_a_plan_leaves_nothing(data, snapshot, policy)


@given(snapshots(), policies())
def test_the_forecast_is_what_the_table_becomes(snapshot, policy):
    planning = plan(snapshot, policy)
    after = carry_out(planning, snapshot)

    assert planning.plan.forecast.files_after == after.file_count
    assert planning.plan.forecast.bytes_after == sum(after.files["bytes"].to_pylist())


def assert_outputs_below_the_forecast_are_left(snapshot, strategy, min_files, error):
    policy = with_policy(strategy=strategy, min_files=min_files)
    after = carry_out(plan(snapshot, policy), snapshot, error=error)

    assert plan(after, policy).plan.groups == ()


ERRORS = st.sampled_from([0.0, -0.04, -0.08])


@given(snapshots(), STRATEGIES, st.integers(2, 6), ERRORS)
def test_outputs_somewhat_below_the_forecast_are_not_rewritten_again(
    snapshot, strategy, min_files, error
):
    assert_outputs_below_the_forecast_are_left(snapshot, strategy, min_files, error)


@pytest.mark.soak
@settings(max_examples=3_000)
@given(snapshots(), STRATEGIES, st.integers(2, 6), ERRORS)
def test_outputs_somewhat_below_any_forecast_are_not_rewritten_again(
    snapshot, strategy, min_files, error
):
    assert_outputs_below_the_forecast_are_left(snapshot, strategy, min_files, error)


def files_in(found):
    return sum(len(group.paths) for group in found.groups)


@given(snapshots(), policies(), caps, caps, caps)
def test_caps_are_kept_and_the_rest_is_counted(snapshot, policy, size, files, count):
    limits = {"max_bytes_per_run": size, "max_files_per_run": files, "max_groups_per_run": count}
    values = {name: getattr(policy, name) for name in ("strategy", "small_file_ratio", "min_files")}
    everything = plan(snapshot, with_policy(**values)).plan
    capped = plan(snapshot, with_policy(**values, **limits)).plan

    assert capped.forecast.bytes_read <= (size or 10**9)
    assert sum(len(group.paths) for group in capped.groups) <= (files or 10**9)
    assert len(capped.groups) <= (count or 10**9)
    assert capped.left.get("later_run", 0) == capped.remaining.files
    rewritten = sum(len(group.paths) for group in capped.groups)
    above = capped.left.get("above_cap", 0)
    assert rewritten + capped.remaining.files + above == files_in(everything)
    assert capped.groups or not capped.remaining.groups
