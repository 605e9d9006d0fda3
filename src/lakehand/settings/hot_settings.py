"""Settings of the hot tier: when changes are flushed, their memory, and their durability."""

from __future__ import annotations

from datetime import timedelta

from lakehand.model.quantities import OneOf, parse_bytes, parse_count, parse_duration
from lakehand.settings.setting import Setting

_MIB = 2**20

HOT: tuple[Setting, ...] = (
    Setting(
        name="hot_durability",
        parse=OneOf("full", "lazy", "none"),
        default="full",
        help="What an acknowledged change of a hot table survives. full: a power loss; lazy: the "
        "end of the process, and a power loss after `hot_sync_interval`; none: neither.",
        aliases=("durability", "hot.durability"),
    ),
    Setting(
        name="hot_sync_interval",
        parse=parse_duration,
        default=timedelta(seconds=1),
        help="How often the log of a hot table is synced to disk if `hot_durability` is lazy.",
        aliases=("hot.sync.interval",),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="hot_segment_bytes",
        parse=parse_bytes,
        default=64 * _MIB,
        help="Size at which the log of a hot table starts a new file.",
        minimum=4096,
    ),
    Setting(
        name="hot_delta_entries",
        parse=parse_count,
        default=10_000,
        help="How many changes, over all hot tables, are kept one by one before they are merged in"
        " memory.",
        aliases=("delta_flush_threshold", "delta.flush.threshold"),
        minimum=1,
    ),
    Setting(
        name="hot_delta_age",
        parse=parse_duration,
        default=timedelta(seconds=60),
        help="How long changes are kept one by one before they are merged in memory.",
        aliases=("delta_flush_interval", "delta.flush.interval"),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="hot_flush_rows",
        parse=parse_count,
        default=100_000,
        help="Number of changed rows, over all hot tables, that triggers a flush to the cold "
        "table.",
        aliases=("compaction_threshold", "hot.flush.rows"),
        minimum=1,
    ),
    Setting(
        name="hot_flush_bytes",
        parse=parse_bytes,
        default=64 * _MIB,
        help="Memory of changes, over all hot tables, that triggers a flush to the cold table.",
        aliases=("hot.flush.bytes",),
        minimum=1,
    ),
    Setting(
        name="hot_flush_age",
        parse=parse_duration,
        default=timedelta(hours=1),
        help="Longest time until a change is flushed to the cold table.",
        aliases=("compaction_interval", "hot.flush.age"),
        minimum=timedelta(milliseconds=1),
    ),
    Setting(
        name="hot_memory_bytes",
        parse=parse_bytes,
        default=256 * _MIB,
        help="Memory for the changes of all hot tables; above it, writers wait.",
        aliases=("hot.memory.bytes",),
        minimum=1,
    ),
    Setting(
        name="hot_append_timeout",
        parse=parse_duration,
        default=timedelta(seconds=30),
        help="How long a writer of a hot table waits for memory before it is refused.",
        aliases=("hot.append.timeout",),
        minimum=timedelta(0),
    ),
    Setting(
        name="hot_refresh_interval",
        parse=parse_duration,
        default=timedelta(seconds=1),
        help="Maximum age of the version of the cold table that readers of a hot table see, if "
        "others write to it; its own flushes are visible at once.",
        aliases=("hot.refresh.interval",),
        minimum=timedelta(0),
    ),
)
