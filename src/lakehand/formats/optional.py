"""Optional parts of the format protocol: a format implements those that it supports.

An operation that needs one asks for it where it begins, by `base.require_support`. An operation
that only makes use of one checks with `isinstance`, or with the faster `base.support_of` where that
happens often, and does without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lakehand.formats.base import Format, FormatTable, support_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    import pyarrow as pa

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.rows import RowChangeWorker
    from lakehand.formats.worker import (
        AppendWorker,
        CheckWorker,
        StatisticsWorker,
        WriteSpec,
    )
    from lakehand.model.maintenance import ExtraRetention, LogCleanup, OldValues
    from lakehand.model.order import Order
    from lakehand.model.remedies import Consent, FileRepair
    from lakehand.model.reports import CheckpointEntry
    from lakehand.model.retention import Deletion, DeletionOutcome, Forgotten, Protection
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import Evolution, TableHead
    from lakehand.model.table_summary import LogLook, TableSummary
    from lakehand.model.verification import Finding, LogCheck, LogRepair
    from lakehand.model.work import (
        Change,
        ChangeSpan,
        DataFile,
        Group,
        PropertyPlan,
        PropertyWish,
        Receipt,
    )
    from lakehand.settings import Settings
    from lakehand.storage import Store


@runtime_checkable
class SupportsCreation(Format, Protocol):
    """A format in which lakehand creates tables."""

    def create(
        self,
        store: Store,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> FormatTable:
        """Create an empty table at the root of `store`; TableExistsError if there is one."""
        ...


# Rewriting.


@runtime_checkable
class SupportsPolling(Format, Protocol):
    """A format whose newest version is found without reading the table."""

    def latest_version(self, store: Store, *, after: int | None = None) -> int | None:
        """Return the newest version above `after`; None if there is none. Costs one listing."""
        ...

    def version_of_key(self, key: str) -> int | None:
        """Return the version that the object with this key of a table commits; None: none."""
        ...


@runtime_checkable
class SupportsSummaries(Format, Protocol):
    """A format whose commits can be applied to the summary of a table, without reading it."""

    def look(self, store: Store, *, known: int | None = None) -> LogLook | None:
        """Return the newest version; None if there is no table. Costs one listing.

        `known` is the version at the last look.
        """
        ...

    def update_summary(
        self, store: Store, look: LogLook, before: TableSummary | None = None
    ) -> TableSummary | None:
        """Return `before` with the commits up to `look`; None: the table must be read."""
        ...

    def summarize(self, snapshot: Snapshot, look: LogLook | None = None) -> TableSummary:
        """Return the summary of a version that was read; `look` was taken before."""
        ...


@runtime_checkable
class SupportsByteCopy(FormatTable, Protocol):
    """Row groups may be copied byte for byte; its workers are `worker.ByteCopyWorker`."""

    def survey(
        self, snapshot: Snapshot, paths: Sequence[str], spec: WriteSpec | None = None
    ) -> pa.Table:
        """Read the footers of `paths`; columns are those of `model.files.SURVEY_SCHEMA`.

        Files whose codec or Bloom filters differ from `spec` are not copied.
        """
        ...


@runtime_checkable
class SupportsNativeRewrite(FormatTable, Protocol):
    """The format rewrites files by itself; its workers are `worker.NativeRewriteWorker`."""

    def native_group(self, snapshot: Snapshot, group: Group, /) -> Mapping[str, Any]:
        """Return how the format itself rewrites a group; empty: lakehand rewrites it."""
        ...


@runtime_checkable
class SupportsStatistics(FormatTable, Protocol):
    """The table keeps statistics of columns for each file."""

    def worker(self, snapshot: Snapshot | TableHead) -> StatisticsWorker: ...

    def lacks_statistics(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each row of `snapshot.files` whether statistics that the table wants are missing.

        A column without values, or with values that have no order, lacks nothing.
        """
        ...


@runtime_checkable
class SupportsClustering(FormatTable, Protocol):
    """Rows can be sorted and clustered, and the table remembers by which columns they were."""

    def order_marks(self, snapshot: Snapshot, order: Order) -> pa.Table:
        """Return what is known of the order of rows in each row of `snapshot.files`.

        `unit` names the files that were clustered together; null: the file never was. `is_asked`
        says whether it was by exactly this order.
        """
        ...

    def stored_orders(self, snapshot: Snapshot) -> pa.Array:
        """Return the order by which lakehand clustered each file, as `Order.text` spells it.

        Null: it did not, or columns of that order are gone.
        """
        ...


