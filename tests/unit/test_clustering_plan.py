"""Which files are put in order: new ones, and units that lie over one another."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakehand.planning.clustering_plan import ClusteringRequest, plan_clustering
from lakehand.planning.policy import CompactionPolicy, Reason
from support.snapshots import make_snapshot

MIB = 2**20
POLICY = CompactionPolicy(target_file_bytes=128 * MIB)
WISH = ClusteringRequest(columns=("x", "y"))


def unit(name, *, files, megabytes=128, x=(0, 1_000), y=(0, 1_000), partition=0):
    """Return files that tile a rectangle, as those of one unit do; without a name, new ones."""
    columns = max(1, round(files**0.5))
    rows = -(-files // columns)
    found = []
    for number in range(files):
        row, column = divmod(number, columns)
        box = [
            (low + (high - low) * place // count, low + (high - low) * (place + 1) // count - 1)
            for (low, high), place, count in ((x, column, columns), (y, row, rows))
        ]
        if name is None:
            box = [(x[0], x[1] - 1), (y[0], y[1] - 1)]
        found.append({"unit": name, "bytes": megabytes * MIB, "box": box, "partition": partition})
    return found


def snapshot_of(files, columns):
    """Return a snapshot of the files with bounds, and their partitions."""
    bounds = [
        {
            column: {"min": low, "max": high, "nulls": 0}
            for column, (low, high) in zip(columns, file["box"], strict=True)
        }
        for file in files
    ]
    records = [
        {"path": f"f{number}", "bytes": file["bytes"], "rows": 1_000, "deleted_rows": 0}
        for number, file in enumerate(files)
    ]
    snapshot = make_snapshot(records)
    table = snapshot.files.append_column("bounds", pa.array(bounds))
    return replace(snapshot, files=table), pa.array([file["partition"] for file in files])


def planned(files, *, wish=WISH, asked=None, policy=POLICY, exclusions=None):
    """Plan over `files`; `asked` names the units in the order asked for, all unless given."""
    snapshot, keys = snapshot_of(files, wish.columns)
    units = [file["unit"] for file in files]
    is_asked = [name is not None and (asked is None or name in asked) for name in units]
    marks = pa.table({"unit": pa.array(units, pa.string()), "is_asked": is_asked})
    planning = plan_clustering(
        snapshot, keys, policy, wish, marks=marks, exclusions=exclusions or {}
    )
    return planning, [str(reason) for reason in planning.reasons.to_pylist()]


def rewritten(files, **options):
    """Return the names of units of which something is rewritten."""
    planning, _ = planned(files, **options)
    paths = {path for group in planning.plan.groups for path in group.paths}
    return {file["unit"] for number, file in enumerate(files) if f"f{number}" in paths}


def test_files_in_order_are_left_alone():
    planning, reasons = planned(unit("old", files=16))

    assert planning.plan.groups == ()
    assert set(reasons) == {Reason.IN_ORDER}


def test_new_files_become_a_unit_of_their_own():
    files = unit("old", files=100) + unit(None, files=1)

    assert rewritten(files) == {None}
    [group] = planned(files)[0].plan.groups
    assert (group.method, group.paths) == ("sort", ("f100",))
    assert group.input_bytes <= 0.05 * sum(file["bytes"] for file in files)


def test_units_of_like_size_that_lie_over_one_another_are_merged():
    old, recent = unit("old", files=100), unit("recent", files=1)

    assert rewritten(old + recent + unit(None, files=1)) == {None, "recent"}
    assert rewritten(old + recent + unit(None, files=120)) == {None, "old", "recent"}


def test_units_that_lie_beside_one_another_are_not_merged():
    weeks = [unit(f"week {n}", files=1, x=(n * 100, n * 100 + 100)) for n in range(8)]
    files = [file for week in weeks for file in week] + unit(None, files=1, x=(800, 900))

    assert rewritten(files) == {None}


def test_a_row_is_rewritten_a_few_times_in_its_life():
    units, written = {"first": 100}, 0
    for day in range(64):
        files = [f for name, size in units.items() for f in unit(name, files=size)]
        files += unit(None, files=1)
        names = rewritten(files)
        size = 1 + sum(units.pop(name) for name in names if name is not None)
        units[f"day {day}"] = size
        written += size

    assert len(units) <= 8
    assert written <= 64 * 8


def test_units_that_pile_up_are_merged_though_nothing_new_has_come():
    piles = [unit(f"unit {n}", files=4, megabytes=100 + n) for n in range(12)]
    files = [file for pile in piles for file in pile]

    names = rewritten(files)

    assert len(names) >= 11
    left = unit("merged", files=44) + unit("unit 11", files=4)
    assert rewritten(left) == set()


def test_files_in_another_order_wait_until_all_are_asked_for():
    files = unit("other", files=9) + unit(None, files=1)

    assert rewritten(files, asked=set()) == {None}
    assert planned(files, asked=set())[1][:9] == [Reason.OTHER_ORDER] * 9
    full = ClusteringRequest(columns=("x", "y"), full=True)
    assert rewritten(files, asked=set(), wish=full) == {None, "other"}


def test_each_partition_is_put_in_order_by_itself():
    files = unit(None, files=3, partition=0) + unit(None, files=2, partition=1)
    files += unit("old", files=4, partition=2)

    planning, _ = planned(files)

    assert [len(group.paths) for group in planning.plan.groups] == [3, 2]


def test_files_of_other_partitions_lie_over_none():
    files = [file for n in range(20) for file in unit(f"unit {n}", files=1, partition=n)]

    assert rewritten(files) == set()


def test_fragments_of_units_are_put_together_when_there_are_enough():
    def weeks(count):
        found = (
            unit(f"week {n}", files=1, megabytes=3, x=(n * 9, n * 9 + 9)) for n in range(count)
        )
        return [file for week in found for file in week]

    assert rewritten(weeks(3)) == set()
    assert len(rewritten(weeks(4))) == 4


def test_small_files_among_those_that_a_curve_was_cut_into_are_left_alone():
    files = unit("old", files=16)
    for file in files[:5]:
        file["bytes"] = 60 * MIB

    assert rewritten(files) == set()


def test_a_schedule_waits_for_more_small_files():
    patient = ClusteringRequest(columns=("x", "y"), min_new_files=4)
    few, many = unit(None, files=3, megabytes=1), unit(None, files=4, megabytes=1)

    assert planned(few, wish=patient)[1] == [Reason.BELOW_MINIMUM_FILES] * 3
    assert rewritten(many, wish=patient) == {None}
    assert rewritten(unit(None, files=1), wish=patient) == {None}


def test_a_partition_above_a_cap_is_put_in_order_piece_by_piece():
    policy = replace(POLICY, max_bytes_per_run=300 * MIB)
    planning, reasons = planned(unit(None, files=6), policy=policy)

    assert [len(group.paths) for group in planning.plan.groups] == [2]
    assert reasons.count(Reason.LATER_RUN) == planning.plan.remaining.files == 4


def test_units_are_not_merged_in_parts_that_would_overlap_again():
    policy = replace(POLICY, max_bytes_per_run=300 * MIB)
    piled_up = [file for n in range(12) for file in unit(f"day {n}", files=1)]
    planning, reasons = planned(piled_up, policy=policy)

    assert planned(piled_up)[0].plan.groups
    assert planning.plan.groups == ()
    assert Reason.ABOVE_CAP in reasons


def test_excluded_files_are_never_touched():
    files = unit(None, files=4)
    mask = np.array([True, False, False, True])

    planning, reasons = planned(files, exclusions={Reason.OUTSIDE_PREDICATE: mask})

    assert [group.paths for group in planning.plan.groups] == [("f1", "f2")]
    assert reasons[0] == Reason.OUTSIDE_PREDICATE


@pytest.mark.parametrize("count", [160, 100_000])
def test_a_large_table_is_planned_in_seconds(count):
    """The smaller one is 20 GB; the larger 12 TB."""
    files = unit("old", files=count) + unit(None, files=max(1, count // 100))
    snapshot, keys = snapshot_of(files, WISH.columns)
    units = pa.array([file["unit"] for file in files])
    marks = pa.table({"unit": units, "is_asked": units.is_valid()})

    started = time.process_time()
    planning = plan_clustering(snapshot, keys, POLICY, WISH, marks=marks)

    assert time.process_time() - started < 5
    assert len(planning.plan.groups) == 1
