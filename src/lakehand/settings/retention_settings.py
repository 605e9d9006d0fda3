"""Settings of vacuum, and the thresholds of health checks."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model import quantities
from lakehand.settings.setting import Setting

_GIB = 2**30

RETENTION: tuple[Setting, ...] = (
    Setting(
        name="retention",
        parse=quantities.parse_duration,
        default=None,
        help="How long vacuum keeps files after the last version that needs them; not set: the "
        "table's own retention, and at least 7 days. At least 1 hour: files of running "
        "writers would be deleted.",
        aliases=("vacuum.retention", "retentionDuration"),
        aliases_by_unit=(
            ("vacuum.retention.hours", "h"),
            ("retentionHours", "h"),
            ("retention_hours", "h"),
        ),
        minimum=timedelta(hours=1),
    ),
    Setting(
        name="allow_short_retention",
        parse=quantities.parse_bool,
        default=False,
        help="Allow a retention below the table's own and below 7 days, down to 1 hour; readers of"
        " older versions may fail.",
    ),
    Setting(
        name="keep_versions",
        parse=quantities.parse_count,
        default=1,
        help="How many of the newest versions vacuum keeps readable, whatever their age; versions "
        "within the retention stay in any case.",
        minimum=1,
    ),
    Setting(
        name="grace",
        parse=quantities.parse_duration,
        default=timedelta(hours=24),
        help="How long vacuum keeps quarantined files before it deletes them; 0 deletes at once.",
        minimum=timedelta(0),
    ),
    Setting(
        name="vacuum_entries",
        parse=quantities.OneOf("auto", "always", "never"),
        default="auto",
        help="Whether vacuum commits VACUUM START and VACUUM END entries to the log; auto: "
        "everywhere but on S3, as delta-spark does.",
    ),
    Setting(
        name="vacuum_stale_metadata",
        parse=quantities.parse_bool,
        default=False,
        help="Let vacuum delete files that Iceberg, Hudi or symlink metadata of the table may "
        "still refer to.",
    ),
    Setting(
        name="vacuum_tasks_above",
        parse=quantities.parse_count,
        default=500_000,
        help="With more files than this, vacuum lists and deletes in Spark tasks, if there is a "
        "Spark session or Spark was requested.",
        minimum=0,
    ),
)

HEALTH: tuple[Setting, ...] = (
    Setting(
        name="max_small_file_ratio",
        parse=quantities.parse_number,
        default=0.5,
        help="A table is unhealthy if an automatic compaction would save more than this fraction "
        "of its files.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="max_deleted_row_ratio",
        parse=quantities.parse_number,
        default=0.1,
        help="A table is unhealthy if more than this fraction of the rows in its files is deleted.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="max_commits_since_checkpoint",
        parse=quantities.parse_count,
        default=100,
        help="A table is unhealthy if opening it replays more commits than this.",
        minimum=1,
    ),
    Setting(
        name="max_checkpoint_age",
        parse=quantities.parse_duration,
        default=timedelta(days=7),
        help="A table is unhealthy if a checkpoint is due and the oldest commit without one is "
        "older than this.",
        minimum=timedelta(0),
    ),
    Setting(
        name="max_overlap_depth",
        parse=quantities.parse_number,
        default=8.0,
        help="A table is unhealthy if its average overlap depth in its clustering columns is above"
        " this.",
        minimum=1.0,
    ),
    Setting(
        name="max_orphan_bytes",
        parse=quantities.parse_bytes,
        default=10 * _GIB,
        help="A table is unhealthy if files that no version needs take more than this; checked "
        "only on request.",
        minimum=0,
    ),
)
