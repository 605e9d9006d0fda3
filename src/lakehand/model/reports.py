"""Reports of operations. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from lakehand.model.notebook_view import NotebookView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa

    from lakehand.model.work import Proof

Outcome = Literal["committed", "nothing_to_do", "dry_run"]
#: Where tasks run.
EngineName = Literal["spark", "local"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report(NotebookView):
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
        """Errors that did not end the operation; a field of reports that can have any."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return the document that the command prints with `--json`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointReport(Report):
    """The checkpoint of one version."""

    #: The operation.
    operation: str = "checkpoint"
    #: `committed`: written now; `nothing_to_do`: a complete checkpoint existed.
    outcome: Outcome
    #: The version of the checkpoint.
    version: int
    #: Kind of the checkpoint, in the terms of the format.
    kind: str
    #: Objects of the checkpoint.
    files: tuple[str, ...]
    #: Total size of these objects.
    bytes: int
    #: Actions in the checkpoint.
    action_count: int
    #: Duration of the call.
    duration_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointEntry:
    """A complete checkpoint of the log."""

    version: int
    #: `classic`, `multipart` or `v2`.
    kind: str
    #: Objects of the checkpoint, without sidecars.
    files: tuple[str, ...]
    #: Their size.
    bytes: int
    #: When it was written.
    modified_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class PropertiesReport(Report):
    """A change of properties, features or clustering columns."""

    #: `set_properties`, `unset_properties`, `enable_feature` or `cluster_by`.
    operation: str
    #: `nothing_to_do`: the table already was as asked for.
    outcome: Outcome
    #: The version of the commit, or the latest one if nothing was committed.
    version: int
    #: Properties whose value changed, with their values before; null: not set before.
    before: Mapping[str, str | None]
    #: The same properties with their new values; null: not set any more.
    after: Mapping[str, str | None]
    #: Features that were added to the protocol.
    features_added: tuple[str, ...]
    #: Clustering columns of the table; null if they were not asked for.
    clustering_columns: tuple[str, ...] | None
    #: Duration of the call.
    duration_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodCounts:
    """Committed groups by rewrite method."""

    #: Row groups copied byte for byte.
    copy: int = 0
    #: Rows decoded and encoded again.
    recode: int = 0
    #: Rows sorted.
    sort: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupCounts:
    """Number of groups by result."""

    #: Planned.
    planned: int = 0
    #: Proved and committed.
    committed: int = 0
    #: Dropped because of conflicts with concurrent writers.
    dropped: int = 0
    #: Of the planned groups, rewritten and proved by an earlier run that died.
    adopted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Remaining:
    """What is left for a later run because of the limits of this one."""

    #: Groups beyond the limits.
    groups: int = 0
    #: Files of these groups.
    files: int = 0
    #: Total size of these files.
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Estimated result of a plan."""

    #: Files of the table before.
    files_before: int
    #: Files of the table after.
    files_after: int
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after.
    bytes_after: int
    #: Bytes that tasks read.
    bytes_read: int
    #: Bytes that tasks write.
    bytes_written: int
    #: Total CPU time of all tasks, on one core with a local disk.
    task_seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAfter:
    """A number before and after an operation."""

    #: Before.
    before: int
    #: After; without the changes of other writers.
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsReport(Report):
    """Report of recomputed statistics. No data file is written."""

    #: The operation.
    operation: str = "statistics"
    #: `committed`, `nothing_to_do` or `dry_run`.
    outcome: Outcome
    #: The committed version, or the latest one if nothing was committed.
    version: int
    #: Files of the table before.
    files_before: int
    #: Files of the table after: the same number.
    files_after: int
    #: Files with missing or incomplete statistics; all files with `full`.
    files_chosen: int = 0
    #: Files with new statistics.
    files_refreshed: int = 0
    #: Selected files whose statistics are already correct.
    files_unchanged: int = 0
    #: Selected files that concurrent writers changed; they were skipped.
    files_dropped: int = 0
    #: Selected files beyond the limits of this run.
    files_remaining: int = 0
    #: Rows read.
    rows_read: int = 0
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after: the same.
    bytes_after: int
    #: Duration of the call.
    duration_ms: float
    #: Time to select the files.
    plan_ms: float = 0.0
    #: Time to read, summed over all tasks.
    read_ms: float = 0.0
    #: Time to commit.
    commit_ms: float = 0.0
    #: Commit attempts after the first.
    retries: int = 0
    #: Files that could not be read, each with its error; the others were committed.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Where tasks ran: `spark`, or `local` for local processes; null if there were none.
    ran_on: EngineName | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeReport(Report):
    """Fields that all operations report that add or remove files."""

    #: The operation.
    operation: str
    #: `committed`, `nothing_to_do` or `dry_run`.
    outcome: Outcome
    #: The last committed version, or the latest one if nothing was committed.
    version: int
    #: Files of the table before.
    files_before: int
    #: Files of the table after, without the changes of other writers.
    files_after: int
    #: Files removed from the table.
    files_removed: int = 0
    #: Files written and added to the table.
    files_added: int = 0
    #: Rows read.
    rows_read: int = 0
    #: Rows in the written files.
    rows_written: int = 0
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after, without the changes of other writers.
    bytes_after: int
    #: Duration of the call.
    duration_ms: float
    #: Time to select the files, and to find rows by key or predicate.
    plan_ms: float = 0.0
    #: Time to read, summed over all tasks; likewise the next two.
    read_ms: float = 0.0
    #: Time to write.
    write_ms: float = 0.0
    #: Time to read back and compare.
    prove_ms: float = 0.0
    #: Time to commit.
    commit_ms: float = 0.0
    #: Committed groups by rewrite method; for deletes: files.
    methods: MethodCounts = MethodCounts()
    #: Groups of files by result.
    groups: GroupCounts = GroupCounts()
    #: The proof of what was committed; null if nothing was committed, or nothing had to be proved.
    proof: Proof | None = None
    #: Commit attempts after the first.
    retries: int = 0
    #: Groups that failed, each with its error; the others were committed.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Where tasks ran: `spark`, or `local` for local processes; null if there were none.
    ran_on: EngineName | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationReport(ChangeReport):
    """Report of an operation that rewrites files."""

    #: All committed versions: several if the operation commits in batches.
    versions: tuple[int, ...] = ()
    #: Size of the files removed from the table.
    bytes_removed: int = 0
    #: Size of the files written and added to the table.
    bytes_added: int = 0
    #: Files selected for rewriting, by reason.
    files_chosen: Mapping[str, int] = field(default_factory=dict)
    #: Files not selected, by reason.
    files_left: Mapping[str, int] = field(default_factory=dict)
    #: Files not selected because they are large enough and need no other rewrite.
    files_skipped_large_enough: int = 0
    #: Why there was nothing to do: the reason of the files that came closest to being rewritten, or
    #: `no_files_to_compact`; null if there was something to do.
    skip_reason: str | None = None
    #: Running operations that are rewriting files of the table; those files were skipped.
    left_to_runs: tuple[str, ...] = ()
    #: What is left for a later run because of the limits of this one.
    remaining: Remaining = Remaining()
    #: Whether the operation was asked to wind down: what was proved is committed, the rest is left.
    stopped_early: bool = False
    #: Average file size.
    average_file_bytes: BeforeAfter
    #: Committed rows per second of the whole call.
    rows_per_second: float = 0.0
    #: Replaced bytes per second of the whole call.
    bytes_per_second: float = 0.0
    #: Bytes that the store copied by itself, so that they did not travel.
    moved_in_store_bytes: int = 0
    #: Why row groups were copied through this machine where S3 might have copied them; by reason.
    streamed_because: tuple[str, ...] = ()
    #: How files were grouped.
    strategy: str
    #: Size of the new files relative to as many files of the target size; null if there are none.
    bin_packing_efficiency: float | None = None
    #: Partitions with a committed group; an unpartitioned table is one.
    partitions_compacted: int = 0
    #: The estimates of the plan.
    forecast: Forecast
    #: Statistics recomputed for the other files; null unless requested.
    statistics: StatisticsReport | None = None
    #: Indices to which rows were added that came after them.
    indices_updated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A measure of the table's files before and after an operation."""

    #: Before.
    before: float
    #: After.
    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneWidths:
    """The fraction of a column's value range that a file spans; a lookup reads every wide file."""

    #: Over all files and columns.
    average: float
    #: The smallest.
    minimum: float
    #: The largest.
    maximum: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterReport(OperationReport):
    """Report of an operation that clusters rows."""

    #: Clustering columns.
    columns: tuple[str, ...]
    #: Space-filling curve.
    curve: str
    #: Fraction of files that queries can skip, measured on the files' statistics.
    skip_rate: Measured
    #: Average number of files that overlap at the middle of a file, including itself.
    overlap_depth: Measured
    #: Increase of the skip rate.
    data_skipping_improvement: float
    #: 1 if no files overlap, 0 if all files overlap each other.
    clustering_ratio: float
    #: Value ranges of files afterwards.
    zone_widths: ZoneWidths


