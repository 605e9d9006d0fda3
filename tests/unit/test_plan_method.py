"""Copy or recode: what the footers of a group say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehand.model.work import DataFile, Group
from lakehand.planning.drafts import CopyRule, GroupFacts, choose_method
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


def test_a_copy_moves_all_bytes_but_those_of_files_that_it_recodes_first():
    sizes = {f"{size}": size for size in (100, 20, 3)}
    inputs = tuple(DataFile(path=path, bytes=size, rows=1) for path, size in sizes.items())

    moved = [
        Group(id=0, inputs=inputs, method=method, recoded=recoded).moved_bytes
        for method, recoded in (("copy", ()), ("copy", (1, 2)), ("recode", ()), ("sort", ()))
    ]

    assert moved == [123, 100, 0, 0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_surveyed": False}, "not all footers were read"),
        ({"has_deleted_rows": True}, "deleted rows are dropped"),
        ({"refusal": "the file is encrypted or signed"}, "the file is encrypted or signed"),
        ({"copy_class_count": 2}, "the files differ in schema, codec or calendar"),
        ({"tiny_files": 2}, "2 files too small for a reasonable row group"),
        (
            {"median_row_group_bytes": MIB, "median_row_group_rows": 99_999},
            "row groups are small: half of them below 1 MiB",
        ),
        (
            {"tiny_group_rows": 320_000},
            "20% of the rows are in very small row groups",
        ),
        ({"row_group_count": 65}, "65 row groups are too many"),
        (
            {"expected_files": 2, "largest_row_group_bytes": 7 * MIB},
            "row groups of 7 MiB cannot be divided evenly among files",
        ),
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
        {"tiny_group_rows": 160_000},
        {"row_group_count": 64},
        {"row_group_count": 640, "data_bytes": 1280 * MIB},
        {"expected_files": 2, "largest_row_group_bytes": 6 * MIB},
        {"expected_files": 2, "row_group_count": 2000, "data_bytes": 100 * 2**30},
    ],
)
def test_what_is_at_its_limit_is_copied(changes):
    assert choose_method(replace(HEALTHY, **changes)).method == "copy"


def test_no_file_gets_more_than_a_thousand_row_groups():
    facts = replace(HEALTHY, row_group_count=1001, data_bytes=100 * 2**30)

    assert choose_method(facts).method == "recode"
    assert choose_method(replace(facts, row_group_count=1000)).method == "copy"


MIXED = replace(
    HEALTHY,
    has_deleted_rows=True,
    file_count=5,
    live_bytes=64 * MIB,
    moved_files=2,
    moved_bytes=32 * MIB,
    moved_row_group_count=4,
    joins_recoded=True,
)


def test_half_of_the_bytes_are_worth_a_copy_beside_files_that_must_be_recoded():
    choice = choose_method(MIXED)

    assert (choice.method, choice.mixes) == ("copy", True)
    assert choice.reason == (
        "row groups of sufficient size, and 3 files to re-encode: deleted rows are dropped"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"moved_bytes": 31 * MIB},
        {"joins_recoded": False},
        {"expected_files": 2},
        {"moved_files": 0},
        {"moved_row_group_count": 65},
    ],
)
def test_otherwise_all_is_recoded(changes):
    choice = choose_method(replace(MIXED, **changes))

    assert (choice.method, choice.mixes) == ("recode", False)


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
    recoded = surveyed_plan(many_rows, many_rows, deleted=[1, 1])

    assert (copied.method, copied.expected_bytes) == ("copy", 24 * MIB)
    assert recoded.expected_bytes == pytest.approx(0.87 * 24 * MIB, rel=0.02)


def test_a_group_of_tiny_files_is_recoded():
    group = surveyed_plan({"row_groups": TINY}, {"row_groups": TINY})

    assert group.method == "recode"
    assert group.method_reason == "row groups are small: half of them below 9.8 KiB"


def test_the_words_of_a_refusal_reach_the_plan():
    refused = {"row_groups": LARGE, "copy_class": None, "refusal": "the file is encrypted"}
    group = surveyed_plan({"row_groups": LARGE}, refused)

    assert (group.method, group.recoded) == ("copy", (1,))
    assert group.method_reason.endswith("1 file to re-encode: the file is encrypted")


def test_a_file_with_a_deleted_row_is_recoded_into_the_copy_of_the_others():
    group = surveyed_plan({"row_groups": LARGE}, {"row_groups": LARGE}, deleted=[1, 0])

    assert (group.method, group.recoded) == ("copy", (0,))


def test_crumbs_are_recoded_into_the_copy_and_cost_what_recoding_costs():
    files = [{"row_groups": LARGE}, *[{"row_groups": TINY}] * 5]
    mixed = surveyed_plan(*files)
    apart = surveyed_plan(*({**file, "joins_recoded": False} for file in files))

    assert (mixed.method, mixed.recoded) == ("copy", (1, 2, 3, 4, 5))
    assert (apart.method, apart.recoded) == ("recode", ())
    assert mixed.expected_bytes == 40 * MIB + 5 * 8_700
    assert mixed.task_seconds < apart.task_seconds / 5


def test_files_too_small_for_a_healthy_row_group_need_no_survey():
    survey = survey_of([{"path": "f0", "row_groups": LARGE}])
    [group] = plan_sizes([40 * MIB, MIB, MIB], policy=POLICY, survey=survey).plan.groups

    assert (group.method, group.recoded) == ("copy", (1, 2))
    assert "2 files too small for a reasonable row group" in group.method_reason


def test_a_file_whose_crumbs_would_stay_is_not_copied():
    bad = [*[(2 * MIB, 120_000)] * 5, *[(1000, 19_000)] * 4]
    group = surveyed_plan({"row_groups": bad}, {"row_groups": TINY})

    assert group.method == "recode"


def test_an_oversized_file_of_many_row_groups_is_divided_by_copying():
    group = surveyed_plan({"row_groups": [(10 * MIB, 250_000)] * 150})

    assert (group.method, group.expected_files) == ("copy", 12)
    assert group.target_file_bytes == 125 * MIB


def test_an_oversized_file_of_few_row_groups_is_recoded():
    group = surveyed_plan({"row_groups": [(500 * MIB, 10**7)] * 3})

    assert group.method_reason == "row groups of 500 MiB cannot be divided evenly among files"


def test_files_that_were_not_surveyed_are_recoded():
    survey = survey_of([{"path": "f0", "row_groups": LARGE}])
    [group] = plan_sizes([40 * MIB] * 2, policy=POLICY, survey=survey).plan.groups

    assert group.recoded == (1,)
    assert group.method_reason.endswith(": not all footers were read")


def test_a_plan_without_a_survey_recodes():
    [group] = plan_sizes([40 * MIB] * 2, policy=POLICY).plan.groups

    assert group.method == "recode"


def test_a_survey_of_other_files_changes_nothing():
    survey = survey_of([{"path": "gone", "row_groups": LARGE}])

    assert (
        plan_sizes([40 * MIB] * 2, policy=POLICY, survey=survey).plan
        == plan_sizes([40 * MIB] * 2, policy=POLICY).plan
    )
