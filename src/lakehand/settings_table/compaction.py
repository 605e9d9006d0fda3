"""How files are chosen, rewritten and proved."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model.spellings import (
    one_of,
    parse_auto,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_names,
    parse_number,
)
from lakehand.settings_table.setting import Setting

__all__ = ["COMPACTION"]

_MIB = 2**20

COMPACTION: tuple[Setting, ...] = (
    Setting(
        name="target_file_bytes",
        parse=parse_bytes,
        default=128 * _MIB,
        help="Size that each rewritten file aims for.",
        aliases=("target.file.size", "targetFileSize", "compaction.target-file-size"),
        table_property="delta.targetFileSize",
        minimum=1,
    ),
    Setting(
        name="small_file_ratio",
        parse=parse_number,
        default=0.5,
        help="A file is small when it is below this part of the target size.",
        minimum=0.0,
        # Files are written within a tenth of the target: more would make small ones for ever.
        maximum=0.9,
    ),
    Setting(
        name="oversized_file_ratio",
        parse=parse_number,
        default=10.0,
        help="A file is split when it is above this many times the target size.",
        minimum=2.0,
    ),
    Setting(
        name="deleted_row_ratio",
        parse=parse_number,
        default=0.05,
        help="A file is worth rewriting when more than this part of its rows is deleted.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="min_files",
        parse=parse_count,
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
        parse=parse_count,
        default=10,
        help="The same in automatic runs, unless `min_files` is set.",
        aliases=("compact_threshold_files", "compaction.automatic-min-files"),
        minimum=2,
    ),
    Setting(
        name="quiet_period",
        parse=parse_duration,
        default=timedelta(minutes=5),
        help="Automatic runs leave files alone that were written within this time, and all files of"
        " their partitions if rows of the table were deleted, updated or overwritten within it:"
        " such writers may fail because of a compaction, appends do not. Runs by hand do so only if"
        " the call gives it.",
        aliases=("quietPeriod", "compaction.quiet-period"),
        minimum=timedelta(0),
    ),
    Setting(
        name="quiet_period_max",
        parse=parse_duration,
        default=timedelta(hours=1),
        help="When a small file of a partition whose rows are being changed has waited this long,"
        " automatic runs rewrite the partition's files that are older than quiet_period.",
        aliases=("quietPeriodMax", "compaction.quiet-period-max"),
        minimum=timedelta(0),
    ),
    Setting(
        name="cluster_by",
        parse=parse_names,
        default=(),
        help="Columns that automatic runs cluster the table by: those of sinks, of writes on Spark"
        " and of maintain. Not set: the table's clustering columns, else the order that it was last"
        " clustered or sorted in; a table without any is compacted.",
        aliases=("z_order_columns", "zOrderColumns", "clusterBy", "compaction.cluster-by"),
    ),
    Setting(
        name="cluster_curve",
        parse=one_of("hilbert", "zorder", "linear"),
        default="hilbert",
        help="Curve along which automatic runs cluster by cluster_by, or by the table's clustering"
        " columns; an order that the table has of the same columns is kept.",
        aliases=("compaction.cluster-curve",),
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
        parse=parse_count,
        default=None,
        help="A run rewrites at most this many files and leaves the rest; not set: all of them.",
        aliases=("maxFilesPerRun", "compaction.max-files"),
        minimum=1,
    ),
    Setting(
        name="max_groups_per_run",
        parse=parse_count,
        default=None,
        help="A run rewrites at most this many groups and leaves the rest; not set: all of them.",
        aliases=("maxGroupsPerRun", "compaction.max-groups"),
        minimum=1,
    ),
    Setting(
        name="max_surveyed_files",
        parse=parse_count,
        default=10_000,
        help="A plan reads the footers of at most this many files, the largest ones.",
        minimum=0,
    ),
    Setting(
        name="rehearsed_bytes",
        parse=parse_bytes,
        default=16 * _MIB,
        help="A plan rewrites this much into a temporary directory, to forecast sizes; 0: nothing.",
        minimum=0,
    ),
    Setting(
        name="sort_task_bytes",
        parse=parse_bytes,
        default=4096 * _MIB,
        help="Files of more bytes than this are put in order by many tasks, whose rows are"
        " shuffled, and not by one.",
        minimum=0,
    ),
    Setting(
        name="update_indices",
        parse=parse_bool,
        default=False,
        help="Let compaction add rows that came after them to the table's indices, in a commit of"
        " its own; only Lance tables have some.",
    ),
    Setting(
        name="prove",
        parse=one_of("digest", "independent", "counts"),
        default="digest",
        help="How new files are proved: rows read back, read back by another decoder, or counted"
        " only.",
    ),
)
