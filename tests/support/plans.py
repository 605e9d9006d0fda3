"""Files made by hand, and what a table looks like once a plan was carried out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from lakehand.model.file_columns import SURVEY_SCHEMA
from lakehand.planning.compaction import plan_compaction
from lakehand.planning.plan import locate_inputs
from lakehand.planning.policy import CompactionPolicy
from support.snapshots import make_snapshot

POLICY = CompactionPolicy(target_file_bytes=100, min_files=2)


def with_policy(**changes) -> CompactionPolicy:
    return replace(POLICY, **changes)


def snapshot_of(sizes, *, keys=None, rows=None, deleted=None):
    """Make a snapshot of files that are named f0, f1, …; `key` is their partition."""
    count = len(sizes)
    columns = (sizes, keys or ["p"] * count, rows or [100] * count, deleted or [0] * count)
    return make_snapshot(
        [
            {
                "path": f"f{n}",
                "bytes": size,
                "partition": {"key": key},
                "rows": r,
                "deleted_rows": d,
            }
            for n, (size, key, r, d) in enumerate(zip(*columns, strict=True))
        ],
        partition_columns=["key"],
    )


def keys_of(snapshot):
    return pa.array([p["key"] for p in snapshot.files["partition"].to_pylist()], pa.string())


def plan(snapshot, policy=POLICY, **options):
    return plan_compaction(snapshot, keys_of(snapshot), policy, **options)


def plan_sizes(sizes, *, policy=POLICY, survey=None, order_keys=None, **columns):
    return plan(snapshot_of(sizes, **columns), policy, survey=survey, order_keys=order_keys)


def groups(planning):
    """Return the numbers of the files of each group, in the order of the plan."""
    return [tuple(int(path[1:]) for path in group.paths) for group in planning.plan.groups]


def reasons(planning):
    return planning.reasons.to_pylist()


def survey_of(records):
    """Make a survey of dicts with `path` and `row_groups`: pairs of bytes and rows."""
    rows = [
        {
            "path": record["path"],
            "rows": sum(rows for _, rows in record["row_groups"]),
            "row_group_bytes": [size for size, _ in record["row_groups"]],
            "row_group_rows": [rows for _, rows in record["row_groups"]],
            "copy_class": record.get("copy_class", "a"),
            "refusal": record.get("refusal"),
            "joins_recoded": record.get("joins_recoded", True),
        }
        for record in records
    ]
    return pa.Table.from_pylist(rows, schema=SURVEY_SCHEMA)


def carry_out(planning, snapshot, *, error=0.0):
    """Return the snapshot after the plan, with outputs of the forecast size, times 1 + `error`."""
    inputs = locate_inputs(planning.plan, snapshot.files)
    gone = set(chain.from_iterable(rows.tolist() for rows in inputs))
    records = snapshot.files.to_pylist()
    outputs = [
        {
            "path": f"out-{snapshot.version}-{group.id}-{number}",
            "bytes": int(share * (1 + error)),
            "rows": 100,
            "partition": records[int(rows[0])]["partition"],
        }
        for group, rows in zip(planning.plan.groups, inputs, strict=True)
        for number, share in enumerate(_even(group.expected_bytes, group.expected_files))
    ]
    left = [record for row, record in enumerate(records) if row not in gone]
    # New files come first: a plan must not rely on where they are.
    return make_snapshot([*outputs, *left], partition_columns=["key"], version=snapshot.version + 1)


def _even(total, count):
    ends = np.linspace(0, total, count + 1).astype(np.int64) if count else np.zeros(1, np.int64)
    return np.diff(ends).tolist()


def counted(planning):
    return Counter(reasons(planning))
