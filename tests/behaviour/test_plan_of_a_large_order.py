"""An order for a table of 20 GB is planned from its log alone, in seconds."""

from __future__ import annotations

import json
import time

import pytest

import lakehand
from support.hand_written_logs import add, field, metadata, protocol
from support.small_tables import commit_by_hand

MIB = 2**20
SIDE, NEW = 141, 200


def entry(name, low, high, **members):
    """Return a file of 1 MiB whose rows lie between two points."""
    stats = {
        "numRecords": 10_000,
        "minValues": dict(zip("xy", low, strict=True)),
        "maxValues": dict(zip("xy", high, strict=True)),
        "nullCount": {"x": 0, "y": 0},
    }
    return add(name, size=MIB, stats=json.dumps(stats), **members)


@pytest.fixture
def table(tmp_path):
    """A table whose files tile a square, as those of an earlier run do, and 1 % new ones."""
    (tmp_path / "_delta_log").mkdir()
    tags = {"LAKEHAND_ORDER": "hilbert(x, y)", "LAKEHAND_UNIT": "first"}
    tiles = (divmod(number, SIDE) for number in range(SIDE * SIDE))
    old = [
        entry(f"old-{x}-{y}", (10 * x, 10 * y), (10 * x + 9, 10 * y + 9), tags=tags)
        for x, y in tiles
    ]
    end = 10 * SIDE
    new = [entry(f"new-{number}", (number, 0), (end, end - number)) for number in range(NEW)]
    fields = field("x", "long"), field("y", "long")
    commit_by_hand(tmp_path, protocol(), metadata(*fields), *old)
    commit_by_hand(tmp_path, *new)
    return lakehand.open_table(tmp_path, engine="local", target_file_bytes=MIB)


def test_an_order_for_20_gb_is_planned_in_seconds(table):
    started = time.process_time()

    plan = table.plan(by="x, y")

    assert time.process_time() - started < 5
    chosen = [path for group in plan.groups for path in group.paths]
    assert sorted(chosen) == sorted(f"new-{number}" for number in range(NEW))
    assert sum(group.input_bytes for group in plan.groups) <= 0.05 * table.inspect().total_bytes
    # Nobody can read rows of these files; what is in order counts, and the rest as it is now.
    assert plan.layout.skip_rate.before > 0.5
