"""Lance as a table format: thin methods over the modules that do the work."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import NotATableError, RefusedError
from lakehand.formats.base import Capabilities, Operation, require_capability
from lakehand.formats.lance import commit, fragments, history, retention
from lakehand.formats.lance.checks import check_log
from lakehand.formats.lance.commit import create_dataset
from lakehand.formats.lance.commit_records import (
    commit_record,
    drop_records,
    keep_marks,
    newest_marks,
)
from lakehand.formats.lance.comparable_types import plain_table
from lakehand.formats.lance.connect import (
    MANIFESTS,
    listed_versions,
    load_lance,
    open_dataset,
    reading,
    version_of_key,
)
from lakehand.formats.lance.dataset_cache import added_columns, drop_old_clones, told_columns
from lakehand.formats.lance.deletions import read_verdicts
from lakehand.formats.lance.fragments import hold_dropped_columns
from lakehand.formats.lance.history import order_marks, proved_files, stored_orders
from lakehand.formats.lance.protocol import require, require_deletion
from lakehand.formats.lance.reading import placed_schema
from lakehand.formats.lance.repair import (
    missing_files,
    repair_log,
    restoring_change,
    update_indices,
)
from lakehand.formats.lance.retention import (
    RETENTION,
    DataNames,
    add_version_after_predicate,
    drop_tag,
    find_old_values,
    protected_files,
    protected_since,
    put_tag,
    tagged_versions,
)
from lakehand.formats.lance.snapshot import evolved_head, load_snapshot, table_head, version_times
from lakehand.formats.optional import ProvedCommit
from lakehand.model.maintenance import ExtraRetention, LogCleanup, OldValues
from lakehand.model.table_head import Evolution, TableHead
from lakehand.model.work import Change, DataFile, Group, Receipt
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats import optional, worker
    from lakehand.formats.lance.worker import LanceWorker
    from lakehand.model.order import Order
    from lakehand.model.remedies import Consent, FileRepair
    from lakehand.model.reports import Difference, HistoryEntry
    from lakehand.model.retention import Deletion, DeletionOutcome, Protection
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import Finding, LogCheck, LogRepair
    from lakehand.storage import Store


class LanceUpkeep:
    """The part of a Lance table that manages its versions."""

    store: Store
    _settings: Settings
    file_repairs: frozenset[FileRepair] = frozenset({"drop_files"})

    def clean_logs(self, _wishes: ExtraRetention, /, **_options: bool) -> LogCleanup:
        """Delete nothing: manifests go with the files of their versions, by vacuum."""
        times = version_times(self.store)
        oldest = min(times)
        return LogCleanup(
            version=max(times),
            oldest_version=oldest,
            cutoff=times[oldest],
            reason="vacuum deletes versions of Lance tables together with their files",
        )

    def free_history_of_old_values(self) -> bool:
        attempts = self._settings.commit_attempts
        return add_version_after_predicate(self.store, attempts=attempts)

    def old_values(self, _wishes: ExtraRetention, /) -> OldValues:
        return find_old_values(self.store)

    def restoring_change(self, snapshot: Snapshot, wanted: Snapshot) -> Change:
        return restoring_change(snapshot, wanted)

    def check_log(self) -> LogCheck:
        return check_log(self.store)

    def check_entries(self, _snapshot: Snapshot, /) -> tuple[Finding, ...]:
        """Return nothing: Lance opens no manifest that names a fragment twice."""
        return ()

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        """Drop fragments that are lost; there is nothing else that could be said of one."""
        if repair != "drop_files":
            message = f"{repair} is not for {self.store.url}: it is a Lance table"
            raise RefusedError(message, table=self.store.url, operation="repair")
        return Change(
            kind="delete",
            base_version=snapshot.version,
            table_id=snapshot.table_id,
            operation="REPAIR",
            parameters={"repair": repair, "files": len(files)},
            removes=tuple(files),
        )

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        loses = consent.accept_data_loss
        return repair_log(self.store, accept_data_loss=loses, dry_run=dry_run)

    def hold_dropped_columns(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each fragment whether it still holds columns that the table has dropped."""
        return hold_dropped_columns(self.store, snapshot)

    def update_indices(self, *, since: Snapshot | None = None) -> tuple[str, ...]:
        return update_indices(self.store, since=None if since is None else since.native)

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        return missing_files(self.store, files)


_NO_STATISTICS = "Lance keeps no statistics of columns by fragment; build a scalar index instead"
_NO_CHECKPOINTS = "every version of a Lance table is complete in itself"


