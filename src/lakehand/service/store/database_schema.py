"""The tables of the job store, one definition for SQLite and PostgreSQL.

What must never be is forbidden by the database itself: two queued jobs of one kind for a table, two
running ones in a lane of a table, two in one slot of a pool. Times are seconds since 1970 in UTC.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from lakehand.service.job_states import ENDED, LANES, ROLES, STATES, WISHES

#: Increased with every change of the tables.
SCHEMA_VERSION = 1

METADATA = MetaData()
_Document = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
_Number = BigInteger().with_variant(Integer, "sqlite")
_QUEUED, _RUNNING = text("state = 'queued'"), text("state = 'running'")


def _id() -> Column[int]:
    return Column("id", _Number, primary_key=True, autoincrement=True)


def _required(name: str, kind: object = Text, default: str | None = None) -> Column[object]:
    return Column(name, kind, nullable=False, server_default=default)  # type: ignore[arg-type]


def _one_of(column: str, choices: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(choice) for choice in choices)})")


SCHEMA = Table("lakehand_schema", METADATA, Column("version", Integer, primary_key=True))

TABLES = Table(
    "tables",
    METADATA,
    _id(),
    _required("url"),
    Column("name", Text),
    Column("format", Text),
    #: Where it was found: the name of a source, or `manual`.
    _required("source"),
    Column("storage_profile", Text),
    _required("found_at", Double),
    _required("seen_at", Double),
    Column("gone_at", Double),
    Column("policy", Text),
    #: Settings of this table alone, above its policy.
    _required("overrides", _Document, "{}"),
    Column("paused_until", Double),
    Column("paused_by", Text),
    Column("paused_why", Text),
    #: The newest version that is known, and what has come since the last assessment.
    Column("version", BigInteger),
    _required("commits_since", Integer, "0"),
    _required("bytes_since", BigInteger, "0"),
    _required("look_at", Double),
    _required("look_every", Double, "60"),
    Column("assessed_at", Double),
    Column("assessed_version", BigInteger),
    #: When each scheduled verb is due next, and by which cron expression.
    _required("scheduled", _Document, "{}"),
    Column("summary", _Document),
    Column("health_score", Integer),
    Column("last_error", _Document),
    _required("error_count", Integer, "0"),
    UniqueConstraint("url"),
    Index(
        "tables_look_at",
        "look_at",
        sqlite_where=text("gone_at IS NULL"),
        postgresql_where=text("gone_at IS NULL"),
    ),
)

#: Numbers of each table, to which new commits are applied, and how far they have been dealt with.
SUMMARIES = Table(
    "summaries",
    METADATA,
    Column("table_id", _Number, ForeignKey("tables.id"), primary_key=True),
    _required("version", BigInteger),
    _required("saved_at", Double),
    #: All but the numbers of files; these, compressed.
    _required("document", _Document),
    Column("files", LargeBinary),
    #: Of a table with very many files: what its numbers mean under the settings of its policy.
    Column("assessment", _Document),
    #: Since the first summary, and when a file was removed last.
    _required("commits_applied", BigInteger, "0"),
    _required("removed_file_count", BigInteger, "0"),
    _required("removed_bytes", BigInteger, "0"),
    Column("removed_at", Double),
    #: When the table was vacuumed and its log cleaned, and how much had come until then.
    Column("vacuumed_at", Double),
    _required("vacuumed_file_count", BigInteger, "0"),
    _required("vacuumed_bytes", BigInteger, "0"),
    Column("cleaned_at", Double),
    _required("cleaned_commits", BigInteger, "0"),
    #: Why the table could not be read as a whole.
    Column("error", _Document),
)

#: How forecasts of steps compare with what they took, by table; of all tables under the id 0.
CALIBRATIONS = Table(
    "calibrations",
    METADATA,
    Column("table_id", _Number, primary_key=True, autoincrement=False),
    Column("step", Text, primary_key=True),
    _required("factor", Double),
    _required("error", Double),
    _required("count", Integer),
    #: Share of the groups of rewrites that was lost to concurrent writers.
    _required("lost_share", Double, "0"),
    _required("changed_at", Double),
)

#: Verbs of a table that no retry can cure, until something changes.
HOLDS = Table(
    "holds",
    METADATA,
    Column("table_id", _Number, ForeignKey("tables.id"), primary_key=True),
    Column("verb", Text, primary_key=True),
    _required("held_at", Double),
    Column("job_id", _Number),
    _required("error", _Document),
    #: The table's version, its policy and lakehand's version when it failed: another one of them
    #: lifts the hold.
    Column("table_version", BigInteger),
    _required("policy_digest", Text, ""),
    _required("lakehand_version"),
)

#: One row: whether the whole service is paused.
SERVICE = Table(
    "service",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("paused_until", Double),
    Column("paused_by", Text),
    Column("paused_why", Text),
    CheckConstraint("id = 1"),
)

POOLS = Table(
    "pools",
    METADATA,
    Column("name", Text, primary_key=True),
    _required("max_running", Integer),
    CheckConstraint("max_running > 0"),
)

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", Text, primary_key=True),
    _required("host"),
    _required("pid", Integer),
    _required("version"),
    _required("engines", _Document),
    _required("slots", Integer),
    _required("memory_bytes", BigInteger),
    #: Pools whose jobs it takes; empty: all.
    _required("pools", _Document, "[]"),
    _required("started_at", Double),
    _required("beat_at", Double),
    Column("wish", Text),
    Column("stopped_at", Double),
    _one_of("wish", ("drain", "stop")),
)

JOBS = Table(
    "jobs",
    METADATA,
    _id(),
    Column("table_id", _Number, ForeignKey("tables.id"), nullable=False),
    _required("lane"),
    _required("verb"),
    #: What part of the table, where several jobs of one verb may wait.
    _required("scope", Text, ""),
    _required("options", _Document, "{}"),
    _required("state", Text, "queued"),
    #: What asked for it, how often while it was queued, and why.
    _required("trigger"),
    _required("requests", Integer, "1"),
    _required("reasons", _Document, "[]"),
    Column("asked_by", Text),
    _required("urgency", Integer, "2"),
    _required("score", Double, "0"),
    _required("expected", _Document, "{}"),
    _required("engine", Text, "local"),
    _required("memory_bytes", BigInteger, "0"),
    Column("pool", Text, ForeignKey("pools.name"), nullable=False),
    Column("slot", Integer),
    _required("queued_at", Double),
    #: Oldest first; an urgent or valuable job has a head start.
    _required("rank_at", Double),
    _required("not_before", Double),
    Column("runs_until", Double),
    Column("waits_for", Text),
    #: Which budget it waits for, or how often writers were faster.
    Column("wait_details", _Document),
    Column("paused_by", Text),
    #: Increased by every claim: a worker whose lease was lost has an old one.
    _required("fence", BigInteger, "0"),
    _required("attempt", Integer, "0"),
    _required("max_attempts", Integer, "5"),
    Column("worker_id", Text),
    Column("leased_until", Double),
    Column("wish", Text),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("progress", _Document),
    Column("outcome", Text),
    Column("report", _Document),
    Column("error", _Document),
    _one_of("state", STATES),
    _one_of("lane", LANES),
    _one_of("wish", WISHES),
    CheckConstraint("urgency BETWEEN 0 AND 3"),
    CheckConstraint("(state = 'running') = (leased_until IS NOT NULL)"),
    CheckConstraint("(state = 'running') = (slot IS NOT NULL)"),
    CheckConstraint("(state = 'running') = (worker_id IS NOT NULL)"),
    CheckConstraint(
        f"(state IN ({', '.join(repr(state) for state in ENDED)})) = (ended_at IS NOT NULL)"
    ),
    Index(
        "jobs_one_queued",
        "table_id",
        "verb",
        "scope",
        unique=True,
        sqlite_where=_QUEUED,
        postgresql_where=_QUEUED,
    ),
    Index(
        "jobs_one_running",
        "table_id",
        "lane",
        unique=True,
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    ),
    Index(
        "jobs_pool_slot",
        "pool",
        "slot",
        unique=True,
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    ),
    Index(
        "jobs_claimable", "pool", "rank_at", "id", sqlite_where=_QUEUED, postgresql_where=_QUEUED
    ),
    Index("jobs_leases", "leased_until", sqlite_where=_RUNNING, postgresql_where=_RUNNING),
    Index("jobs_of_table", "table_id", "id"),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("job_id", _Number, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("fence", BigInteger, primary_key=True),
    Column("table_id", _Number, nullable=False),
    _required("worker_id"),
    #: Ledgers that the attempt has begun in the table: the next attempt may take them over.
    _required("run_ids", _Document, "[]"),
    _required("started_at", Double),
    Column("ended_at", Double),
    Column("outcome", Text),
    Column("report", _Document),
    Column("error", _Document),
    #: Of budgets, by scope and unit: what the attempt may spend, and has spent.
    _required("reserved", _Document, "[]"),
    _required("spent", _Document, "{}"),
    Index("attempts_of_table", "table_id", "started_at"),
)

BUDGETS = Table(
    "budgets",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    _required("allowed", Double),
    _required("reserved", Double, "0"),
    _required("spent", Double, "0"),
    _one_of("unit", ("bytes", "core_seconds", "cost")),
    CheckConstraint("reserved >= -0.001"),
)

MEASUREMENTS = Table(
    "measurements",
    METADATA,
    Column("table_id", _Number, primary_key=True),
    Column("at", Double, primary_key=True),
    _required("version", BigInteger),
    Column("file_count", BigInteger),
    Column("small_file_count", BigInteger),
    Column("excess_file_count", BigInteger),
    Column("total_bytes", BigInteger),
    Column("deleted_row_ratio", Double),
    Column("health_score", Integer),
)

#: What happened, for the audit, for webhooks and for pages that update themselves.
EVENTS = Table(
    "events",
    METADATA,
    _id(),
    _required("at", Double),
    _required("kind"),
    Column("table_id", _Number),
    Column("job_id", _Number),
    Column("by", Text),
    _required("details", _Document, "{}"),
    Index("events_of_job", "job_id", "id"),
    Index("events_of_table", "table_id", "id"),
)

#: Which hooks want which events: a kind, a group of kinds as `job.*`, or `*`.
HOOK_EVENTS = Table(
    "hook_events",
    METADATA,
    #: A hash of what the hook calls, which may hold a secret.
    Column("hook", Text, primary_key=True),
    Column("pattern", Text, primary_key=True),
)

#: Events that a hook has not been told of. They are written with the event itself.
OUTBOX = Table(
    "outbox",
    METADATA,
    _id(),
    _required("event_id", _Number),
    _required("hook"),
    _required("queued_at", Double),
    _required("due_at", Double),
    _required("attempts", Integer, "0"),
    Index("outbox_due", "due_at"),
)

#: Increments of counters: the value of a counter is the sum of its rows. They are only added, so
#: that jobs which end at the same time do not wait for each other; the scheduler merges them.
METRIC_INCREMENTS = Table(
    "metric_increments",
    METADATA,
    _id(),
    _required("metric"),
    #: Names and values of its labels, as JSON, sorted by name.
    _required("labels"),
    _required("value", Double),
)

#: Conditions that hold now, each of which hooks were told of when it began.
CONDITIONS = Table(
    "conditions",
    METADATA,
    Column("kind", Text, primary_key=True),
    #: What it is about: the id of a table, or a budget.
    Column("subject", Text, primary_key=True),
    _required("since", Double),
)

#: Tokens of the HTTP server. Only their hashes are kept.
TOKENS = Table(
    "tokens",
    METADATA,
    Column("name", Text, primary_key=True),
    _required("role"),
    _required("hash"),
    _required("created_at", Double),
    Column("created_by", Text),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    UniqueConstraint("hash"),
    _one_of("role", ROLES),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    _required("holder"),
    _required("fence", BigInteger, "1"),
    _required("until", Double),
)
