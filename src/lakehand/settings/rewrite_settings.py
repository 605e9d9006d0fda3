"""Settings of rewrites: how files are selected, rewritten and proved."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from lakehand.model import quantities
from lakehand.model.order import CURVE_SYNONYMS, Curve
from lakehand.model.work import ProveMode, ServerSideCopy, Strategy
from lakehand.settings.setting import Setting

_MIB = 2**20

COMPACTION: tuple[Setting, ...] = (
    Setting(
        name="target_file_bytes",
        parse=quantities.parse_bytes,
        default=128 * _MIB,
        help="Target size of rewritten files.",
        aliases=("target.file.size", "targetFileSize", "compaction.target-file-size"),
        aliases_by_unit=(("target_file_size_mb", "MB"), ("compact_target_file_size_mb", "MB")),
        table_property="delta.targetFileSize",
        minimum=1,
    ),
    Setting(
        name="small_file_ratio",
        parse=quantities.parse_number,
        default=0.5,
        help="A file is small if it is below this fraction of the target size.",
        minimum=0.0,
        # Written files deviate by up to a tenth from the target: a larger value would count them as
        # small again.
        maximum=0.9,
    ),
    Setting(
        name="small_file_bytes",
        parse=quantities.parse_bytes,
        default=None,
        help="A file is small if it is below this size, which counts as at most 0.9 of the target "
        "size. Not set: small_file_ratio decides.",
        aliases=("min_file_size", "minFileSize", "compaction.min-file-size"),
        aliases_by_unit=(("min_file_size_mb", "MB"), ("compact_threshold_mb", "MB")),
        minimum=0,
    ),
    Setting(
        name="oversized_file_ratio",
        parse=quantities.parse_number,
        default=10.0,
        help="A file is split if it is above this many times the target size.",
        minimum=2.0,
    ),
    Setting(
        name="deleted_row_ratio",
        parse=quantities.parse_number,
        default=0.05,
        help="A file is rewritten if more than this fraction of its rows is deleted.",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting(
        name="min_files",
        parse=quantities.parse_count,
        default=4,
        help="Minimum number of small files in a partition to compact.",
        aliases=(
            "minFiles",
            "minFilesForCompaction",
            "min_files_for_compaction",
            "compaction.min-files",
        ),
        minimum=2,
    ),
    Setting(
        name="auto_compact",
        parse=quantities.parse_auto,
        default=True,
        help="Whether automatic runs may rewrite the table; runs by hand always may.",
        aliases=("compaction.enabled", "autoCompact"),
        table_property="delta.autoOptimize.autoCompact",
    ),
    Setting(
        name="automatic_min_files",
        parse=quantities.parse_count,
        default=10,
        help="Minimum number of small files in a partition to compact in automatic runs, unless "
        "`min_files` is set.",
        aliases=("compact_threshold_files", "compaction.automatic-min-files"),
        minimum=2,
    ),
    Setting(
        name="quiet_period",
        parse=quantities.parse_duration,
        default=timedelta(minutes=5),
        help="Automatic runs skip files written within this time, and their whole partition if "
        "rows of the table were deleted, updated or overwritten within it: a compaction can "
        "make such a writer fail, but not an append. Runs by hand do so only if the call sets"
        " it.",
        aliases=("quietPeriod", "compaction.quiet-period"),
        minimum=timedelta(0),
    ),
    Setting(
        name="quiet_period_max",
        parse=quantities.parse_duration,
        default=timedelta(hours=1),
        help="If a small file of a partition whose rows are being changed has waited this long, "
        "automatic runs rewrite the files of the partition that are older than quiet_period.",
        aliases=("quietPeriodMax", "compaction.quiet-period-max"),
        minimum=timedelta(0),
    ),
    Setting(
        name="cluster_by",
        parse=quantities.parse_names,
        default=(),
        help="Columns by which automatic runs (sinks, Spark writes, maintain) cluster the table. "
        "Not set: the table's clustering columns, else the columns that it was last clustered"
        " or sorted by; a table without any is compacted.",
        aliases=(
            "z_order_columns",
            "zOrderColumns",
            "clusterBy",
            "compaction.cluster-by",
            "compaction.z-order.columns",
        ),
    ),
    Setting(
        name="auto_cluster",
        parse=quantities.parse_bool,
        default=True,
        help="Whether automatic runs cluster a table that has columns to cluster by; otherwise "
        "they compact it.",
        aliases=("z_order_enabled", "zOrderEnabled", "compaction.z-order.enabled"),
    ),
    Setting(
        name="cluster_curve",
        parse=quantities.OneOf(*get_args(Curve), synonyms=CURVE_SYNONYMS),
        default="hilbert",
        help="Space-filling curve of automatic runs that cluster by cluster_by or by the table's "
        "clustering columns. A table that is clustered by the same columns keeps its curve.",
        aliases=("compaction.cluster-curve",),
    ),
    Setting(
        name="strategy",
        parse=quantities.OneOf(*get_args(Strategy)),
        default="greedy",
        help="How small files are grouped: in their order, for the fullest files, or by size.",
        aliases=("compaction.strategy", "compactionStrategy"),
    ),
    Setting(
        name="max_bytes_per_run",
        parse=quantities.parse_bytes,
        default=None,
        help="Maximum number of bytes that a run rewrites; not set: no limit.",
        aliases=("maxBytesPerRun", "compaction.max-bytes"),
        minimum=1,
    ),
    Setting(
        name="max_files_per_run",
        parse=quantities.parse_count,
        default=None,
        help="Maximum number of files that a run rewrites; not set: no limit.",
        aliases=("maxFilesPerRun", "compaction.max-files"),
        minimum=1,
    ),
    Setting(
        name="max_groups_per_run",
        parse=quantities.parse_count,
        default=None,
        help="Maximum number of groups that a run rewrites; not set: no limit.",
        aliases=("maxGroupsPerRun", "compaction.max-groups"),
        minimum=1,
    ),
    Setting(
        name="max_surveyed_files",
        parse=quantities.parse_count,
        default=10_000,
        help="Maximum number of files whose footers a plan reads, the largest first.",
        minimum=0,
    ),
    Setting(
        name="rehearsed_bytes",
        parse=quantities.parse_bytes,
        default=16 * _MIB,
        help="How many bytes a plan rewrites into a temporary directory to forecast sizes; 0: "
        "none.",
        minimum=0,
    ),
    Setting(
        name="sort_task_bytes",
        parse=quantities.parse_bytes,
        default=4096 * _MIB,
        help="More bytes than this are sorted by many tasks with a shuffle, not by one.",
        minimum=0,
    ),
    Setting(
        name="update_indices",
        parse=quantities.parse_bool,
        default=False,
        help="Whether compaction adds new rows to the table's indices, in a separate commit; Lance"
        " tables only.",
    ),
    Setting(
        name="server_side_copy",
        parse=quantities.OneOf(*get_args(ServerSideCopy)),
        default="auto",
        help="Whether row groups are copied on the S3 server, without a download. auto: if the"
        " store has checksums that prove the copy; always: a group that cannot be copied so fails.",
        aliases=("copy.server-side", "serverSideCopy"),
    ),
    Setting(
        name="prove",
        parse=quantities.OneOf(*get_args(ProveMode)),
        default="digest",
        help="How new files are proved: by rows read back, by rows read back with another decoder,"
        " or by row counts only. verifyIntegrity = true is digest; false is refused, because every"
        " rewrite is proved.",
        aliases_by_value=(("verifyIntegrity", {"true": "digest"}),),
    ),
)

#: How rewrites and writers write new files.
FILES: tuple[Setting, ...] = (
    Setting(
        name="codec",
        parse=quantities.OneOf("zstd", "snappy", "gzip", "lz4", "none"),
        default=None,
        help="Compression codec of new Parquet files, for every verb that writes files. Not set: "
        "the table property delta.parquet.compression.codec, else the codec of the rewritten "
        "files, else zstd level 1. Lance tables choose their own encodings.",
        aliases=("parquet.compression", "parquet.codec"),
    ),
    Setting(
        name="compression_level",
        parse=quantities.parse_count,
        default=None,
        help="Compression level of new Parquet files whose codec is zstd, or gzip (at most 9 "
        "there); row groups that are copied keep theirs. Not set: 1 for zstd.",
        aliases=("parquet.compression.level", "compressionLevel"),
        minimum=1,
        maximum=22,
    ),
    Setting(
        name="dictionary_encoding",
        parse=quantities.parse_bool,
        default=True,
        help="Whether new Parquet files have dictionaries, in columns where they save space.",
        aliases=("parquet.dictionary", "parquet.dictionary.enabled"),
    ),
    Setting(
        name="parquet_statistics",
        parse=quantities.OneOf("page", "chunk"),
        default="page",
        help="Statistics in new Parquet files: of row groups and their pages, or of row groups "
        "only.",
        aliases=("parquet.statistics",),
    ),
    Setting(
        name="bloom_columns",
        parse=quantities.parse_names,
        default=(),
        help="Columns with Bloom filters in new Parquet files, for every verb that writes files; a"
        " rewrite copies only row groups that have them.",
        aliases=("parquet.bloom.columns", "parquet.bloom.filter.columns"),
    ),
    Setting(
        name="bloom_fpp",
        parse=quantities.parse_part,
        default=0.01,
        help="Target false-positive rate of Bloom filters.",
        aliases=("parquet.bloom.fpp", "parquet.bloom.filter.fpp"),
    ),
)
