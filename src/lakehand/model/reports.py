"""What verbs report. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa

    from lakehand.model.work import Proof

__all__ = [
    "BeforeAfter",
    "ChangeReport",
    "CheckpointReport",
    "ClusterReport",
    "DeduplicationReport",
    "DeletionReport",
    "EngineName",
    "Forecast",
    "GroupCounts",
    "Measured",
    "MethodCounts",
    "OperationReport",
    "Outcome",
    "Remaining",
    "Report",
    "RowReport",
    "StatisticsReport",
    "UpsertReport",
    "WriteReport",
    "ZoneWidths",
]


Outcome = Literal["committed", "nothing_to_do", "dry_run"]
#: Where tasks run.
EngineName = Literal["spark", "local"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What every operation on a table reports. These fields are the first in the JSON."""

    #: The verb.
    operation: str
    #: `committed`, `nothing_to_do` or `dry_run`.
    outcome: str
    #: URL of the table, without credentials.
    table: str
    #: The version that the operation made, or the newest one if it made none.
    version: int | None

    if TYPE_CHECKING:
        # Every report has it, at its own place in the JSON.
        duration_ms: float

    @property
    def errors(self) -> tuple[Mapping[str, Any], ...]:
        """What went wrong without ending the operation; a field of reports that can have any."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return the document that the command prints with `--json`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointReport(Report):
    """The checkpoint of one version."""

    #: The verb.
    operation: str = "checkpoint"
    #: `committed`: written now; `nothing_to_do`: a complete one was there.
    outcome: Outcome
    #: The version that was folded.
    version: int
    #: Form of the checkpoint, as the format knows it.
    kind: str
    #: Objects that it is made of.
    files: tuple[str, ...]
    #: Size of these objects together.
    bytes: int
    #: Entries in it.
    action_count: int
    #: From the call to its end.
    duration_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodCounts:
    """Committed groups by the way they were rewritten."""

    #: Row groups moved byte for byte.
    copy: int = 0
    #: Rows read and written anew.
    recode: int = 0
    #: Rows read and written in another order.
    sort: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupCounts:
    """What became of the planned groups."""

    #: Chosen to be rewritten.
    planned: int = 0
    #: Proved and committed.
    committed: int = 0
    #: Lost to concurrent writers.
    dropped: int = 0
    #: Of those planned, rewritten and proved by an earlier run that died.
    adopted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Remaining:
    """What is worth rewriting, but left for a later run by the caps of this one."""

    #: Groups beyond the caps.
    groups: int = 0
    #: Files of these groups.
    files: int = 0
    #: Size of these files together.
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What is expected of a plan."""

    #: Files of the table before.
    files_before: int
    #: Files of the table after.
    files_after: int
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after.
    bytes_after: int
    #: What the tasks read.
    bytes_read: int
    #: What the tasks write.
    bytes_written: int
    #: Processor time of all tasks together, as one core of local disk would take.
    task_seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAfter:
    """One figure of the table before an operation and after it."""

    #: Before.
    before: int
    #: After, had nobody else written meanwhile.
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsReport(Report):
    """What became of the statistics of a table's files. No file is written for them."""

    #: The verb.
    operation: str = "statistics"
    #: `committed`, `nothing_to_do` or `dry_run`.
    outcome: Outcome
    #: The version that the operation made, or the newest one if it made none.
    version: int
    #: Files of the table before.
    files_before: int
    #: Files of the table after: as many, because the files stay.
    files_after: int
    #: Files whose statistics were missing or incomplete; all of them if that was asked for.
    files_chosen: int = 0
    #: Files that have other statistics now.
    files_refreshed: int = 0
    #: Chosen files whose statistics turned out to be right as they are.
    files_unchanged: int = 0
    #: Chosen files that concurrent writers touched meanwhile; they were left alone.
    files_dropped: int = 0
    #: Chosen files beyond the caps of this run.
    files_remaining: int = 0
    #: Rows that were read.
    rows_read: int = 0
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after: the same.
    bytes_after: int
    #: From the call to its end.
    duration_ms: float
    #: Time for choosing the files.
    plan_ms: float = 0.0
    #: Time for reading, added up over all tasks.
    read_ms: float = 0.0
    #: Time for the commit.
    commit_ms: float = 0.0
    #: Attempts of the commit beyond the first.
    retries: int = 0
    #: Files that could not be read, each with its error; the others were committed.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Where tasks ran: `spark`, or `local` for processes of this machine; null if there were none.
    ran_on: EngineName | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeReport(Report):
    """What every operation reports that puts files into a table or takes them out."""

    #: The verb.
    operation: str
    #: `committed`, `nothing_to_do` or `dry_run`.
    outcome: Outcome
    #: The version that the operation made last, or the newest one if it made none.
    version: int
    #: Files of the table before.
    files_before: int
    #: Files of the table after, had nobody else written meanwhile.
    files_after: int
    #: Files that left the table.
    files_removed: int = 0
    #: Files that were written, most of them in place of others.
    files_added: int = 0
    #: Rows that were read for it.
    rows_read: int = 0
    #: Rows in the files that were written.
    rows_written: int = 0
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after, had nobody else written meanwhile.
    bytes_after: int
    #: From the call to its end.
    duration_ms: float
    #: Time for choosing the files, and for finding the rows where single ones are meant.
    plan_ms: float = 0.0
    #: Time for reading, added up over all tasks; likewise the next two.
    read_ms: float = 0.0
    #: Time for writing.
    write_ms: float = 0.0
    #: Time for reading back and comparing.
    prove_ms: float = 0.0
    #: Time for the commit.
    commit_ms: float = 0.0
    #: Committed groups by the way they were rewritten; where rows are taken out: files.
    methods: MethodCounts = MethodCounts()
    #: What became of the groups of files that tasks worked on.
    groups: GroupCounts = GroupCounts()
    #: Evidence for all that was committed; null if nothing was, or nothing had to be proved.
    proof: Proof | None = None
    #: Attempts of the commit beyond the first.
    retries: int = 0
    #: Groups that failed, each with its error; the others were committed.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Where tasks ran: `spark`, or `local` for processes of this machine; null if there were none.
    ran_on: EngineName | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationReport(ChangeReport):
    """What an operation that rewrites files did."""

    #: All versions that it made: several where it commits in batches.
    versions: tuple[int, ...] = ()
    #: Files that were chosen to be rewritten, by reason.
    files_chosen: Mapping[str, int] = field(default_factory=dict)
    #: Files that were left alone, by reason.
    files_left: Mapping[str, int] = field(default_factory=dict)
    #: Files that were left alone because they are neither small nor in bad shape.
    files_skipped_large_enough: int = 0
    #: Why there was nothing to do: the reason of the files that came closest to being rewritten,
    #: or `no_files_to_compact`; null if there was something.
    skip_reason: str | None = None
    #: Runs that are at work, to which files were left because they are rewriting them.
    left_to_runs: tuple[str, ...] = ()
    #: What is worth rewriting, but beyond the caps of this run.
    remaining: Remaining = Remaining()
    #: Size of a file on average.
    average_file_bytes: BeforeAfter
    #: Rows rewritten and committed, by the time of the whole call.
    rows_per_second: float = 0.0
    #: Bytes of the files that were replaced, by the time of the whole call.
    bytes_per_second: float = 0.0
    #: How files were put together.
    strategy: str
    #: How full the new files are: their bytes by what as many files of the target size would have;
    #: null if there are none.
    bin_packing_efficiency: float | None = None
    #: Partitions with a committed group; an unpartitioned table is one.
    partitions_compacted: int = 0
    #: What the plan expected.
    forecast: Forecast
    #: What became of the statistics of the other files; null unless that was asked for.
    statistics: StatisticsReport | None = None
    #: Indices that know rows now which came after them.
    indices_updated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One measure of the table's files before an operation and after it."""

    #: Before.
    before: float
    #: After.
    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneWidths:
    """Which part of all values a file spans in a column; queries for one value read wide ones."""

    #: Over all files and columns.
    average: float
    #: The narrowest.
    minimum: float
    #: The widest.
    maximum: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterReport(OperationReport):
    """What an operation did that puts rows in order."""

    #: By which columns.
    columns: tuple[str, ...]
    #: Along which curve.
    curve: str
    #: Part of the files that queries do not have to read, measured on the files' statistics.
    skip_rate: Measured
    #: Files that lie over the middle of a file on average, itself among them.
    overlap_depth: Measured
    #: What was gained in skip rate.
    data_skipping_improvement: float
    #: 1 where no file lies over another, 0 where each lies over all.
    clustering_ratio: float
    #: How wide files are after it.
    zone_widths: ZoneWidths


