"""Settings of writers: sinks, `append` and `overwrite`."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model.quantities import (
    OneOf,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_http_url,
    parse_names,
    parse_string,
)
from lakehand.model.secrets import parse_secret
from lakehand.settings.setting import Setting

_MIB = 2**20

#: Identity, delivery guarantee and write mode of sinks.
SINK: tuple[Setting, ...] = (
    Setting(
        name="writer_id",
        parse=parse_string,
        default=None,
        help="Name of a writer, under which the table records its epochs; required for exactly-"
        "once.",
        aliases=("writer.id", "writerId", "txnAppId"),
    ),
    Setting(
        name="delivery",
        parse=OneOf("exactly-once", "at-least-once"),
        default=None,
        help="Delivery guarantee of a sink; not set: exactly-once if it has a writer id, else at-"
        "least-once.",
        aliases=("delivery.guarantee", "deliveryGuarantee"),
    ),
    Setting(
        name="write_mode",
        parse=OneOf("append", "overwrite", "upsert", "merge"),
        default="append",
        help="Whether the rows of an epoch are appended, overwrite the table, or are upserted "
        "(upsert or merge) by merge_key.",
        aliases=("write.mode", "writeMode"),
    ),
    Setting(
        name="merge_key",
        parse=parse_names,
        default=(),
        help="Key columns of a sink that upserts.",
        aliases=("merge.key.columns", "mergeKeyColumns"),
    ),
    Setting(
        name="partition_by",
        parse=parse_names,
        default=(),
        help="Partition columns of a table that a sink creates; an existing table must be "
        "partitioned by them.",
        aliases=("partition.columns", "partitionColumns"),
    ),
    Setting(
        name="create_table",
        parse=parse_bool,
        default=True,
        help="Whether a sink creates a table that does not exist with its first rows.",
        aliases=("create.table", "createTable"),
    ),
    Setting(
        name="epoch_gaps",
        parse=OneOf("warn", "refuse", "allow"),
        default="warn",
        help="What a sink does if epochs are missing between the table's last epoch and the next "
        "one. With refuse, an epoch without rows is recorded in the table as well.",
        aliases=("epoch.gaps",),
    ),
)

#: How rows are matched to the schema, buffered and written.
WRITING: tuple[Setting, ...] = (
    Setting(
        name="schema_evolution",
        parse=parse_bool,
        default=False,
        help="Whether new columns in the rows are added to the table; earlier rows have null "
        "there.",
        aliases=("schema.evolution", "schemaEvolution", "mergeSchema"),
    ),
    Setting(
        name="type_widening",
        parse=parse_bool,
        default=False,
        help="Whether wider types in the rows widen the table's columns; needs schema_evolution, "
        "and readers that support the feature typeWidening.",
        aliases=("type.widening", "typeWidening", "schema.evolution.type.widening"),
    ),
    Setting(
        name="catalog_type",
        parse=OneOf("none", "glue", "unity"),
        default="none",
        help="Catalog that the table is registered in; only none is supported.",
        aliases=("catalog.type",),
    ),
    Setting(
        name="max_buffer_records",
        parse=parse_count,
        default=100_000,
        help="Rows that a sink buffers before it writes them; four times as many may wait.",
        aliases=("max.buffer.records", "maxBufferRecords"),
        minimum=1,
    ),
    Setting(
        name="max_buffer_age",
        parse=parse_duration,
        default=timedelta(minutes=1),
        help="How long an at-least-once sink buffers rows before it commits them.",
        aliases=("max.buffer.duration", "maxBufferDuration"),
        aliases_by_unit=(("max.buffer.duration.ms", "ms"),),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="write_timeout",
        parse=parse_duration,
        default=timedelta(seconds=30),
        help="How long a call of a sink, or `flush` of a hot table, waits for a write or commit "
        "before it raises WriteTimeoutError. The work continues; call again to wait for it.",
        aliases=("write.timeout", "writeTimeout"),
        aliases_by_unit=(("write.timeout.ms", "ms"),),
        minimum=timedelta(seconds=5),
    ),
    Setting(
        name="on_backpressure",
        parse=OneOf("error", "wait"),
        default="error",
        help="What a sink does with a batch if too many rows are buffered: refuse it, or block the"
        " caller for at most `write_timeout`.",
        aliases=("on.backpressure",),
    ),
    Setting(
        name="row_group_rows",
        parse=parse_count,
        default=1_000_000,
        help="Maximum number of rows in a row group of files that sinks write.",
        aliases=("parquet.row.group.rows", "parquet.max.row.group.size"),
        minimum=1,
    ),
    Setting(
        name="write_memory_bytes",
        parse=parse_bytes,
        default=256 * _MIB,
        help="Memory for rows that wait for full row groups, over all partitions.",
        minimum=_MIB,
    ),
    Setting(
        name="write_threads",
        parse=parse_count,
        default=2,
        help="Row groups that a sink encodes in parallel.",
        minimum=1,
    ),
)

#: Whom writers tell of their commits.
NOTIFICATION: tuple[Setting, ...] = (
    Setting(
        name="notify_url",
        parse=parse_http_url,
        default=None,
        help="Address of a lakehand service, such as http://127.0.0.1:8484, that writers notify "
        "after each commit, in the background. Not set: none.",
        aliases=("notify.url", "notifyUrl"),
    ),
    Setting(
        name="notify_token",
        parse=parse_secret,
        default=None,
        help="Where the token for notify_url is: env:VARIABLE or file:/path. It is read when a "
        "notification is sent.",
        aliases=("notify.token", "notifyToken"),
    ),
)

#: Maintenance that writers run in the background, and that `maintain` runs.
BACKGROUND: tuple[Setting, ...] = (
    Setting(
        name="sink_maintenance",
        parse=parse_bool,
        default=True,
        help="Whether sinks and Spark writes compact or cluster their table and vacuum it, as "
        "`maintain` does. Checkpoints are written in any case.",
        aliases=("sink.maintenance", "maintenance.enabled"),
    ),
    Setting(
        name="maintenance_commits",
        parse=parse_count,
        default=10,
        help="After this many commits, a sink or Spark write checks whether its table needs "
        "maintenance.",
        aliases=("compaction.check-commits", "check_interval_commits"),
        minimum=1,
    ),
    Setting(
        name="maintenance_interval",
        parse=parse_duration,
        default=timedelta(minutes=5),
        help="After this time, a sink checks again whether its table needs maintenance, even "
        "without a commit; a Spark write checks if the last check of any writer is this long "
        "ago.",
        aliases=("compaction.check-interval",),
        aliases_by_unit=(("compaction.check-interval.ms", "ms"),),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="vacuum_interval",
        parse=parse_duration,
        default=None,
        help="Minimum time between two vacuums of a table by `maintain`, sinks and Spark writes. "
        "Not set: `maintain` vacuums whenever it runs, the others once a day, first a day "
        "after their first check.",
        aliases=("vacuum.interval",),
        minimum=timedelta(0),
    ),
)
