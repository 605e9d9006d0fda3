"""Delta as a table format: thin methods over the modules that do the work.

What not every command needs is imported by the method that needs it: imports are half of the time
of a command on a small table.
"""

from __future__ import annotations

import copy
import uuid
from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError, NotATableError
from lakehand.formats.base import Capabilities, Operation
from lakehand.formats.delta.commits import commit, create
from lakehand.formats.delta.commits.head import Head, Heads
from lakehand.formats.delta.log.listing import list_commits
from lakehand.formats.delta.log.replay import live_actions
from lakehand.formats.delta.log.snapshot import (
    file_keys,
    load_snapshot,
    load_state_at,
    table_head,
    take_rows,
)
from lakehand.formats.delta.protocol.actions import file_key
from lakehand.formats.delta.protocol.clustering import (
    clustering_columns,
    clustering_names,
    order_marks,
    stored_orders,
)
from lakehand.formats.delta.protocol.features import require_read, require_write, supported_features
from lakehand.formats.delta.protocol.names import (
    LOG_DIRECTORY,
    OTHER_PATHS,
    CommitName,
    parse_log_name,
)
from lakehand.formats.delta.protocol.schema import physical_name
from lakehand.formats.delta.write.context import WriteContext
from lakehand.formats.delta.write.file_schema import hold_dropped_columns, partition_keys
from lakehand.formats.delta.write.survey import survey_files
from lakehand.formats.optional import ProvedCommit
from lakehand.model.remedies import FileRepair
from lakehand.model.work import Change, DataFile, Receipt
from lakehand.observe.clock import Clock, SystemClock
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from lakehand.formats import optional, rows, worker
    from lakehand.formats.delta.log.snapshot import DeltaState, FileKey
    from lakehand.formats.delta.read.change_feed import ChangeScan
    from lakehand.formats.delta.retention.vacuum import DataNames
    from lakehand.formats.delta.worker import DeltaWorker
    from lakehand.formats.worker import WriteSpec
    from lakehand.model.maintenance import ExtraRetention, LogCleanup, OldValues
    from lakehand.model.order import Order
    from lakehand.model.remedies import Consent
    from lakehand.model.reports import CheckpointEntry, Difference, HistoryEntry
    from lakehand.model.retention import Deletion, DeletionOutcome, Forgotten, Protection
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import Evolution, TableHead
    from lakehand.model.table_summary import LogLook, TableSummary
    from lakehand.model.verification import Finding, LogCheck, LogRepair
    from lakehand.model.work import ChangeSpan, PropertyPlan, PropertyWish
    from lakehand.storage import Store