@dataclass(frozen=True, kw_only=True, slots=True)
class RowReport(ChangeReport):
    """What a change of single rows meant for rows and files."""

    #: Visible rows of the table before; null if they were not counted.
    rows_before: int | None = None
    #: Visible rows of the table after, had nobody else written meanwhile.
    rows_after: int | None = None
    #: Files that stay as they are, with more rows hidden.
    files_marked: int = 0
    #: Files written for readers of changes.
    change_files_added: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionReport(RowReport):
    """Which rows went, and what that meant for files."""

    #: Rows that went; in a dry run: would go.
    rows_removed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class UpsertReport(RowReport):
    """Which rows came, which were replaced and which went. In a dry run: would."""

    #: The columns that rows were found by.
    key: tuple[str, ...]
    #: Rows that were given, before those with one key became one.
    rows_given: int = 0
    #: Rows whose key was not there.
    rows_inserted: int = 0
    #: Rows whose key was there: they took the place of what had it.
    rows_updated: int = 0
    #: Rows that went and that nothing replaced.
    rows_deleted: int = 0
    #: Files that may have held one of the keys, so that their keys were read.
    files_scanned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeduplicationReport(DeletionReport):
    """Which duplicates went, and how they were distributed."""

    #: The columns that were compared; null for exact duplicates of whole rows.
    key: tuple[str, ...] | None = None
    #: Which of several equal rows was kept.
    keep: str = "first"
    #: Whose greatest value was kept by `latest`.
    order_by: str | None = None
    #: Rows that went because another one has the same key; in a dry run: would go.
    duplicates_removed: int = 0
    #: The same where whole rows were compared, else 0.
    exact_duplicates_removed: int = 0
    #: How many keys have so many rows too many.
    duplicate_distribution: Mapping[int, int] = field(default_factory=dict)
    #: Most rows with one key; 1 if there are no duplicates, 0 if there are no rows.
    max_duplicates_per_key: int = 0
    #: Rows that went by rows before.
    deduplication_ratio: float = 0.0
    #: Runs that are at work on the same deduplication, which was left to them.
    left_to_runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteReport(Report):
    """What `append` or `overwrite` did."""

    #: The verb.
    operation: str
    #: `committed`, or `nothing_to_do` if there were no rows, or the table had them.
    outcome: Outcome
    #: The version that holds the rows, or the newest one known if nothing was committed.
    version: int
    #: Files that left the table.
    files_removed: int = 0
    #: Files with the new rows.
    files_added: int = 0
    #: New rows.
    rows_written: int = 0
    #: Size of the new files together.
    bytes_written: int = 0
    #: From the call to its end.
    duration_ms: float
    #: Time for reading the rows that were given, and writing them into files.
    write_ms: float = 0.0
    #: Time for the commit.
    commit_ms: float = 0.0
    #: Attempts of the commit beyond the first.
    retries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One commit as users of the format know it."""

    #: Version that the commit made.
    version: int
    #: When it was committed.
    at: datetime
    #: Name of the operation; null where the commit does not say.
    operation: str | None
    #: Arguments of the operation, as written.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Counts of the operation under the names of the engine that wrote them.
    metrics: Mapping[str, str] = field(default_factory=dict)
    #: What the commit did, in words.
    summary: str = ""
    #: Engine that wrote the commit.
    engine: str | None = None
    #: Token of the writer, by which it recognises its commit.
    token: str | None = None
    #: The evidence that lakehand stored with its commit; null for other commits.
    proof: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """What changed between two versions; the tables have the columns of `Snapshot.files`."""

    from_version: int
    to_version: int
    added: pa.Table
    removed: pa.Table
    schema_changed: bool
    properties_changed: bool
