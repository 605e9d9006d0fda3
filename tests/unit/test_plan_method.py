"""Copy or recode: what the footers of a group say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehand.planning.method import CopyRule, GroupFacts, choose_method
from lakehand.planning.policy import CompactionPolicy
from support.plans import plan_sizes, survey_of

MIB = 2**20
POLICY = CompactionPolicy(target_file_bytes=128 * MIB, min_files=2)
HEALTHY = GroupFacts(
    is_surveyed=True,
    row_group_count=8,
    median_row_group_bytes=8 * MIB,
    median_row_group_rows=200_000,
    rows=1_600_000,
    data_bytes=64 * MIB,
)


def test_healthy_row_groups_of_one_kind_are_copied():
    assert choose_method(HEALTHY).method == "copy"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_surveyed": False}, "not all footers were read"),
        ({"has_deleted_rows": True}, "deleted rows are dropped"),
        ({"refusal": "the file is encrypted or signed"}, "the file is encrypted or signed"),
        ({"copy_class_count": 2}, "the files differ in schema, codec or calendar"),
        ({"expected_files": 3}, "the rows go into 3 files"),
        (
            {"median_row_group_bytes": MIB, "median_row_group_rows": 99_999},
            "row groups are small: half of them below 1 MiB",
        ),
        (
            {"crumb_rows": 320_000},
            "20% of the rows are in row groups far below a healthy size",
        ),
        ({"row_group_count": 65}, "65 row groups are too many for one file"),
    ],
)
def test_anything_else_is_recoded_and_says_why(changes, reason):
    choice = choose_method(replace(HEALTHY, **changes))

    assert (choice.method, choice.reason) == ("recode", reason)


@pytest.mark.parametrize(
    "changes",
    [
        {"median_row_group_bytes": MIB, "median_row_group_rows": 100_000},
        {"median_row_group_bytes": 4 * MIB, "median_row_group_rows": 100},
        {"crumb_rows": 160_000},
        {"row_group_count": 64},
        {"row_group_count": 640, "data_bytes": 1280 * MIB},
    ],
)
def test_what_is_at_its_limit_is_copied(changes):
    assert choose_method(replace(HEALTHY, **changes)).method == "copy"


def test_no_file_gets_more_than_a_thousand_row_groups():
    facts = replace(HEALTHY, row_group_count=1001, data_bytes=100 * 2**30)

    assert choose_method(facts).method == "recode"
    assert choose_method(replace(facts, row_group_count=1000)).method == "copy"


def test_few_crumbs_beside_large_row_groups_could_be_mixed():
    crumbs = {"median_row_group_bytes": 1000, "median_row_group_rows": 10}
    few = replace(HEALTHY, **crumbs, crumb_bytes=MIB)
    most = replace(HEALTHY, **crumbs, crumb_bytes=60 * MIB)

    assert choose_method(few).could_mix
    assert not choose_method(most).could_mix
    assert not choose_method(replace(few, copy_class_count=2)).could_mix


def test_the_rule_can_be_changed():
    stricter = CopyRule(min_median_bytes=16 * MIB, min_median_rows=10**9)

    assert choose_method(HEALTHY, stricter).method == "recode"


def surveyed_plan(*records, deleted=None):
    survey = survey_of({"path": f"f{n}", **record} for n, record in enumerate(records))
    sizes = [sum(size for size, _ in record["row_groups"]) + 1000 for record in records]
    planning = plan_sizes(sizes, deleted=deleted, policy=POLICY, survey=survey)
    [group] = planning.plan.groups
    return group


LARGE = [(10 * MIB, 250_000)] * 4
TINY = [(10_000, 100)]


def test_a_group_of_large_row_groups_is_copied():
    group = surveyed_plan({"row_groups": LARGE}, {"row_groups": LARGE})

    assert (group.method, group.expected_bytes) == ("copy", 80 * MIB)


def test_one_smaller_row_group_in_a_file_does_not_count():
    group = surveyed_plan({"row_groups": LARGE}, {"row_groups": [*LARGE, (2 * MIB, 30_000)]})

    assert group.method == "copy"


def test_a_copy_keeps_the_bytes_of_row_groups_that_a_rewrite_would_shrink():
    many_rows = {"row_groups": [(3 * MIB, 150_000)] * 4}
    copied = surveyed_plan(many_rows, many_rows)
    recoded = surveyed_plan(many_rows, many_rows, deleted=[1, 0])

    assert (copied.method, copied.expected_bytes) == ("copy", 24 * MIB)
    assert recoded.expected_bytes == pytest.approx(0.87 * 24 * MIB, rel=0.02)


def test_a_group_of_tiny_files_is_recoded():
    group = surveyed_plan({"row_groups": TINY}, {"row_groups": TINY})

    assert group.method == "recode"
    assert group.method_reason == "row groups are small: half of them below 9.8 KiB"


def test_the_words_of_a_refusal_reach_the_plan():
    refused = {"row_groups": LARGE, "copy_class": None, "refusal": "the file is encrypted"}
    group = surveyed_plan({"row_groups": LARGE}, refused)

    assert (group.method, group.method_reason) == ("recode", "the file is encrypted")


def test_one_deleted_row_forbids_a_copy():
    group = surveyed_plan({"row_groups": LARGE}, {"row_groups": LARGE}, deleted=[1, 0])

    assert group.method_reason == "deleted rows are dropped"


def test_files_that_were_not_surveyed_are_recoded():
    survey = survey_of([{"path": "f0", "row_groups": LARGE}])
    [group] = plan_sizes([40 * MIB] * 2, policy=POLICY, survey=survey).plan.groups

    assert group.method_reason == "not all footers were read"


def test_a_plan_without_a_survey_recodes():
    [group] = plan_sizes([40 * MIB] * 2, policy=POLICY).plan.groups

    assert group.method == "recode"


def test_a_survey_of_other_files_changes_nothing():
    survey = survey_of([{"path": "gone", "row_groups": LARGE}])

    assert (
        plan_sizes([40 * MIB] * 2, policy=POLICY, survey=survey).plan
        == plan_sizes([40 * MIB] * 2, policy=POLICY).plan
    )
