"""Settings that all operations share: commits, storage, tasks and logs."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model import quantities
from lakehand.model.secrets import parse_remote
from lakehand.settings.setting import Setting

_MIB, _GIB = 2**20, 2**30

RUNNING: tuple[Setting, ...] = (
    Setting(
        name="checkpoint_interval",
        parse=quantities.parse_count,
        default=10,
        help="A checkpoint is due if the newest complete one is this many commits behind.",
        aliases=("checkpoint.interval", "checkpointInterval"),
        table_property="delta.checkpointInterval",
        minimum=1,
        maximum=2**31 - 1,
    ),
    Setting(
        name="max_retries",
        parse=quantities.parse_count,
        default=3,
        help="How many times a retryable storage error, or a commit of a sink that lost to another "
        "writer, is retried.",
        aliases=("max.commit.retries", "maxRetries"),
        minimum=0,
    ),
    Setting(
        name="retry_base_delay",
        parse=quantities.parse_duration,
        default=timedelta(milliseconds=100),
        help="Wait before the first retry of a storage request; doubles with each further retry.",
        aliases=("baseDelay",),
        minimum=timedelta(0),
    ),
    Setting(
        name="retry_max_delay",
        parse=quantities.parse_duration,
        default=timedelta(seconds=10),
        help="Longest wait between two retries of a storage request.",
        aliases=("maxDelay",),
        minimum=timedelta(0),
    ),
    Setting(
        name="commit_attempts",
        parse=quantities.parse_count,
        default=100,
        help="How many times a commit is rebased over other writers' commits before it fails.",
        minimum=1,
    ),
    Setting(
        name="commit_timeout",
        parse=quantities.parse_duration,
        default=timedelta(minutes=5),
        help="How long a commit to a Delta table is rebased over other writers' commits before it "
        "fails.",
        minimum=timedelta(0),
    ),
    Setting(
        name="commit_every_groups",
        parse=quantities.parse_count,
        default=None,
        help="A long run commits after every this many proved groups; not set: once, at its end.",
        aliases=("commitEveryGroups", "compaction.commit-every-groups"),
        minimum=1,
    ),
    Setting(
        name="commit_every",
        parse=quantities.parse_duration,
        default=None,
        help="A long run commits proved groups if its last commit is this long ago; not set: once,"
        " at its end.",
        aliases=("commitEvery", "compaction.commit-every"),
        minimum=timedelta(0),
    ),
    Setting(
        name="engine",
        parse=quantities.OneOf("auto", "spark", "local"),
        default="auto",
        help="Where tasks run: on Spark, or in local processes without Java. auto: on Spark if "
        "there is a session, master or remote, or if there are more than spark_above_bytes to"
        " read; rewrites of up to 16 MiB without any other process.",
    ),
    Setting(
        name="master",
        parse=quantities.parse_string,
        default=None,
        help="Spark master URL; not set: the session's own, else local[*,3].",
    ),
    Setting(
        name="remote",
        parse=parse_remote,
        default=None,
        help="Spark Connect URL (sc://host:port), or env:VARIABLE or file:/path of one with a"
        " token; not set: no Spark Connect.",
    ),
    Setting(
        name="spark_above_bytes",
        parse=quantities.parse_bytes,
        default=_GIB,
        help="Spark is started for work that reads more than this; smaller work runs in local "
        "processes, unless Spark was requested. Bytes that are copied unchanged count a "
        "sixteenth.",
        minimum=0,
    ),
    Setting(
        name="task_memory_bytes",
        parse=quantities.parse_bytes,
        default=2 * _GIB,
        help="Memory that one task may use; DuckDB gets half of it.",
        minimum=64 * _MIB,
    ),
    Setting(
        name="scratch_bytes",
        parse=quantities.parse_bytes,
        default=64 * _GIB,
        help="Local disk that one task may use for inputs, spill and outputs.",
        minimum=64 * _MIB,
    ),
    Setting(
        name="scratch_directory",
        parse=quantities.parse_local_path,
        default=None,
        help="Local directory for scratch files; not set: the system's temporary directory.",
    ),
    Setting(
        name="heartbeat_interval",
        parse=quantities.parse_duration,
        default=timedelta(seconds=15),
        help="How often a run records that it is alive.",
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="takeover_after",
        parse=quantities.parse_duration,
        default=timedelta(minutes=2),
        help="How long a run must be silent before another run may take over its files.",
        minimum=timedelta(0),
    ),
    Setting(
        name="partition_time_zone",
        parse=quantities.parse_time_zone,
        default="UTC",
        help="Time zone of partition timestamps without one.",
    ),
    Setting(
        name="log_level",
        parse=quantities.OneOf("debug", "info", "warning", "error"),
        default="warning",
        help="Minimum log level.",
    ),
    Setting(
        name="log_format",
        parse=quantities.OneOf("text", "json"),
        default="text",
        help="Log format.",
    ),
)