class DeltaUpkeep(ABC):
    """The part of a Delta table that maintains its log."""

    store: Store
    _clock: Clock
    file_repairs: frozenset[FileRepair] = frozenset(get_args(FileRepair))

    @abstractmethod
    def worker(self, snapshot: Snapshot | TableHead) -> DeltaWorker: ...

    def clean_logs(
        self, wishes: ExtraRetention, *, even_if_disabled: bool = False, dry_run: bool = False
    ) -> LogCleanup:
        from lakehand.formats.delta.retention.log_cleanup import clean_logs

        return clean_logs(
            self.store,
            now=self._clock.now(),
            wishes=wishes,
            even_if_disabled=even_if_disabled,
            dry_run=dry_run,
        )

    def check_log(self) -> LogCheck:
        from lakehand.formats.delta.repair.log_findings import check_log

        return check_log(self.store, now=self._clock.now())

    def check_entries(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        from lakehand.formats.delta.repair.file_check import duplicate_files, unreadable_statistics

        url, version = self.store.url, snapshot.version
        return (
            *duplicate_files(snapshot.files, table=url, version=version),
            *unreadable_statistics(snapshot.native),
        )

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        from lakehand.formats.delta.repair.log_repair import repair_log

        return repair_log(self.store, consent, clock=self._clock, dry_run=dry_run)

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        from lakehand.formats.delta.repair.repairs import Means, repairing_change

        means = Means(self.store, self.worker(snapshot))
        return repairing_change(means, snapshot, repair, files)

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        from lakehand.formats.delta.repair.file_check import missing_files

        return missing_files(self.store, files)


class DeltaFormat:
    """Delta Lake."""

    name = "delta"
    defaults: Mapping[str, Any] = MappingProxyType({})
    root_directory = LOG_DIRECTORY

    def detect(self, store: Store) -> bool:
        """Say whether the root of `store` has a log, be it whole or not."""
        return store.has_directory(LOG_DIRECTORY)

    def latest_version(self, store: Store, *, after: int | None = None) -> int | None:
        return max(list_commits(store, -1 if after is None else after), default=None)

    def look(self, store: Store, *, known: int | None = None) -> LogLook | None:
        from lakehand.formats.delta.log import summaries

        return summaries.look_at_log(store, known=known)

    def update_summary(
        self, store: Store, look: LogLook, before: TableSummary | None = None
    ) -> TableSummary | None:
        from lakehand.formats.delta.log import summaries

        return summaries.update_summary(store, look, before)

    def summarize(self, snapshot: Snapshot, look: LogLook | None = None) -> TableSummary:
        from lakehand.formats.delta.log import summaries

        return summaries.summarize_snapshot(snapshot, look)

    def version_of_key(self, key: str) -> int | None:
        match parse_log_name(key):
            case CommitName(version=version):
                return version
        return None

    def open(self, store: Store, *, settings: Settings | None = None) -> DeltaTable:
        if not self.detect(store):
            raise NotATableError(
                f"there is no Delta table at {store.url}: it has no {LOG_DIRECTORY}",
                table=store.url,
                hint="check the path; a table's root is the folder that holds its log",
            )
        return DeltaTable(store, settings=settings)

    def create(
        self,
        store: Store,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> DeltaTable:
        create.create_table(store, schema, partition_by=partition_by, properties=properties)
        return DeltaTable(store, settings=settings)


class DeltaTable(DeltaUpkeep):
    """A Delta table. Holds no version: every call reads what it needs."""

    capabilities = Capabilities()

    def __init__(
        self, store: Store, *, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self.store = store
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._heads = Heads(store)
        #: The newest checkpoint that was written here: before the next is due none is looked for.
        self._checkpointed_version = -1
        #: Properties, and the settings under them.
        self._settings_known: tuple[Mapping[str, str], Settings] | None = None

    def with_settings(self, settings: Settings) -> DeltaTable:
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
        snapshot = load_snapshot(
            self.store,
            version=version,
            timestamp=timestamp,
            statistics=statistics,
            partition_time_zone=self._settings.partition_time_zone,
        )
        if version is None and timestamp is None:
            self._heads.expect(snapshot.native)
        return snapshot

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        from lakehand.formats.delta.log import history

        return history.history(self.store, limit=limit)

    def rows_changed_since(self, moment: datetime) -> bool:
        from lakehand.formats.delta.log import history

        return history.rows_changed_since(self.store, moment)

    def diff(self, from_version: int, to_version: int) -> Difference:
        from lakehand.formats.delta.log import history

        return history.diff(self.store, from_version, to_version)

    def transactions(self) -> Mapping[str, int]:
        return Head.of(load_state_at(self.store)).transactions

    def head(self) -> TableHead:
        state = load_state_at(self.store)
        self._heads.remember(Head.of(state))
        return table_head(state)

    def evolve(self, head: TableHead, schema: pa.Schema) -> Evolution:
        from lakehand.formats.delta.commits.schema_change import evolve

        return evolve(head, schema)

    def require(
        self, operation: Operation, snapshot: Snapshot | TableHead, *, force: bool = False
    ) -> None:
        # A table that may be rewritten may be clustered.
        if operation == "order":
            return
        state: DeltaState = snapshot.native
        require_write(operation, state.protocol, state.metadata, table=self.store.url, force=force)

    def partition_keys(self, snapshot: Snapshot, *, keeps_order: bool = True) -> pa.Array:
        state: DeltaState = snapshot.native
        native = snapshot.files["native"]
        values = [
            pc.struct_field(native, ["partition_values", name])
            for name in _physical_partition_columns(snapshot)
        ]
        has_cubes = keeps_order and clustering_columns(state.domains)
        return partition_keys(
            values, len(native), cubes=pc.struct_field(native, "tags") if has_cubes else None
        )

    def clustering(self, snapshot: Snapshot) -> tuple[str, ...]:
        state: DeltaState = snapshot.native
        return clustering_names(state.domains, state.schema, mode=state.mapping_mode)

    def order_marks(self, snapshot: Snapshot, order: Order) -> pa.Table:
        state: DeltaState = snapshot.native
        tags = snapshot.files["native"].combine_chunks().field("tags")
        return order_marks(tags, order, state.schema, mode=state.mapping_mode)

    def stored_orders(self, snapshot: Snapshot) -> pa.Array:
        state: DeltaState = snapshot.native
        tags = snapshot.files["native"].combine_chunks().field("tags")
        return stored_orders(tags, state.schema, mode=state.mapping_mode)

    def survey(
        self, snapshot: Snapshot, paths: Sequence[str], spec: WriteSpec | None = None
    ) -> pa.Table:
        return survey_files(WriteContext.of(snapshot.native), paths, spec)

    def lacks_statistics(self, snapshot: Snapshot) -> pa.BooleanArray:
        from lakehand.formats.delta.statistics.written import paths_lacking_statistics

        state: DeltaState = snapshot.native
        rules = WriteContext.of(state).statistics_rules()
        paths = paths_lacking_statistics(self.store, state.segment, rules)
        return pc.is_in(snapshot.files["path"].combine_chunks(), value_set=paths)

    def hold_dropped_columns(self, snapshot: Snapshot) -> pa.BooleanArray:
        paths = snapshot.files["path"].to_pylist()
        return hold_dropped_columns(WriteContext.of(snapshot.native), paths)

    def data_files(self, snapshot: Snapshot, rows: Sequence[int]) -> tuple[DataFile, ...]:
        columns = snapshot.files.select(["path", "bytes", "rows", "deleted_rows", "native"])
        chosen = take_rows(columns, rows)
        keys = file_keys(chosen)
        adds = self._adds(snapshot, keys)
        facts = chosen.drop_columns(["native"]).to_pylist()
        spellings = pc.struct_field(chosen["native"], OTHER_PATHS).to_pylist()
        return tuple(
            DataFile(
                **file,
                native={"add": adds[key]} | ({OTHER_PATHS: others} if others else {}),
            )
            for file, key, others in zip(facts, keys, spellings, strict=True)
        )

    def _adds(self, snapshot: Snapshot, keys: Sequence[FileKey]) -> dict[FileKey, dict[str, Any]]:
        found = live_actions(self.store, snapshot.native.segment, [path for path, _ in keys])
        # By vector too: a damaged log may name one file twice, with different rows deleted.
        adds = {file_key(add): add for add in found}
        missing = next((path for path, vector in keys if (path, vector) not in adds), None)
        if missing is not None:
            message = f"{missing!r} is not in version {snapshot.version} of {self.store.url}"
            raise CorruptLogError(message, table=self.store.url, version=snapshot.version)
        return adds

    def worker(self, snapshot: Snapshot | TableHead) -> DeltaWorker:
        from lakehand.formats.delta.worker import DeltaWorker

        zone = self._settings.partition_time_zone
        return DeltaWorker.of(self.store, snapshot, time_zone=zone)

    def require_deletion(self, snapshot: Snapshot, *, keys: Sequence[str] = ()) -> None:
        from lakehand.formats.delta.deletion_vectors.row_deletion import require_deletion

        require_deletion(snapshot.native, table=self.store.url, keys=keys)

    def placed_schema(self, snapshot: Snapshot) -> pa.Schema:
        return snapshot.schema

    def comparable_rows(self, rows: pa.Table) -> pa.Table:
        return rows

    def file_versions(self, snapshot: Snapshot) -> pa.Array:
        from lakehand.formats.delta.log.history import file_versions

        return file_versions(self.store, snapshot.files["path"], until=snapshot.version)

    def plan_properties(self, snapshot: Snapshot, wish: PropertyWish) -> PropertyPlan:
        from lakehand.formats.delta.commits.property_change import plan_properties

        return plan_properties(snapshot, wish)

    def features(self, snapshot: Snapshot) -> tuple[str, ...]:
        state: DeltaState = snapshot.native
        return supported_features(state.protocol)

    def plan_changes(self, span: ChangeSpan, *, columns: Sequence[str] | None = None) -> ChangeScan:
        from lakehand.formats.delta.read.change_feed import plan_changes

        zone = self._settings.partition_time_zone
        return plan_changes(self.store, span, columns=columns, time_zone=zone)

    def restoring_change(self, snapshot: Snapshot, wanted: Snapshot) -> Change:
        from lakehand.formats.delta.repair.restore_commit import restoring_change

        return restoring_change(self, snapshot, wanted)

    def commit(self, change: Change, *, token: str, checkpoint: bool = True) -> Receipt:
        head = self._heads.at(change.base_version)
        settings = self._settings_with(head.metadata.configuration)
        receipt = commit.commit_change(
            self.store, change, token=token, head=head, settings=settings, clock=self._clock
        )
        if checkpoint:
            self._checkpoint_if_due(receipt.version, settings)
        return receipt

    def checkpoint_if_due(self, version: int) -> bool:
        head = self._heads.known or self._heads.at(version)
        settings = self._settings_with(head.metadata.configuration)
        return self._checkpoint_if_due(version, settings)

    def _settings_with(self, properties: Mapping[str, str]) -> Settings:
        """Return the settings under a table's properties, which seldom change between commits."""
        known = self._settings_known
        if known is None or known[0] != properties:
            known = dict(properties), self._settings.with_properties(properties)
            self._settings_known = known
        return known[1]

    def _checkpoint_if_due(self, version: int, settings: Settings) -> bool:
        from lakehand.formats.delta.checkpoints.checkpoint import checkpoint_if_due

        interval: int = settings.checkpoint_interval
        if version < self._checkpointed_version + interval:
            return False
        receipt = checkpoint_if_due(
            self.store, interval=interval, committed_version=version, clock=self._clock
        )
        if receipt is not None:
            self._checkpointed_version = receipt.version
        return receipt is not None

    def free_history_of_old_values(self) -> bool:
        from lakehand.formats.delta.retention.erasure import LogErasure, boundary_change

        erasure = LogErasure(self.store, now=self._clock.now())
        needs_commit = erasure.needs_commit
        if needs_commit:
            token = f"lakehand-purge-{uuid.uuid4().hex}"
            self.commit(boundary_change(erasure.newest), token=token, checkpoint=False)
            erasure = LogErasure(self.store, now=self._clock.now())
        version = erasure.checkpoint_to_write
        if version is not None:
            self.checkpoint(version=version)
        return needs_commit or version is not None

    def old_values(self, wishes: ExtraRetention) -> OldValues:
        from lakehand.formats.delta.retention.erasure import LogErasure

        return LogErasure(self.store, now=self._clock.now()).report(wishes)

    def retention(self, snapshot: Snapshot) -> timedelta:
        from lakehand.formats.delta.retention.references import file_retention

        return file_retention(snapshot.properties)

    def data_names(self, snapshot: Snapshot) -> DataNames:
        from lakehand.formats.delta.retention.vacuum import DataNames

        columns = (*snapshot.partition_columns, *_physical_partition_columns(snapshot))
        return DataNames(partition_columns=tuple(dict.fromkeys(columns)))

    def protected(
        self,
        *,
        since: datetime,
        pinned_versions: Collection[int] = (),
        from_version: int | None = None,
    ) -> Protection:
        from lakehand.formats.delta.retention.references import protected_files

        return protected_files(
            self.store, since=since, pinned_versions=pinned_versions, from_version=from_version
        )

    def forgotten(self, *, before: datetime) -> Forgotten:
        from lakehand.formats.delta.retention.vacuum import forgotten_files

        return forgotten_files(self.store, before=before)

    def note_vacuumed(self, version: int | None) -> None:
        from lakehand.formats.delta.retention.vacuum import note_vacuumed

        note_vacuumed(self.store, version)

    def begin_deletion(self, deletion: Deletion) -> None:
        from lakehand.formats.delta.retention import vacuum
        from lakehand.formats.delta.retention.references import file_retention

        if vacuum.is_wanted(deletion.entries, self.store):
            properties = self._heads.at(deletion.version).metadata.configuration
            entry = vacuum.start(deletion, table_retention=file_retention(properties))
            self.commit(entry, token=f"lakehand-vacuum-{uuid.uuid4().hex}")

    def end_deletion(self, deletion: Deletion, outcome: DeletionOutcome) -> None:
        from lakehand.formats.delta.retention import vacuum

        if vacuum.is_wanted(deletion.entries, self.store):
            entry = vacuum.ending(deletion, outcome)
            self.commit(entry, token=f"lakehand-vacuum-{uuid.uuid4().hex}")

    def streamed_version(self, checkpoint: Store) -> int:
        from lakehand.formats.delta.retention.references import oldest_streamed_version

        table_id = load_state_at(self.store).metadata.id
        return oldest_streamed_version(checkpoint, table_id=table_id)

    def protected_since(self, *, version: int) -> Protection:
        from lakehand.formats.delta.retention.references import protected_since

        return protected_since(self.store, version=version)

    def proved_commit(self, version: int) -> ProvedCommit:
        from lakehand.formats.delta.log.history import files_of, proof_of, proved_commit

        commit = proved_commit(self.store, version)
        return ProvedCommit(
            version=version,
            proof=proof_of(commit),
            inputs=files_of(commit.removes),
            outputs=files_of(commit.adds),
        )

    def worker_at(self, version: int) -> DeltaWorker:
        from lakehand.formats.delta.worker import DeltaWorker

        state = load_state_at(self.store, version=version)
        require_read(state.protocol, state.metadata, table=self.store.url)
        zone = self._settings.partition_time_zone
        return DeltaWorker(store=self.store, context=WriteContext.of(state), time_zone=zone)

    def find_commit(self, token: str, *, after: int) -> int | None:
        return commit.find_commit(self.store, token, after=after)

    def checkpoint(self, *, version: int | None = None) -> Mapping[str, Any]:
        from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint

        return write_checkpoint(self.store, version=version, clock=self._clock).to_json()

    def checkpoints(self) -> Sequence[CheckpointEntry]:
        from lakehand.formats.delta.checkpoints.checkpoint import list_checkpoints

        return list_checkpoints(self.store)

    def read_checkpoint(self, version: int | None) -> pa.Table:
        from lakehand.formats.delta.checkpoints.checkpoint import read_checkpoint

        return read_checkpoint(self.store, version)

    def is_checkpoint_due(self) -> bool:
        from lakehand.formats.delta.checkpoints.checkpoint import checkpoint_due

        state = load_state_at(self.store)
        settings = self._settings_with(state.metadata.configuration)
        return checkpoint_due(state.segment, settings.checkpoint_interval)


def _physical_partition_columns(snapshot: Snapshot) -> list[str]:
    state: DeltaState = snapshot.native
    found = (state.schema.find(name) for name in snapshot.partition_columns)
    return [physical_name(column, mode=state.mapping_mode) for column in found if column]


if TYPE_CHECKING:
    # Type checkers compare the classes with the protocols that they implement.
    _creation: type[optional.SupportsCreation] = DeltaFormat
    _polling: type[optional.SupportsPolling] = DeltaFormat
    _appends: type[optional.SupportsAppends] = DeltaTable
    _byte_copy: type[optional.SupportsByteCopy] = DeltaTable
    _change_feed: type[optional.SupportsChangeFeed] = DeltaTable
    _checkpoints: type[optional.SupportsCheckpoints] = DeltaTable
    _clustering: type[optional.SupportsClustering] = DeltaTable
    _clustering_columns: type[optional.SupportsClusteringColumns] = DeltaTable
    _log_repair: type[optional.SupportsLogRepair] = DeltaTable
    _properties: type[optional.SupportsProperties] = DeltaTable
    _purge: type[optional.SupportsPurge] = DeltaTable
    _removed_files: type[optional.SupportsRemovedFiles] = DeltaTable
    _restore: type[optional.SupportsRestore] = DeltaTable
    _row_changes: type[optional.SupportsRowChanges] = DeltaTable
    _statistics: type[optional.SupportsStatistics] = DeltaTable
    _streams: type[optional.SupportsStreams] = DeltaTable
    _vacuum: type[optional.SupportsVacuum] = DeltaTable
    _verification: type[optional.SupportsVerification] = DeltaTable
    _change_feed_worker: type[rows.ChangeFeedWorker] = DeltaWorker
    _byte_copy_worker: type[worker.ByteCopyWorker] = DeltaWorker
    _order_marking_worker: type[worker.OrderMarkingWorker] = DeltaWorker
    _size_estimate_worker: type[worker.SizeEstimateWorker] = DeltaWorker
