"""From where on a table is called unhealthy."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model.quantities import parse_bytes, parse_count, parse_duration, parse_number
from lakehand.settings_table.setting import Setting

__all__ = ["HEALTH"]

_GIB = 2**30

HEALTH: tuple[Setting, ...] = (
    Setting(
        name="max_small_file_ratio",
        parse=parse_number,
        default=0.5,
        help="A table is unhealthy if compaction would save more than this fraction of its files, "
        "and at least `min_files` of them.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="max_deleted_row_ratio",
        parse=parse_number,
        default=0.1,
        help="A table is unhealthy if more than this fraction of the rows in its files is deleted.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="max_commits_since_checkpoint",
        parse=parse_count,
        default=100,
        help="A table is unhealthy if opening it replays more commits than this.",
        minimum=1,
    ),
    Setting(
        name="max_checkpoint_age",
        parse=parse_duration,
        default=timedelta(days=7),
        help="A table is unhealthy if a checkpoint is due and the oldest commit without one is "
        "older than this.",
        minimum=timedelta(0),
    ),
    Setting(
        name="max_overlap_depth",
        parse=parse_number,
        default=8.0,
        help="A table is unhealthy if its average overlap depth in its clustering columns is above"
        " this.",
        minimum=1.0,
    ),
    Setting(
        name="max_orphan_bytes",
        parse=parse_bytes,
        default=10 * _GIB,
        help="A table is unhealthy if files that no version needs take more than this; checked "
        "only on request.",
        minimum=0,
    ),
)
