"""The table of settings: name, type, default, help, aliases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.errors import ValidationError
from lakehand.model.spellings import one_of, parse_auto, parse_bool, parse_bytes, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SETTINGS", "Setting"]

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One thing that a user can set."""

    name: str
    parse: Callable[[Any], Any]
    #: None: not set; what happens then is said in `help`.
    default: Any
    help: str
    #: Spellings that users bring along: dotted options, camelCase, SQL options.
    aliases: tuple[str, ...] = ()
    #: Property of the table that gives the value when neither call nor environment does.
    table_property: str | None = None
    #: Smallest value allowed.
    minimum: Any = None
    #: Largest value allowed.
    maximum: Any = None

    @property
    def environment(self) -> str:
        return f"LAKEHAND_{self.name.upper()}"

    def read(self, value: Any, source: str) -> Any:
        """Parse and check `value`; `source` says where it came from."""
        try:
            parsed = self.parse(value)
        except (ValueError, TypeError) as error:
            message = f"{source}: {self.name} cannot be set to {value!r}: {error}"
            raise ValidationError(message, field=self.name, value=value) from error
        if self.minimum is not None and parsed < self.minimum:
            message = f"{source}: {self.name} is {value!r}, but must be at least {self.minimum}"
            raise ValidationError(message, field=self.name, value=value)
        if self.maximum is not None and parsed > self.maximum:
            message = f"{source}: {self.name} is {value!r}, but must be at most {self.maximum}"
            raise ValidationError(message, field=self.name, value=value)
        return parsed


SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="target_file_bytes",
        parse=parse_bytes,
        default=128 * MIB,
        help="Size that each rewritten file aims for.",
        aliases=("target.file.size", "targetFileSize", "compaction.target-file-size"),
        table_property="delta.targetFileSize",
        minimum=1,
    ),
    Setting(
        name="small_file_ratio",
        parse=float,
        default=0.5,
        help="A file is small when it is below this part of the target size.",
        minimum=0.0,
        # Files are written within a tenth of the target: more would make small ones for ever.
        maximum=0.9,
    ),
    Setting(
        name="oversized_file_ratio",
        parse=float,
        default=10.0,
        help="A file is split when it is above this many times the target size.",
        minimum=2.0,
    ),
    Setting(
        name="deleted_row_ratio",
        parse=float,
        default=0.05,
        help="A file is worth rewriting when more than this part of its rows is deleted.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="min_files",
        parse=int,
        default=4,
        help="Fewer small files than this in a partition are left alone.",
        aliases=("minFiles", "minFilesForCompaction", "compaction.min-files"),
        minimum=2,
    ),
    Setting(
        name="auto_compact",
        parse=parse_auto,
        default=True,
        help="Whether automatic runs may rewrite the table; whoever asks by hand always may.",
        aliases=("compaction.enabled", "autoCompact"),
        table_property="delta.autoOptimize.autoCompact",
    ),
    Setting(
        name="automatic_min_files",
        parse=int,
        default=10,
        help="The same in automatic runs, unless `min_files` is set.",
        aliases=("compact_threshold_files", "compaction.automatic-min-files"),
        minimum=2,
    ),
    Setting(
        name="quiet_period",
        parse=parse_duration,
        default=timedelta(minutes=5),
        help="Automatic runs leave partitions alone that were written to within this time; runs by"
        " hand do so only if the call gives it.",
        aliases=("quietPeriod", "compaction.quiet-period"),
        minimum=timedelta(0),
    ),
    Setting(
        name="strategy",
        parse=one_of("greedy", "bin-packing", "sort-by-size"),
        default="greedy",
        help="How small files are put together: in their order, to fill files best, or by size.",
        aliases=("compaction.strategy", "compactionStrategy"),
    ),
    Setting(
        name="max_bytes_per_run",
        parse=parse_bytes,
        default=None,
        help="A run rewrites at most this many bytes and leaves the rest; not set: all of them.",
        aliases=("maxBytesPerRun", "compaction.max-bytes"),
        minimum=1,
    ),
    Setting(
        name="max_files_per_run",
        parse=int,
        default=None,
        help="A run rewrites at most this many files and leaves the rest; not set: all of them.",
        aliases=("maxFilesPerRun", "compaction.max-files"),
        minimum=1,
    ),
    Setting(
        name="max_groups_per_run",
        parse=int,
        default=None,
        help="A run rewrites at most this many groups and leaves the rest; not set: all of them.",
        aliases=("maxGroupsPerRun", "compaction.max-groups"),
        minimum=1,
    ),
    Setting(
        name="max_surveyed_files",
        parse=int,
        default=10_000,
        help="A plan reads the footers of at most this many files, the largest ones.",
        minimum=0,
    ),
    Setting(
        name="rehearsed_bytes",
        parse=parse_bytes,
        default=16 * MIB,
        help="A plan rewrites this much into a temporary directory, to forecast sizes; 0: nothing.",
        minimum=0,
    ),
    Setting(
        name="prove",
        parse=one_of("digest", "independent", "counts"),
        default="digest",
        help="How new files are proved: rows read back, read back by another decoder, or counted"
        " only.",
    ),
    Setting(
        name="checkpoint_interval",
        parse=int,
        default=10,
        help="A checkpoint is due when the newest complete one is this many commits behind.",
        aliases=("checkpoint.interval", "checkpointInterval"),
        table_property="delta.checkpointInterval",
        minimum=1,
    ),
    Setting(
        name="max_retries",
        parse=int,
        default=3,
        help="How often a store error that may pass is tried again.",
        aliases=("max.commit.retries", "maxRetries"),
        minimum=0,
    ),
    Setting(
        name="retry_base_delay",
        parse=parse_duration,
        default=timedelta(milliseconds=100),
        help="Wait before the first retry; doubles with each further one.",
        aliases=("baseDelay",),
        minimum=timedelta(0),
    ),
    Setting(
        name="retry_max_delay",
        parse=parse_duration,
        default=timedelta(seconds=10),
        help="Longest wait between two retries.",
        aliases=("maxDelay",),
        minimum=timedelta(0),
    ),
    Setting(
        name="commit_attempts",
        parse=int,
        default=100,
        help="How often a commit is rebased over other writers' commits before it gives up.",
        minimum=1,
    ),
    Setting(
        name="commit_timeout",
        parse=parse_duration,
        default=timedelta(minutes=5),
        help="How long a commit is rebased over other writers' commits before it gives up.",
        minimum=timedelta(0),
    ),
    Setting(
        name="commit_every_groups",
        parse=int,
        default=None,
        help="A long run commits whenever this many groups are proved; not set: once, at its end.",
        aliases=("commitEveryGroups", "compaction.commit-every-groups"),
        minimum=1,
    ),
    Setting(
        name="commit_every",
        parse=parse_duration,
        default=None,
        help="A long run commits proved groups when its last commit is this long ago; not set:"
        " once, at its end.",
        aliases=("commitEvery", "compaction.commit-every"),
        minimum=timedelta(0),
    ),
    Setting(
        name="engine",
        parse=one_of("spark", "local"),
        default="spark",
        help="Where tasks run: on Spark, or in processes of this machine without Java.",
    ),
    Setting(
        name="master",
        parse=str,
        default=None,
        help="Spark master URL; not set: the session's own, else local[*,3].",
    ),
    Setting(
        name="remote",
        parse=str,
        default=None,
        help="Spark Connect URL (sc://host:port); not set: no Spark Connect.",
    ),
    Setting(
        name="task_memory_bytes",
        parse=parse_bytes,
        default=2 * GIB,
        help="Memory that one task may use; DuckDB gets half of it.",
        minimum=64 * MIB,
    ),
    Setting(
        name="scratch_bytes",
        parse=parse_bytes,
        default=64 * GIB,
        help="Local disk that one task may use for inputs, spill and outputs.",
        minimum=64 * MIB,
    ),
    Setting(
        name="scratch_directory",
        parse=str,
        default=None,
        help="Directory for scratch files; not set: the system's directory for temporary files.",
    ),
    Setting(
        name="heartbeat_interval",
        parse=parse_duration,
        default=timedelta(seconds=15),
        help="How often a run says in its ledger that it is alive.",
    ),
    Setting(
        name="takeover_after",
        parse=parse_duration,
        default=timedelta(minutes=2),
        help="How long a run must be silent before another may take over its files.",
    ),
    Setting(
        name="retention",
        parse=parse_duration,
        default=None,
        help="How long vacuum keeps files after the last version that needs them; not set: what "
        "the table asks for, and at least 7 days.",
        aliases=("vacuum.retention", "retentionDuration"),
    ),
    Setting(
        name="allow_short_retention",
        parse=parse_bool,
        default=False,
        help="Let vacuum keep files for a shorter time than the table's readers may count on.",
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
        name="max_small_file_ratio",
        parse=float,
        default=0.5,
        help="A table is unhealthy if compaction would save more than this part of its files, and"
        " at least `min_files` of them.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="max_deleted_row_ratio",
        parse=float,
        default=0.1,
        help="A table is unhealthy if more than this part of the rows in its files is deleted.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="max_commits_since_checkpoint",
        parse=int,
        default=100,
        help="A table is unhealthy if more commits than this have to be replayed to open it.",
        minimum=1,
    ),
    Setting(
        name="max_checkpoint_age",
        parse=parse_duration,
        default=timedelta(days=7),
        help="A table is unhealthy if a checkpoint is due and the oldest commit that none covers is"
        " older than this.",
        minimum=timedelta(0),
    ),
    Setting(
        name="max_orphan_bytes",
        parse=parse_bytes,
        default=10 * GIB,
        help="A table is unhealthy if files that no version needs take more than this; looked at"
        " only where asked for.",
        minimum=0,
    ),
    Setting(
        name="partition_time_zone",
        parse=str,
        default="UTC",
        help="Zone of partition timestamps that carry none.",
    ),
    Setting(
        name="log_level",
        parse=one_of("debug", "info", "warning", "error"),
        default="warning",
        help="Least severe log records shown by the command.",
    ),
    Setting(
        name="log_format",
        parse=one_of("text", "json"),
        default="text",
        help="Form of the log records shown by the command.",
    ),
)
