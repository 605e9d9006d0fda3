"""A partition value that an entry of the log leaves out is null, like one that is spelled so."""

from __future__ import annotations

import json

import pyarrow as pa
from deltalake import write_deltalake

from support.compactions import compact_inline, open_table
from support.rows import assert_same_rows, lakehand_rows


def make_table(place):
    """Make six files of the null partition; the entries of three of them do not say so."""
    for start in range(6):
        data = {"id": pa.array([start], pa.int64()), "region": pa.array([None], pa.string())}
        write_deltalake(str(place), pa.table(data), mode="append", partition_by=["region"])
    for commit in sorted((place / "_delta_log").glob("*.json"))[::2]:
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["partitionValues"] = {}
        commit.write_text("\n".join(json.dumps(action) for action in actions) + "\n")


def test_they_become_one_file_whose_entry_spells_the_null_out(tmp_path):
    make_table(tmp_path)
    before = lakehand_rows(tmp_path)

    report = compact_inline(tmp_path)

    assert (report.files_before, report.files_after, report.errors) == (6, 1, ())
    [file] = open_table(str(tmp_path)).data_files(open_table(str(tmp_path)).snapshot(), [0])
    assert file.native["add"]["partitionValues"] == {"region": None}
    assert_same_rows(lakehand_rows(tmp_path), before)