class LanceFormat:
    """Lance."""

    name = "lance"
    #: Fragments hold vectors and blobs, and are read column by column.
    defaults: Mapping[str, Any] = {"target_file_bytes": 512_000_000}
    root_directory = MANIFESTS

    def detect(self, store: Store) -> bool:
        """Say whether the root of `store` has manifests. Needs no library."""
        return store.has_directory(MANIFESTS)

    def latest_version(self, store: Store, *, after: int | None = None) -> int | None:
        newest = max(listed_versions(store), default=None)
        return newest if newest is not None and newest > (after or 0) else None

    def version_of_key(self, key: str) -> int | None:
        return version_of_key(key)

    def open(self, store: Store, *, settings: Settings | None = None) -> LanceTable:
        load_lance()
        if not self.detect(store):
            raise NotATableError(
                f"there is no Lance table at {store.url}: it has no {MANIFESTS}",
                table=store.url,
                hint="check the path; a table's root is the folder that holds its data",
            )
        return LanceTable(store, settings=settings)

    def create(
        self,
        store: Store,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> LanceTable:
        create_dataset(store, schema, partition_by=partition_by, properties=properties or {})
        return LanceTable(store, settings=settings)


class LanceTable(LanceUpkeep):
    """A Lance table. Holds no version: every call reads what it needs."""

    capabilities = Capabilities(
        lacking={"checkpoint": _NO_CHECKPOINTS, "statistics": _NO_STATISTICS}
    )

    def __init__(self, store: Store, *, settings: Settings | None = None) -> None:
        self.store = store
        self._settings = settings or Settings()
        #: The columns that were added last to a version, and what it will be with them.
        self._evolved: tuple[tuple[int, pa.Schema], TableHead] | None = None

    def with_settings(self, settings: Settings) -> LanceTable:
        table = copy.copy(self)
        table._settings, table.store = settings, self.store.with_settings(settings)  # noqa: SLF001
        return table

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
        statistics: Sequence[str] = (),
    ) -> Snapshot:
        return load_snapshot(
            self.store, version=version, timestamp=timestamp, statistics=statistics
        )

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        return history.history(self.store, limit=limit)

    def rows_changed_since(self, moment: datetime) -> bool:
        return history.rows_changed_since(self.store, moment)

    def diff(self, from_version: int, to_version: int) -> Difference:
        return history.diff(self.store, from_version, to_version)

    def transactions(self) -> Mapping[str, int]:
        return newest_marks(self.store)

    def head(self) -> TableHead:
        return table_head(self.store)

    def evolve(self, head: TableHead, schema: pa.Schema) -> Evolution:
        added = added_columns(self.store, head.schema, schema)
        if not added.names:
            return Evolution(head=head)
        # Every batch of rows asks again.
        if self._evolved is None or self._evolved[0] != (head.version, added):
            evolved = evolved_head(self.store, head, added)
            self._evolved = (head.version, added), evolved
        return Evolution(head=self._evolved[1], native=(told_columns(added),))

    def require(
        self,
        operation: Operation,
        snapshot: Snapshot | TableHead,
        *,
        force: bool = False,  # noqa: ARG002  there is no other metadata
    ) -> None:
        require_capability(self, operation)
        require(self.store, operation, snapshot)

    def native_group(self, _snapshot: Snapshot, group: Group, /) -> Mapping[str, Any]:
        """Return the options of the task by which Lance rewrites `group`; it knows no order."""
        if group.method == "sort":
            return {}
        return {"target_rows_per_fragment": 2**31, "max_bytes_per_file": group.target_file_bytes}

    def partition_keys(self, snapshot: Snapshot, *, keeps_order: bool = True) -> pa.Array:
        """Return which parts of indices know each fragment: Lance merges no others.

        There are no partitions. Where rows move without ids, no index knows them afterwards.
        """
        if not keeps_order and not snapshot.native.has_stable_row_ids:
            return pa.array([""] * snapshot.file_count, pa.string())
        numbers = pc.struct_field(snapshot.files["native"], "id").to_pylist()
        return pa.array([snapshot.native.coverage(number) for number in numbers], pa.string())

    def read_verdicts(self, snapshot: Snapshot, predicate: Predicate) -> pa.Array:
        files = self.data_files(snapshot, range(snapshot.file_count))
        return read_verdicts(self.worker(snapshot), files, predicate)

    def order_marks(self, snapshot: Snapshot, order: Order) -> pa.Table:
        return order_marks(self.store, snapshot.files, order)

    def stored_orders(self, snapshot: Snapshot) -> pa.Array:
        return stored_orders(self.store, snapshot.files)

    def data_files(self, snapshot: Snapshot, rows: Sequence[int]) -> tuple[DataFile, ...]:
        return fragments.data_files(snapshot.files, rows)

    def worker(self, snapshot: Snapshot | TableHead) -> LanceWorker:
        from lakehand.formats.lance.worker import LanceWorker

        return LanceWorker(store=self.store, version=snapshot.version, added=snapshot.native.added)

    def worker_at(self, version: int) -> LanceWorker:
        from lakehand.formats.lance.worker import LanceWorker

        return LanceWorker(store=self.store, version=version)

    def require_deletion(self, snapshot: Snapshot, *, keys: Sequence[str] = ()) -> None:
        require_deletion(self.store, snapshot, keys=keys)

    def placed_schema(self, snapshot: Snapshot) -> pa.Schema:
        dataset = open_dataset(self.store, snapshot.version)
        with reading(self.store, snapshot.version):
            return placed_schema(dataset)

    def comparable_rows(self, rows: pa.Table) -> pa.Table:
        return plain_table(rows)

    def file_versions(self, snapshot: Snapshot) -> pa.Array:
        """Return the numbers of fragments, which grow as versions do."""
        return pc.struct_field(snapshot.files["native"], "id").combine_chunks()

    def commit(self, change: Change, *, token: str) -> Receipt:
        return commit.commit_change(
            self.store, change, token=token, attempts=self._settings.commit_attempts
        )

    def find_commit(self, token: str, *, after: int) -> int | None:
        return commit.find_commit(self.store, token, after=after)

    def retention(self, _snapshot: Snapshot, /) -> timedelta:
        return RETENTION

    def data_names(self, _snapshot: Snapshot, /) -> DataNames:
        return DataNames()

    def protected(
        self,
        *,
        since: datetime,
        pinned_versions: Collection[int] = (),
        from_version: int | None = None,
        ignored_tags: Collection[str] = (),
    ) -> Protection:
        return protected_files(
            self.store,
            since=since,
            pinned_versions=pinned_versions,
            from_version=from_version,
            ignored_tags=ignored_tags,
        )

    def protected_since(self, *, version: int, ignored_tags: Collection[str] = ()) -> Protection:
        return protected_since(self.store, version=version, ignored_tags=ignored_tags)

    def begin_deletion(self, _deletion: Deletion, /) -> None:
        """Keep what only versions that go may tell."""
        keep_marks(self.store)

    def end_deletion(self, _deletion: Deletion, _outcome: DeletionOutcome, /) -> None:
        """Forget what is remembered of versions that went, and what killed proofs left."""
        drop_old_clones(self.store)
        live = self.snapshot().files["path"].to_pylist()
        drop_records(self.store, versions=listed_versions(self.store), live=live)

    def tagged_versions(self) -> Mapping[str, int]:
        return tagged_versions(self.store)

    def branches(self) -> Mapping[str, int | None]:
        return retention.branches(self.store)

    def tag_version(self, name: str, version: int) -> None:
        put_tag(self.store, name, version)

    def drop_tag(self, name: str, version: int) -> None:
        drop_tag(self.store, name, version)

    def proved_commit(self, version: int) -> ProvedCommit:
        record = commit_record(self.store, version)
        inputs, outputs = proved_files(self.store, version, record)
        proof = record.proof if record else None
        return ProvedCommit(version=version, proof=proof, inputs=inputs, outputs=outputs)


if TYPE_CHECKING:
    # Type checkers compare the classes with the protocols that they implement.
    _creation: type[optional.SupportsCreation] = LanceFormat
    _polling: type[optional.SupportsPolling] = LanceFormat
    _appends: type[optional.SupportsAppends] = LanceTable
    _clustering: type[optional.SupportsClustering] = LanceTable
    _indices: type[optional.SupportsIndices] = LanceTable
    _log_repair: type[optional.SupportsLogRepair] = LanceTable
    _native_rewrite: type[optional.SupportsNativeRewrite] = LanceTable
    _predicate_reads: type[optional.SupportsPredicateReads] = LanceTable
    _purge: type[optional.SupportsPurge] = LanceTable
    _restore: type[optional.SupportsRestore] = LanceTable
    _row_changes: type[optional.SupportsRowChanges] = LanceTable
    _tags: type[optional.SupportsTags] = LanceTable
    _vacuum: type[optional.SupportsVacuum] = LanceTable
    _verification: type[optional.SupportsVerification] = LanceTable
    _native_rewrite_worker: type[worker.NativeRewriteWorker] = LanceWorker
