"""What vacuum keeps, and for how long."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model.spellings import one_of, parse_bool, parse_count, parse_duration
from lakehand.settings_table.setting import Setting

__all__ = ["RETENTION"]

RETENTION: tuple[Setting, ...] = (
    Setting(
        name="retention",
        parse=parse_duration,
        default=None,
        help="How long vacuum keeps files after the last version that needs them; not set: what "
        "the table asks for, and at least 7 days. Below 1 hour is never allowed: files of running"
        " writers would be deleted.",
        aliases=("vacuum.retention", "retentionDuration"),
        aliases_by_unit=(("vacuum.retention.hours", "h"),),
        minimum=timedelta(hours=1),
    ),
    Setting(
        name="allow_short_retention",
        parse=parse_bool,
        default=False,
        help="Allow a retention below the table's own and below 7 days, down to 1 hour; readers of"
        " older versions may fail.",
    ),
    Setting(
        name="keep_versions",
        parse=parse_count,
        default=1,
        help="How many of the newest versions vacuum keeps in full, however old they are; those"
        " within the retention stay in any case.",
        minimum=1,
    ),
    Setting(
        name="grace",
        parse=parse_duration,
        default=timedelta(hours=24),
        help="How long vacuum leaves files in place that it has set aside; 0 deletes at once.",
        minimum=timedelta(0),
    ),
    Setting(
        name="vacuum_entries",
        parse=one_of("auto", "always", "never"),
        default="auto",
        help="Whether vacuum notes in the table's history when it starts and ends deleting; auto:"
        " as delta-spark does, everywhere but on S3.",
    ),
    Setting(
        name="vacuum_stale_metadata",
        parse=parse_bool,
        default=False,
        help="Let vacuum delete files that Iceberg, Hudi or symlink metadata beside the table may"
        " still name.",
    ),
    Setting(
        name="vacuum_tasks_above",
        parse=parse_count,
        default=500_000,
        help="With so many files, vacuum lists and deletes the others in tasks, where a Spark"
        " session is there or Spark was asked for; without, it does all of it itself.",
        minimum=0,
    ),
)
