"""What lakehand asks of a table format. Modules above this one know no format by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakehand.errors import RefusedError
from lakehand.formats.rows import FormatRows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    import pyarrow as pa

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.worker import FormatWorker, WriteSpec
    from lakehand.model.maintenance import KeepWishes, LogCleanup, OldValues
    from lakehand.model.order import Order
    from lakehand.model.reports import Difference, HistoryEntry
    from lakehand.model.retention import Deletion, DeletionOutcome, Forgotten, Protection
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import Evolution, TableHead
    from lakehand.model.verification import Consent, FileRepair, Finding, LogCheck, LogRepair
    from lakehand.model.work import Change, DataFile, Group, Receipt
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = ["DataNames", "FormatUpkeep"]


class DataNames(Protocol):
    """Tells files of rows from everything else in a table's root."""

    @property
    def first_to_go(self) -> str | None:
        """Directory of files that name others: without these nobody looks for those any more."""
        ...

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether it can be a file of rows, or belongs to one."""
        ...

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        ...


class FormatUpkeep(Protocol):
    """The part of a table that looks after its history."""

    #: What `repairing_change` can do.
    file_repairs: frozenset[FileRepair]

    def clean_logs(
        self, wishes: KeepWishes, *, even_if_disabled: bool = False, dry_run: bool = False
    ) -> LogCleanup | None:
        """Delete history that the table no longer asks for; None if the format keeps none apart."""
        ...

    def free_history_of_old_values(self) -> bool:
        """Make it possible to delete what the history holds beyond the newest version, in time.

        Writes a checkpoint, or a version without changes, where one is needed; says whether it did.
        """
        ...

    def old_values(self, wishes: KeepWishes) -> OldValues:
        """Say what the history holds beyond the newest version, and until when."""
        ...

    def restoring_change(self, snapshot: Snapshot, wanted: Snapshot) -> Change:
        """Return the change that gives the table of `snapshot` the content of `wanted` again."""
        ...

    def check_log(self) -> LogCheck:
        """Say what is wrong with the history; also where the table cannot be opened by it."""
        ...

    def check_entries(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        """Say what is wrong with the table of files itself, without looking at the files."""
        ...

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        """Return the change that does `repair` to the entries of `files`, or refuse."""
        ...

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        """Set right what is wrong with the history, as far as nothing is lost by it.

        `accept_data_loss` goes back to the newest version that can be read, and gives up history
        that cannot be. Nothing is deleted for good: what leaves the history is set aside.
        """
        ...

    def hold_dropped_columns(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each file whether it still holds columns that the table has dropped."""
        ...

    def update_indices(self, *, since: Snapshot | None = None) -> tuple[str, ...]:
        """Bring indices up to date with rows that came after them, and return their names.

        With `since` only those that knew rows of that version whose files are gone.

        Empty where there is nothing to do, as in formats without indices. Raises a LakehandError,
        after which searches find what they found before.
        """
        ...

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        """Return what `files` need to be read and storage does not have, by path."""
        ...