@runtime_checkable
class SupportsClusteringColumns(FormatTable, Protocol):
    """The table itself declares clustering columns."""

    def clustering(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the clustering columns that the table declares; empty if none.

        They are spelled as `snapshot(statistics=...)` takes them.
        """
        ...


@runtime_checkable
class SupportsPredicateReads(FormatTable, Protocol):
    """Conditions are decided for each file by reading rows, because metadata tells too little."""

    def read_verdicts(self, snapshot: Snapshot, predicate: Predicate) -> pa.Array:
        """Say of each file whether a condition is true for all, none or some of its rows.

        The words are those of `expressions.pruning`.
        """
        ...


@runtime_checkable
class SupportsIndices(FormatTable, Protocol):
    """Tables have secondary indices, which do not follow new rows by themselves."""

    def update_indices(self, *, since: Snapshot | None = None) -> tuple[str, ...]:
        """Add rows that indices do not cover to them, and return the names of those indices.

        With `since` only those that covered rows of that version whose files are gone. Raises a
        LakehandError, after which searches find what they found before.
        """
        ...


# Rows that are added, replaced or deleted.


@runtime_checkable
class SupportsAppends(FormatTable, Protocol):
    """Rows can be added, exactly once where the writer has an id."""

    def worker(self, snapshot: Snapshot | TableHead) -> AppendWorker: ...

    def transactions(self) -> Mapping[str, int]:
        """Return the newest version of every application that writes exactly once."""
        ...

    def head(self) -> TableHead:
        """Return the newest version without its files, for writers that read none."""
        ...

    def evolve(self, head: TableHead, schema: pa.Schema) -> Evolution:
        """Return the table of `head` with all columns of `schema`, some new or of wider types.

        RefusedError if the table cannot take them. Nothing is read or written.
        """
        ...

    def protected_since(self, *, version: int) -> Protection:
        """Return the files that versions after `version` added, and of versions with a tag."""
        ...


@runtime_checkable
class SupportsRowChanges(SupportsAppends, Protocol):
    """Single rows can be found, deleted and replaced."""

    def worker(self, snapshot: Snapshot | TableHead) -> RowChangeWorker: ...

    def rows_changed_since(self, moment: datetime) -> bool:
        """Say whether a commit since `moment` deleted, updated or overwrote rows.

        Appends and rewrites do not. Where it cannot be told, the answer is yes.
        """
        ...

    def require_deletion(self, snapshot: Snapshot, *, keys: Sequence[str] = ()) -> None:
        """Raise RefusedError where rows must not be deleted, or not be compared by `keys`."""
        ...

    def placed_schema(self, snapshot: Snapshot) -> pa.Schema:
        """Return the columns as `read_placed` hands them out: in types that can be compared."""
        ...

    def comparable_rows(self, rows: pa.Table) -> pa.Table:
        """Return rows that are not in the table yet in the types of `placed_schema`."""
        ...

    def file_versions(self, snapshot: Snapshot) -> pa.Array:
        """Return numbers that order the rows of `snapshot.files` by the version that added them.

        Null where that is not known.
        """
        ...


# History and retention.


@runtime_checkable
class SupportsCheckpoints(FormatTable, Protocol):
    """Checkpoints shorten what readers of the log have to replay."""

    def commit(self, change: Change, *, token: str, checkpoint: bool = True) -> Receipt:
        """Commit as `FormatTable.commit` does; a `checkpoint` that is due then is written, too."""
        ...

    def checkpoint(self, *, version: int | None = None) -> Mapping[str, Any]:
        """Write a checkpoint of the newest version, or of `version`, unless there is one."""
        ...

    def checkpoint_if_due(self, version: int) -> bool:
        """Write a checkpoint if `version`, which was just committed, makes one due."""
        ...

    def checkpoints(self) -> Sequence[CheckpointEntry]:
        """Return all complete checkpoints, newest first."""
        ...

    def read_checkpoint(self, version: int | None) -> pa.Table:
        """Return the actions of the newest checkpoint, or of that of `version`."""
        ...

    def is_checkpoint_due(self) -> bool:
        """Say whether the newest version is far enough from the newest checkpoint."""
        ...


@runtime_checkable
class SupportsProperties(FormatTable, Protocol):
    """Properties, features and clustering columns of an existing table can be changed."""

    def plan_properties(self, snapshot: Snapshot, wish: PropertyWish) -> PropertyPlan:
        """Return the change that fulfils `wish`; it has no `native` if there is nothing to do."""
        ...

    def features(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the features that the table may use."""
        ...


class ChangeFile(Protocol):
    """A file with changed rows of one version; picklable."""

    @property
    def bytes(self) -> int:
        """Size of the file."""
        ...


class ChangeReader(Protocol):
    """The changes of some versions; picklable."""

    @property
    def first(self) -> int:
        """The first version."""
        ...

    @property
    def last(self) -> int:
        """The last version, included; before `first` if there is nothing to read."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table, then type, version and time of each change."""
        ...

    def files(self, version: int) -> Sequence[ChangeFile]:
        """Return the files with the changes of a version, always in the same order."""
        ...

    def for_tasks(self) -> ChangeReader:
        """Return what reads `files` in tasks."""
        ...

    def read(self, files: Sequence[Any] | None = None, /) -> pa.RecordBatchReader:
        """Stream the changes in `files`, else those of all versions in their order."""
        ...


@runtime_checkable
class SupportsChangeFeed(FormatTable, Protocol):
    """Changes of rows can be read, version by version."""

    def plan_changes(
        self, span: ChangeSpan, *, columns: Sequence[str] | None = None
    ) -> ChangeReader:
        """Find the versions of `span`; ChangeFeedError where changes were not recorded."""
        ...


@runtime_checkable
class SupportsTags(FormatTable, Protocol):
    """The table itself keeps versions by names, and may have branches."""

    def tagged_versions(self) -> Mapping[str, int]:
        """Return the versions that the table itself keeps by a name."""
        ...

    def branches(self) -> Mapping[str, int | None]:
        """Return the branches that share files with the table, and the version each began with.

        None if that is a version of another branch.
        """
        ...

    def tag_version(self, name: str, version: int) -> None:
        """Have the table keep a version by a name; ValidationError if the name is taken."""
        ...

    def drop_tag(self, name: str, version: int) -> None:
        """Drop a tag, if it is still of this version."""
        ...

    def protected(
        self,
        *,
        since: datetime,
        pinned_versions: Collection[int] = (),
        from_version: int | None = None,
        ignored_tags: Collection[str] = (),
    ) -> Protection:
        """Protect as `FormatTable.protected` does, and tagged versions but for `ignored_tags`."""
        ...

    def protected_since(self, *, version: int, ignored_tags: Collection[str] = ()) -> Protection:
        """Protect as `SupportsVacuum.protected_since` does, but for `ignored_tags`."""
        ...


class DataNames(Protocol):
    """Tells data files from everything else in a table's root."""

    @property
    def first_to_go(self) -> str | None:
        """Directory of files that refer to others, and are deleted before these."""
        ...

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether it can be a data file, or belongs to one."""
        ...

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory can hold data files."""
        ...


@runtime_checkable
class SupportsVacuum(FormatTable, Protocol):
    """Files that no version needs can be told from all others, and deleted."""

    def retention(self, snapshot: Snapshot, /) -> timedelta:
        """Return how long the table itself asks to keep files after their last version."""
        ...

    def data_names(self, snapshot: Snapshot, /) -> DataNames:
        """Return what tells data files by their names: everything else is never deleted."""
        ...

    def protected_since(self, *, version: int) -> Protection:
        """Return the files that versions after `version` added, and of versions with a tag."""
        ...

    def begin_deletion(self, deletion: Deletion, /) -> None:
        """Record in the table's history, where that is wanted, what is about to be deleted."""
        ...

    def end_deletion(self, deletion: Deletion, outcome: DeletionOutcome, /) -> None:
        """Record in the table's history, where that is wanted, what was deleted."""
        ...


@runtime_checkable
class SupportsRemovedFiles(FormatTable, Protocol):
    """The history lists removed files, so that `vacuum --mode lite` needs no listing."""

    def forgotten(self, *, before: datetime) -> Forgotten:
        """Return files that versions before a moment removed, as far as the history tells."""
        ...

    def note_vacuumed(self, version: int | None) -> None:
        """Record that files removed until `version` are gone; None: drop that record."""
        ...


@runtime_checkable
class SupportsStreams(FormatTable, Protocol):
    """Streams read the table, and their checkpoints tell from which version on."""

    def streamed_version(self, checkpoint: Store) -> int:
        """Return the oldest version that a stream still reads, by its `checkpoint`."""
        ...


@runtime_checkable
class SupportsPurge(FormatTable, Protocol):
    """The history can be cleaned, of old versions and of values of deleted rows."""

    def clean_logs(
        self, wishes: ExtraRetention, /, *, even_if_disabled: bool = False, dry_run: bool = False
    ) -> LogCleanup:
        """Delete history that the table no longer asks for."""
        ...

    def free_history_of_old_values(self) -> bool:
        """Make it possible to delete what the history holds beyond the newest version, in time.

        Writes a checkpoint, or a version without changes, where one is needed; says whether it did.
        """
        ...

    def old_values(self, wishes: ExtraRetention, /) -> OldValues:
        """Say what the history holds beyond the newest version, and until when."""
        ...

    def hold_dropped_columns(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each file whether it still holds columns that the table has dropped."""
        ...


# Checks and repairs.


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvedCommit:
    """A commit with its proof, and with all that is needed to check it again."""

    version: int
    #: As it was stored; None if the commit carries none.
    proof: Mapping[str, Any] | None
    #: Files that it replaced, with the rows that were deleted then.
    inputs: tuple[DataFile, ...]
    #: Files that replaced them, as of that version.
    outputs: tuple[DataFile, ...]


@runtime_checkable
class SupportsVerification(FormatTable, Protocol):
    """The table's metadata, files and proofs can be checked."""

    def worker(self, snapshot: Snapshot | TableHead) -> CheckWorker: ...

    def check_log(self) -> LogCheck:
        """Say what is wrong with the history, also where the table cannot be opened by it."""
        ...

    def check_entries(self, snapshot: Snapshot, /) -> tuple[Finding, ...]:
        """Say what is wrong with the entries of files, without looking at the files."""
        ...

    def proved_commit(self, version: int) -> ProvedCommit:
        """Return what the commit of `version` replaced; VersionNotFoundError if it is gone."""
        ...

    def worker_at(self, version: int) -> CheckWorker:
        """Return a worker under the columns and properties that the table had at `version`."""
        ...


@runtime_checkable
class SupportsLogRepair(SupportsVerification, Protocol):
    """What verification finds can be repaired."""

    #: What `repairing_change` can do.
    file_repairs: frozenset[FileRepair]

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        """Return the change that does `repair` to the entries of `files`, or refuse."""
        ...

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        """Repair the history, as far as nothing is lost by it.

        `accept_data_loss` goes back to the newest version that can be read, and gives up history
        that cannot be. Objects that leave the history are backed up, not deleted.
        """
        ...


@runtime_checkable
class SupportsRestore(FormatTable, Protocol):
    """An earlier version can be made the newest one again."""

    def restoring_change(self, snapshot: Snapshot, wanted: Snapshot) -> Change:
        """Return the change that gives the table of `snapshot` the content of `wanted` again."""
        ...


def clustering_columns(table: FormatTable, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the clustering columns that the table declares; empty if it declares none."""
    return table.clustering(snapshot) if isinstance(table, SupportsClusteringColumns) else ()


def read_verdicts(table: FormatTable, snapshot: Snapshot, predicate: Predicate) -> pa.Array | None:
    """Return what rows say of a condition, by file; None where metadata has to tell."""
    if isinstance(table, SupportsPredicateReads):
        return table.read_verdicts(snapshot, predicate)
    return None


#: What each step of `maintain` needs of a format.
_NEEDED: Mapping[str, type] = {
    "checkpoint": SupportsCheckpoints,
    "clean_logs": SupportsPurge,
    "vacuum": SupportsVacuum,
}


def reason_against(table: FormatTable, operation: str) -> str | None:
    """Return why a step of `maintain` is not possible on tables of this format; None: it is."""
    needed = _NEEDED.get(operation)
    reason = table.capabilities.lacking.get(operation)
    if reason is None and needed is not None and not isinstance(table, needed):
        return "the format of the table does not support it"
    return reason


def commit_without_checkpoint(table: FormatTable, change: Change, *, token: str) -> Receipt:
    """Commit, and leave a checkpoint that is due then to `checkpoint_if_due`."""
    supported = support_of(table, SupportsCheckpoints)
    if supported is None:
        return table.commit(change, token=token)
    return supported.commit(change, token=token, checkpoint=False)


def checkpoint_if_due(table: FormatTable, version: int) -> bool:
    """Write a checkpoint if `version`, which was just committed, makes one due; say whether."""
    supported = support_of(table, SupportsCheckpoints)
    return supported is not None and supported.checkpoint_if_due(version)
