"""How rows are written: sinks, `append` and `overwrite`."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model.spellings import (
    one_of,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_names,
    parse_part,
    parse_text,
)
from lakehand.settings_table.setting import Setting

__all__ = ["SINK"]

_MIB = 2**20

SINK: tuple[Setting, ...] = (
    Setting(
        name="writer_id",
        parse=parse_text,
        default=None,
        help="Name of a writer, by which a table knows what it has of it; needed for exactly-once.",
        aliases=("writer.id", "writerId", "txnAppId"),
    ),
    Setting(
        name="delivery",
        parse=one_of("exactly-once", "at-least-once"),
        default=None,
        help="What a sink promises; not set: exactly-once if it has a writer id, else"
        " at-least-once.",
        aliases=("delivery.guarantee", "deliveryGuarantee"),
    ),
    Setting(
        name="write_mode",
        parse=one_of("append", "overwrite", "upsert", "merge"),
        default="append",
        help="Whether the rows of an epoch are added to the table, take the place of what is there,"
        " or, as upsert (or merge), that of the rows with the same merge_key.",
        aliases=("write.mode", "writeMode"),
    ),
    Setting(
        name="merge_key",
        parse=parse_names,
        default=(),
        help="Columns by which a sink that upserts finds the rows that new ones replace.",
        aliases=("merge.key.columns", "mergeKeyColumns"),
    ),
    Setting(
        name="partition_by",
        parse=parse_names,
        default=(),
        help="Columns that a table is partitioned by if a sink creates it; one that exists must be"
        " partitioned so.",
        aliases=("partition.columns", "partitionColumns"),
    ),
    Setting(
        name="create_table",
        parse=parse_bool,
        default=True,
        help="Whether the first rows of a sink create a table that is not there.",
        aliases=("create.table", "createTable"),
    ),
    Setting(
        name="schema_evolution",
        parse=parse_bool,
        default=False,
        help="Whether a table takes on columns that rows bring along; they are null in all rows"
        " before.",
        aliases=("schema.evolution", "schemaEvolution", "mergeSchema"),
    ),
    Setting(
        name="type_widening",
        parse=parse_bool,
        default=False,
        help="Whether a table takes on wider types of rows, too, beside schema_evolution. It then"
        " needs readers that know the feature typeWidening.",
        aliases=("type.widening", "typeWidening", "schema.evolution.type.widening"),
    ),
    Setting(
        name="catalog_type",
        parse=one_of("none", "glue", "unity"),
        default="none",
        help="Where the table is registered; only none is there.",
        aliases=("catalog.type",),
    ),
    Setting(
        name="max_buffer_records",
        parse=parse_count,
        default=100_000,
        help="Rows that a sink gathers before it writes them; four times as many may wait.",
        aliases=("max.buffer.records", "maxBufferRecords"),
        minimum=1,
    ),
    Setting(
        name="max_buffer_age",
        parse=parse_duration,
        default=timedelta(minutes=1),
        help="How long rows wait in an at-least-once sink before they are committed.",
        aliases=("max.buffer.duration", "maxBufferDuration"),
        aliases_by_unit=(("max.buffer.duration.ms", "ms"),),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="write_timeout",
        parse=parse_duration,
        default=timedelta(seconds=30),
        help="How long a call of a sink, or `flush` of a hot table, waits for a write or commit."
        " After it the call raises WriteTimeoutError; the work goes on, and the same call waits"
        " again.",
        aliases=("write.timeout", "writeTimeout"),
        aliases_by_unit=(("write.timeout.ms", "ms"),),
        minimum=timedelta(seconds=5),
    ),
    Setting(
        name="on_backpressure",
        parse=one_of("error", "wait"),
        default="error",
        help="What a sink does with a batch when too many rows wait: refuse it, or make the caller"
        " wait, at most for `write_timeout`.",
        aliases=("on.backpressure",),
    ),
    Setting(
        name="epoch_gaps",
        parse=one_of("warn", "refuse", "allow"),
        default="warn",
        help="What a sink does when epochs are missing between the last one in the table and the"
        " next. With refuse, an epoch without rows leaves its mark in the table, too.",
        aliases=("epoch.gaps",),
    ),
    Setting(
        name="codec",
        parse=one_of("zstd", "snappy", "gzip", "lz4", "none"),
        default=None,
        help="Compression codec of new Parquet files, by every verb that writes some. Not set: the"
        " table property delta.parquet.compression.codec, else the codec of the files that are"
        " rewritten, else zstd, level 1. Lance tables choose their own encodings.",
        aliases=("parquet.compression", "parquet.codec"),
    ),
    Setting(
        name="row_group_rows",
        parse=parse_count,
        default=1_000_000,
        help="Rows of a row group at most, in files that sinks write.",
        aliases=("parquet.row.group.rows", "parquet.max.row.group.size"),
        minimum=1,
    ),
    Setting(
        name="bloom_columns",
        parse=parse_names,
        default=(),
        help="Columns for which new Parquet files get Bloom filters, by every verb that writes"
        " some; a rewrite copies only row groups that have them.",
        aliases=("parquet.bloom.columns", "parquet.bloom.filter.columns"),
    ),
    Setting(
        name="bloom_fpp",
        parse=parse_part,
        default=0.01,
        help="Target false-positive rate of Bloom filters.",
        aliases=("parquet.bloom.fpp", "parquet.bloom.filter.fpp"),
    ),
    Setting(
        name="write_memory_bytes",
        parse=parse_bytes,
        default=256 * _MIB,
        help="Memory for rows that wait for their row groups to be full, over all partitions.",
        minimum=_MIB,
    ),
    Setting(
        name="write_threads",
        parse=parse_count,
        default=2,
        help="Row groups that a sink encodes at once.",
        minimum=1,
    ),
    Setting(
        name="sink_maintenance",
        parse=parse_bool,
        default=True,
        help="Whether sinks and writes on Spark compact or cluster their table and vacuum it, as"
        " `maintain` does. Checkpoints are written either way.",
        aliases=("sink.maintenance", "maintenance.enabled"),
    ),
    Setting(
        name="maintenance_commits",
        parse=parse_count,
        default=10,
        help="After so many commits a sink, or a write on Spark, looks whether its table needs"
        " maintenance.",
        aliases=("compaction.check-commits",),
        minimum=1,
    ),
    Setting(
        name="maintenance_interval",
        parse=parse_duration,
        default=timedelta(minutes=5),
        help="How long after its last look a sink looks again, whether it has committed or not; a"
        " write on Spark looks if the last look of any writer is this long ago.",
        aliases=("compaction.check-interval",),
        aliases_by_unit=(("compaction.check-interval.ms", "ms"),),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="vacuum_interval",
        parse=parse_duration,
        default=None,
        help="How often a table is vacuumed at most, by `maintain`, by sinks and by writes on"
        " Spark. Not set: by `maintain` whenever it runs, by the others once a day, for the first"
        " time a day after their first look.",
        aliases=("vacuum.interval",),
        minimum=timedelta(0),
    ),
)