#: What may be done to a table, as far as its format has a say in it.
Operation = Literal["read", "inspect", "checkpoint", "rewrite", "order", "append", "vacuum"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a format can do. Asked for; never guessed from its name."""

    #: The log is folded into checkpoints that lakehand writes.
    checkpoints: bool
    #: Row groups may be moved byte for byte.
    copies_bytes: bool
    #: Tables keep versions by names of their own.
    tags: bool = False
    #: Operations that no table of the format allows, each with the reason.
    lacking: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvedCommit:
    """A commit with its proof, and with all that is needed to look at it again."""

    version: int
    #: As it was stored; None if the commit carries none.
    proof: Mapping[str, Any] | None
    #: Files that it replaced, with the rows that were deleted then.
    inputs: tuple[DataFile, ...]
    #: Files that took their place, as they were then.
    outputs: tuple[DataFile, ...]


def require_capability(table: FormatTable, operation: str) -> None:
    """Raise RefusedError, with the reason, if no table of this format allows `operation`."""
    reason = table.capabilities.lacking.get(operation)
    if reason is not None:
        raise RefusedError(
            f"{operation} is not possible on {table.store.url}: {reason}",
            table=table.store.url,
            operation=operation,
        )


class Format(Protocol):
    """A way to keep tables in an object store."""

    name: str
    #: Defaults of settings where the format has its own, by their names.
    defaults: Mapping[str, Any]

    def detect(self, store: Store) -> bool:
        """Say whether the root of `store` holds a table of this format."""
        ...

    def open(self, store: Store, *, settings: Settings | None = None) -> FormatTable: ...

    def create(
        self,
        store: Store,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> FormatTable: ...


class FormatTable(FormatRows, FormatUpkeep, Protocol):
    """A table as the driver sees it. Holds no version: every call reads what it needs."""

    store: Store
    capabilities: Capabilities

    def with_settings(self, settings: Settings) -> FormatTable:
        """Return the same table, which is read and committed to as `settings` say."""
        ...

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
        statistics: Sequence[str] = (),
    ) -> Snapshot: ...

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        """Return commits, newest first."""
        ...

    def rows_changed_since(self, moment: datetime) -> bool:
        """Say whether a commit since `moment` deleted, updated or overwrote rows.

        Appends and rewrites do not. Where it cannot be told, the answer is yes.
        """
        ...

    def diff(self, from_version: int, to_version: int) -> Difference: ...

    def transactions(self) -> Mapping[str, int]:
        """Return the newest version of every application that writes exactly once."""
        ...

    def head(self) -> TableHead:
        """Return the newest version without its files, for writers that read none."""
        ...

    def evolve(self, head: TableHead, schema: pa.Schema) -> Evolution:
        """Return the table of `head` with all columns of `schema`, some new or of wider types.

        RefusedError if the table cannot become so. Nothing is read or written.
        """
        ...

    def require(
        self, operation: Operation, snapshot: Snapshot | TableHead, *, force: bool = False
    ) -> None:
        """Raise RefusedError, which names the feature, if `operation` is not safe on this table.

        `force` accepts that metadata of other formats beside the table goes stale.
        """
        ...

    def native_group(self, snapshot: Snapshot, group: Group) -> Mapping[str, Any]:
        """Return how the format itself rewrites a group without order; empty: lakehand does it."""
        ...

    def partition_keys(self, snapshot: Snapshot, *, keeps_order: bool = True) -> pa.Array:
        """Return a key for each row of `snapshot.files`: files with one key may become one file.

        Files that were put in order together stay apart from others, if the rewrite `keeps_order`.
        """
        ...

    def read_verdicts(self, snapshot: Snapshot, predicate: Predicate) -> pa.Array | None:
        """Say of each file whether a condition is true for all, none or some of its rows.

        The words are those of `expressions.pruning`. None where metadata tells as much as the
        format knows; else rows were read for it.
        """
        ...

    def clustering(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the columns that the table says its rows are ordered by; empty if by none.

        They are spelled as `snapshot(statistics=...)` takes them.
        """
        ...

    def order_marks(self, snapshot: Snapshot, order: Order) -> pa.Table:
        """Return what each row of `snapshot.files` says of the order of its rows.

        `unit` names the files that were put in order together; null: these never were. `is_asked`
        says whether it was this very order.
        """
        ...

    def stored_orders(self, snapshot: Snapshot) -> pa.Array:
        """Return the order that lakehand put the rows of each file into, as `Order.text` spells it.

        Null: it did not, or columns of that order are gone.
        """
        ...

    def survey(
        self, snapshot: Snapshot, paths: Sequence[str], spec: WriteSpec | None = None
    ) -> pa.Table:
        """Look into `paths` and say what the table does not: see `model.survey`.

        Files that are not as `spec` asks, in codec and Bloom filters, are not copied.
        """
        ...

    def lacks_statistics(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each row of `snapshot.files` whether statistics that the table wants are missing.

        A column without values, or with values that have no order, lacks nothing.
        """
        ...

    def data_files(self, snapshot: Snapshot, rows: Sequence[int]) -> tuple[DataFile, ...]:
        """Turn chosen rows of `snapshot.files` into values that can be sent to tasks."""
        ...

    def worker(self, snapshot: Snapshot | TableHead) -> FormatWorker: ...

    def commit(self, change: Change, *, token: str, checkpoint: bool = True) -> Receipt:
        """Commit `change`, rebasing over what others committed since `change.base_version`.

        A `checkpoint` that is due then is written before this returns.

        Raises CommitConflictError or ReplanError (nothing was written) or CommitUnknownError (keep
        every file).
        """
        ...

    def checkpoint_if_due(self, version: int) -> bool:
        """Write a checkpoint if `version`, which was just committed, makes one due."""
        ...

    def retention(self, snapshot: Snapshot) -> timedelta:
        """Return how long the table itself asks to keep files after their last version."""
        ...

    def data_names(self, snapshot: Snapshot) -> DataNames:
        """Return who tells files of rows by their names: everything else is never garbage."""
        ...

    def protected(
        self,
        *,
        since: datetime,
        pinned_versions: Collection[int] = (),
        from_version: int | None = None,
        ignored_tags: Collection[str] = (),
    ) -> Protection:
        """Return the files of all versions in force at `since` or later, pinned or tagged.

        With `from_version` those from that version on, too. RefusedError if that is not known.
        """
        ...

    def forgotten(self, *, before: datetime) -> Forgotten:
        """Return files that versions before a moment gave up, as far as the format remembers."""
        ...

    def note_vacuumed(self, version: int | None) -> None:
        """Remember that what was given up until `version` is gone; None: forget what was noted."""
        ...

    def begin_deletion(self, deletion: Deletion) -> None:
        """Note in the table's history, where that is wanted, what is about to be deleted."""
        ...

    def end_deletion(self, deletion: Deletion, outcome: DeletionOutcome) -> None:
        """Note in the table's history, where that is wanted, what was deleted."""
        ...

    def tagged_versions(self) -> Mapping[str, int]:
        """Return the versions that the table itself keeps by a name."""
        ...

    def branches(self) -> Mapping[str, int | None]:
        """Return the branches that share files with the table, and the version each began with.

        None if that is a version of another branch.
        """
        ...

    def tag_version(self, name: str, version: int) -> None:
        """Have the table itself keep a version by a name; ValidationError if the name is taken."""
        ...

    def drop_tag(self, name: str, version: int) -> None:
        """Have the table itself keep a version by this name no longer; any other version stays."""
        ...

    def streamed_version(self, checkpoint: Store) -> int:
        """Return the oldest version that a stream still reads; `checkpoint` is where it says so."""
        ...

    def protected_since(self, *, version: int, ignored_tags: Collection[str] = ()) -> Protection:
        """Return the files that versions after `version` brought, and of versions with a tag."""
        ...

    def proved_commit(self, version: int) -> ProvedCommit:
        """Return what the commit of `version` replaced; VersionNotFoundError if it is gone."""
        ...

    def worker_at(self, version: int) -> FormatWorker:
        """Return a worker under the columns and properties that the table had at `version`."""
        ...

    def find_commit(self, token: str, *, after: int) -> int | None:
        """Return the version that carries `token`, looking at versions above `after`."""
        ...

    def checkpoint(self, *, version: int | None = None) -> Mapping[str, Any] | None:
        """Write a checkpoint; None if the format has none."""
        ...


def for_call(
    table: FormatTable, settings: Settings, call: Mapping[str, Any]
) -> tuple[FormatTable, Settings]:
    """Return a table and its settings as they are for one call that sets some of them."""
    if not call:
        return table, settings
    chosen = settings.with_call(call)
    return table.with_settings(chosen), chosen