@dataclass(frozen=True, kw_only=True, slots=True)
class RowReport(ChangeReport):
    """Fields that all operations report that change single rows."""

    #: Visible rows of the table before; null if not counted.
    rows_before: int | None = None
    #: Visible rows of the table after, without the changes of other writers.
    rows_after: int | None = None
    #: Files that stay, with more rows deleted by deletion vectors.
    files_marked: int = 0
    #: Change data files written for the change data feed.
    change_files_added: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionReport(RowReport):
    """Report of a delete."""

    #: Deleted rows; in a dry run: would be.
    rows_removed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class UpsertReport(RowReport):
    """Report of an upsert: inserted, updated and deleted rows. In a dry run: would be."""

    #: The key columns.
    key: tuple[str, ...]
    #: Rows in the input, before changes of one key were merged.
    rows_given: int = 0
    #: Rows whose key was not in the table.
    rows_inserted: int = 0
    #: Rows whose key was in the table.
    rows_updated: int = 0
    #: Rows that were deleted and not replaced.
    rows_deleted: int = 0
    #: Files that may contain one of the keys, whose key columns were read.
    files_scanned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeReport(RowReport):
    """Report of a merge: inserted, updated and deleted rows. In a dry run: would be."""

    #: The join condition.
    on: str
    #: Rows of the source.
    rows_given: int = 0
    #: Rows of the source that WHEN NOT MATCHED clauses inserted.
    rows_inserted: int = 0
    #: Rows of the table that were updated.
    rows_updated: int = 0
    #: Rows of the table that were deleted.
    rows_deleted: int = 0
    #: Files in which rows were compared; the others cannot hold a row that the merge changes.
    files_scanned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeduplicationReport(DeletionReport):
    """Report of a deduplication: removed duplicates, and their distribution."""

    #: The key columns; null for exact duplicates of whole rows.
    key: tuple[str, ...] | None = None
    #: Which of several equal rows was kept.
    keep: str = "first"
    #: The column whose greatest value `latest` keeps.
    order_by: str | None = None
    #: Rows removed because another row has the same key; in a dry run: would be.
    duplicates_removed: int = 0
    #: The same if whole rows were compared, else 0.
    exact_duplicates_removed: int = 0
    #: Number of keys by their number of extra rows.
    duplicate_distribution: Mapping[int, int] = field(default_factory=dict)
    #: Maximum number of rows with one key; 1 if there are no duplicates, 0 if there are no rows.
    max_duplicates_per_key: int = 0
    #: Removed rows relative to the rows before.
    deduplication_ratio: float = 0.0
    #: Running operations with the same deduplication, to which it was left.
    left_to_runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteReport(Report):
    """Report of `append` or `overwrite`."""

    #: The operation.
    operation: str
    #: `committed`, or `nothing_to_do` if there were no rows, or the epoch was already committed.
    outcome: Outcome
    #: The version that holds the rows, or the latest known version if nothing was committed.
    version: int
    #: Files removed from the table.
    files_removed: int = 0
    #: Files with the new rows.
    files_added: int = 0
    #: New rows.
    rows_written: int = 0
    #: Total size of the new files.
    bytes_written: int = 0
    #: Duration of the call.
    duration_ms: float
    #: Time to read the input and write it to files.
    write_ms: float = 0.0
    #: Time to commit.
    commit_ms: float = 0.0
    #: Commit attempts after the first.
    retries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One commit, in the terms of the format."""

    #: The committed version.
    version: int
    #: When it was committed.
    at: datetime
    #: Name of the operation; null if the commit does not have it.
    operation: str | None
    #: Parameters of the operation, as written.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Metrics of the operation, with the names of the engine that wrote them.
    metrics: Mapping[str, str] = field(default_factory=dict)
    #: What the commit did, as text.
    summary: str = ""
    #: Engine that wrote the commit.
    engine: str | None = None
    #: Token by which the writer recognizes its commit.
    token: str | None = None
    #: The proof that lakehand stored in its commit; null for other commits.
    proof: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The files that changed between two versions, with the columns of `Snapshot.files`."""

    from_version: int
    to_version: int
    added: pa.Table
    removed: pa.Table
    schema_changed: bool
    properties_changed: bool
