"""A table and its verbs. Every call reads the newest version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.assess.inspect import Inspection, inspect_snapshot
from lakehand.errors import ValidationError
from lakehand.formats.base import for_call
from lakehand.formats.registry import detect_format, load_format
from lakehand.model.order import column_names
from lakehand.model.quantities import one_moment
from lakehand.observe.clock import SystemClock
from lakehand.settings import Settings
from lakehand.storage import open_store
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from typing import Unpack

    import pyarrow as pa

    from lakehand.assess.advise import Advice
    from lakehand.assess.checkup import HealthReport
    from lakehand.formats.base import FormatTable
    from lakehand.model.maintenance import (
        LogCleanupReport,
        MaintenanceReport,
        PurgeReport,
        RestoreReport,
    )
    from lakehand.model.order import Curve
    from lakehand.model.reports import (
        CheckpointReport,
        ClusterReport,
        DeduplicationReport,
        DeletionReport,
        Difference,
        HistoryEntry,
        OperationReport,
        StatisticsReport,
        UpsertReport,
        WriteReport,
    )
    from lakehand.model.retention import VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import RepairReport, Verification
    from lakehand.observe import OnProgress
    from lakehand.planning.plan import Plan
    from lakehand.planning.restriction import FileFilter
    from lakehand.retention.pins import Pin
    from lakehand.retention.vacuum import Mode
    from lakehand.rewrite.prepare import Planned, Request, RewriteOperation
    from lakehand.rows.key_equality import Keep
    from lakehand.settings.typed import (
        CheckupSettings,
        CompactSettings,
        CreateSettings,
        DeleteSettings,
        MaintainSettings,
        OpenSettings,
        PurgeSettings,
        VacuumSettings,
        VerifySettings,
        WriteSettings,
    )

__all__ = ["Table", "check_health", "create_table", "open_table"]


def open_table(
    uri: str | Path,
    *,
    spark: Any = None,
    storage_options: Mapping[str, str] | None = None,
    **settings: Unpack[OpenSettings],
) -> Table:
    """Open the table at a path or URL; NotATableError if there is none.

    `spark` is a session for verbs that run tasks; without one, a session is started where there is
    too much to do for processes of this machine (`spark_above_bytes`). `storage_options` are
    credentials and endpoints, where the environment does not give them. Further keywords are
    settings, by any of their spellings.
    """
    chosen = Settings(settings)
    store = open_store(uri, storage_options).with_settings(chosen)
    table_format = detect_format(store)
    chosen = chosen.with_defaults(table_format.defaults)
    handle = table_format.open(store, settings=chosen)
    return Table(handle, format_name=table_format.name, settings=chosen, spark=spark)


def create_table(
    uri: str | Path,
    schema: pa.Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    format: str = "delta",  # noqa: A002  the word that users of tables know
    storage_options: Mapping[str, str] | None = None,
    **settings: Unpack[CreateSettings],
) -> Table:
    """Create an empty table; TableExistsError if there is one."""
    store = open_store(uri, storage_options)
    table_format = load_format(format)
    chosen = Settings(settings).with_defaults(table_format.defaults)
    handle = table_format.create(
        store.with_settings(chosen),
        schema,
        partition_by=partition_by,
        properties=properties or {},
        settings=chosen,
    )
    return Table(handle, format_name=table_format.name, settings=chosen)


def check_health(
    uri: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    orphans: bool = False,
    **settings: Unpack[OpenSettings],
) -> HealthReport:
    """Say how healthy the table at `uri` is; one that cannot be reached or read is not.

    The arguments are those of `open_table` and `Table.health`.
    """
    from lakehand.assess.checkup import UNREADABLE, report_unreadable

    clock = SystemClock()
    started = clock.monotonic()
    try:
        table = open_table(uri, storage_options=storage_options, **settings)
    except UNREADABLE as error:
        return report_unreadable(path_to_url(uri), error, started=started, clock=clock)
    return table.health(orphans=orphans)


class Table:
    """A table. It holds no version: each method reads the newest one, unless told another."""

    def __init__(
        self, handle: FormatTable, *, format_name: str, settings: Settings, spark: Any = None
    ) -> None:
        self._handle = handle
        self._settings = settings
        self._spark = spark
        #: Name of the table's format.
        self.format = format_name

    # -- read ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the table is, without credentials."""
        return self._handle.store.url

    def __repr__(self) -> str:
        return f"<Table {self.url} ({self.format})>"

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        statistics: Sequence[str] = (),
    ) -> Snapshot:
        """Return what the table holds: now, at a version, or at a time.

        `statistics` names the columns whose smallest and largest values are wanted by file.
        """
        moment = one_moment(version, timestamp)
        return self._handle.snapshot(version=version, timestamp=moment, statistics=statistics)

    def schema(self) -> pa.Schema:
        """Return the columns, partition columns included."""
        return self.snapshot().schema

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Return rows as readers see them: without deleted ones, under current names and types.

        `where` is a condition in SQL; files and row groups that cannot hold a match are not read.
        """
        return self.to_batches(
            columns=columns, where=where, version=version, timestamp=timestamp
        ).read_all()

    def to_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.RecordBatchReader:
        """Stream what `to_arrow` returns, for tables that are larger than memory."""
        from lakehand.formats.scan import scan

        moment = one_moment(version, timestamp)
        return scan(self._handle, columns=columns, where=where, version=version, timestamp=moment)

    def to_spark(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        spark: Any = None,
    ) -> Any:
        """Return the rows of `to_arrow` as a frame of Spark's, which needs no jar to read them.

        The version is chosen now; its files are read by the executors, when the frame is. Choose
        columns and rows here: what is done to the frame later does not save a byte. `spark` is the
        session to use, else the one of the table, else one that is active or is started.
        """
        from lakehand.engine.session import open_session
        from lakehand.formats.scan import plan_scan
        from lakehand.spark.source import frame_of

        scan = plan_scan(
            self._handle,
            columns=columns,
            where=where,
            version=version,
            timestamp=one_moment(version, timestamp),
        )
        session = spark or self._spark
        if session is None:
            session, _ = open_session(self._settings)
        return frame_of(scan, session)

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        """Return the commits, newest first."""
        if limit is not None and limit < 1:
            raise ValidationError("limit must be at least 1", field="limit", value=limit)
        return self._handle.history(limit=limit)

    def diff(self, from_version: int, to_version: int) -> Difference:
        """Return the files that came and went between two versions."""
        return self._handle.diff(from_version, to_version)

    def transactions(self) -> Mapping[str, int]:
        """Return the newest version of every application that writes exactly once."""
        return self._handle.transactions()

    def inspect(
        self,
        *,
        by: str | Sequence[str] = (),
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Inspection:
        """Say what is wrong with the table, in numbers. Reads the log only.

        `by` names columns: the report then says how well they keep the files apart.
        """
        columns = column_names(by)
        snapshot = self.snapshot(version=version, timestamp=timestamp, statistics=columns)
        return self.inspect_snapshot(snapshot, by=columns)

    def inspect_snapshot(self, snapshot: Snapshot, *, by: Sequence[str] = ()) -> Inspection:
        """Say what is wrong with a snapshot of this table, which has the bounds of `by`."""
        settings = self._settings.with_properties(snapshot.properties)
        return inspect_snapshot(snapshot, format_name=self.format, settings=settings, by=by)

    def health(self, *, orphans: bool = False, **settings: Unpack[CheckupSettings]) -> HealthReport:
        """Hold the newest version against thresholds; a table that cannot be read is unhealthy.

        `orphans` lists storage for files that no version needs. Further keywords are settings, for
        this call only.
        """
        from lakehand.assess.checkup import check_health

        handle, chosen = for_call(self._handle, self._settings, settings)
        return check_health(handle, settings=chosen, orphans=orphans)

    def advise(self, *, queries: str | None = None, **settings: Unpack[VerifySettings]) -> Advice:
        """Propose columns and a curve to `cluster` by, each tried on a sample of the rows.

        `queries` is SQL: statements with semicolons behind them, or one a line. The more often a
        condition is in it, the more it counts. Without queries a fixed set of questions to all
        columns is asked. Writes nothing. Further keywords are settings, for this call only.
        """
        from lakehand.assess.advise import advise

        handle, chosen = for_call(self._handle, self._settings, settings)
        return advise(handle, settings=chosen, queries=queries)

    # -- maintain -----------------------------------------------------------------------------

    def plan(
        self,
        *,
        operation: RewriteOperation | None = None,
        by: str | Sequence[str] = (),
        curve: Curve = "hilbert",
        full: bool = False,
        where: str | None = None,
        file_filter: FileFilter | None = None,
        automatic: bool = False,
        **settings: Unpack[CompactSettings],
    ) -> Plan:
        """Say what `compact` would rewrite, why, and what it would cost. Writes nothing.

        With `by`, `full` or `operation="cluster"` it says that of `cluster`, and what queries would
        have of it. The arguments are those of the verb, which takes the plan as `plan=`, at once or
        later.
        """
        from lakehand.rewrite.prepare import plan_request

        request = plan_request(
            operation,
            by=by,
            curve=curve,
            full=full,
            where=where,
            file_filter=file_filter,
            automatic=automatic,
        )
        return self.planned(request, **settings).plan

    def planned(self, request: Request, **settings: Unpack[CompactSettings]) -> Planned:
        """Return a plan with the snapshot it was made from and the reason of every file."""
        from lakehand.rewrite.forecast import forecast_layout, rehearse
        from lakehand.rewrite.prepare import make_plan

        handle, chosen = for_call(self._handle, self._settings, settings)
        planned = make_plan(handle, chosen, request)
        return forecast_layout(rehearse(planned))

    def compact(
        self,
        *,
        where: str | None = None,
        file_filter: FileFilter | None = None,
        plan: Plan | None = None,
        automatic: bool = False,
        sort_by: str | Sequence[str] = (),
        recompute_statistics: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[CompactSettings],
    ) -> OperationReport:
        """Rewrite small files, and files with deleted rows, into files of the target size.

        Every group of files is proved to hold the same rows before anything is committed.

        `where` is a condition in SQL that metadata can decide for every file; `file_filter` is a
        function from the table of files to one boolean a file; `plan` is what `plan` returned,
        to be carried out as it is. `automatic` is for schedules: partitions that are being written
        to are left alone. `sort_by` puts the rows of every group in order, for example
        "a DESC, b". `recompute_statistics` then does what `statistics` does, in a commit of
        its own. Raising from `on_progress` stops the work; the table is then as it was. Further
        keywords are settings, for this call only.
        """
        from lakehand.rewrite.prepare import Request
        from lakehand.rewrite.run import compact, compact_and_refresh

        verb = compact_and_refresh if recompute_statistics else compact
        handle, chosen = for_call(self._handle, self._settings, settings)
        return verb(
            handle,
            settings=chosen,
            request=Request(
                where=where,
                file_filter=file_filter,
                plan=plan,
                automatic=automatic,
                by=sort_by,
            ),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def cluster(  # noqa: PLR0913  the options of the command
        self,
        *,
        by: str | Sequence[str] = (),
        curve: Curve = "hilbert",
        full: bool = False,
        where: str | None = None,
        file_filter: FileFilter | None = None,
        plan: Plan | None = None,
        automatic: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[CompactSettings],
    ) -> ClusterReport:
        """Put rows that are near each other in the columns `by` into the same files.

        Queries with conditions on these columns then skip the other files. Without `by` the
        columns are those that the table declares. Files in order are left alone unless too many lie
        over one another; `full` rewrites all. `curve` is `hilbert`, `zorder` or `linear`: the last
        sorts by one column after the other, and may be told `a DESC NULLS LAST`. The other
        arguments are those of `compact`. After a dry run the report says what is expected, tried
        on a sample of the rows.
        """
        from lakehand.rewrite.prepare import Request
        from lakehand.rewrite.run import cluster

        handle, chosen = for_call(self._handle, self._settings, settings)
        return cluster(
            handle,
            settings=chosen,
            request=Request(
                operation="cluster",
                by=by,
                curve=curve,
                full=full,
                where=where,
                file_filter=file_filter,
                plan=plan,
                automatic=automatic,
            ),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def statistics(
        self,
        *,
        where: str | None = None,
        full: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[CompactSettings],
    ) -> StatisticsReport:
        """Compute the statistics of files anew where they are missing or incomplete.

        No file is written: the table gets another entry for the same files, with which readers skip
        those that cannot hold what they look for. `full` does it for all files; `where` is a
        condition in SQL that metadata can decide for every file. Further keywords are settings, for
        this call only.
        """
        from lakehand.rewrite.statistics import StatisticsRequest, recompute_statistics

        handle, chosen = for_call(self._handle, self._settings, settings)
        return recompute_statistics(
            handle,
            settings=chosen,
            request=StatisticsRequest(where=where, full=full),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def maintain(
        self,
        *,
        skip: Collection[str] = (),
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[MaintainSettings],
    ) -> MaintenanceReport:
        """Do whatever is due, in one call: for schedules.

        The steps are `compact` (or `cluster`, where the table has an order), `vacuum`,
        `checkpoint` and `clean_logs`; `skip` names those that are not wanted. They are taken as
        automatic runs: partitions that are being written to are left alone. A step that fails is
        reported, and the others are taken all the same. Further keywords are settings, for this
        call only.
        """
        from lakehand.maintenance.maintain import maintain

        handle, chosen = for_call(self._handle, self._settings, settings)
        return maintain(
            handle,
            settings=chosen,
            skip=skip,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def vacuum(
        self,
        *,
        mode: Mode = "full",
        expire: bool = False,
        undo: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[VacuumSettings],
    ) -> VacuumReport:
        """Set aside what no version within the retention needs; delete what was set aside before.

        What is set aside stays in place until its `grace` is over: until then `undo`, with the
        quarantine's id, gives it back; `grace=0` deletes at once. `expire` only deletes what is
        past its grace. `mode="lite"` lists nothing and looks at files that commits removed. Further
        keywords are settings, for this call only: `retention`, `grace`, ...
        """
        from lakehand.retention.vacuum import VacuumRequest, vacuum

        handle, chosen = for_call(self._handle, self._settings, settings)
        return vacuum(
            handle,
            settings=chosen,
            request=VacuumRequest(mode=mode, expire=expire, undo=undo),
            dry_run=dry_run,
            spark=self._spark,
            on_progress=on_progress,
        )

    def orphans(self, **settings: Unpack[VacuumSettings]) -> pa.Table:
        """Return the files in the table's root that no version within the retention needs.

        The columns are `path`, `bytes`, `modified_at`, `age_seconds` and `is_due`: old enough for
        `vacuum`. A young orphan may be on its way into the table. Keywords are settings, for this
        call only.
        """
        from lakehand.retention.candidates import list_orphans

        handle, chosen = for_call(self._handle, self._settings, settings)
        return list_orphans(handle, settings=chosen)

    def pin(
        self,
        name: str,
        *,
        version: int | None = None,
        stream: str | None = None,
        clone: str | None = None,
        expires: timedelta | str | None = None,
    ) -> Pin:
        """Keep something readable under a name, whatever the retention; by default this version.

        `stream` is the checkpoint directory of a Spark stream that reads this table, `clone` is
        the root of a table that refers to files of it. `expires` is how long the pin holds.
        """
        from lakehand.retention.pinning import make_pin

        wanted = {"version": version, "stream": stream, "clone": clone}
        return make_pin(self._handle, name, wanted, expires=expires)

    def unpin(self, name: str) -> Pin:
        """Drop a pin and return it."""
        from lakehand.retention.pinning import remove_pin

        return remove_pin(self._handle, name)

    def pins(self) -> list[Pin]:
        """Return all pins by name, expired ones included."""
        from lakehand.retention.pins import list_pins

        return list_pins(self._handle.store)

    def checkpoint(self, *, version: int | None = None) -> CheckpointReport:
        """Fold the log up to the newest version (or `version`), so that the table opens fast.

        Nothing is written if a complete checkpoint of that version is there.
        """
        from lakehand.retention.log_maintenance import checkpoint

        return checkpoint(self._handle, version=version)

    def clean_logs(
        self,
        *,
        dry_run: bool = False,
        keep_versions: int = 0,
        keep_checkpoints: int = 0,
        even_if_disabled: bool = False,
    ) -> LogCleanupReport:
        """Delete history that is older than the table's log retention.

        What goes lies below a checkpoint that was read and compared first, so every version from
        there on stays readable; pinned versions do, too. `keep_versions` and `keep_checkpoints`
        keep more than the retention does, never less. A table that forbids the cleaning of its log
        is left alone, unless `even_if_disabled`.
        """
        from lakehand.retention.log_maintenance import clean_logs

        return clean_logs(
            self._handle,
            dry_run=dry_run,
            keep_versions=keep_versions,
            keep_checkpoints=keep_checkpoints,
            even_if_disabled=even_if_disabled,
        )

    def purge(
        self,
        *,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[PurgeSettings],
    ) -> PurgeReport:
        """Remove deleted rows and dropped columns from the files, vacuum, and clean the log.

        For requests to erase. The report lists every place that still holds them, and until when:
        purge again at those times. Further keywords are settings, for this call only.
        """
        from lakehand.maintenance.purge import purge

        handle, chosen = for_call(self._handle, self._settings, settings)
        return purge(
            handle,
            settings=chosen,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    # -- write --------------------------------------------------------------------------------

    def append(
        self, data: Any, *, epoch: int | None = None, **settings: Unpack[WriteSettings]
    ) -> WriteReport:
        """Add rows to the table, all of them in one version.

        `data` is an Arrow table, batch or reader, anything else that hands out Arrow, or a pandas
        frame. A reader may be larger than memory. With `writer_id` and an `epoch` the rows are
        added once, however often this is called. Further keywords are settings, for this call only.
        """
        from lakehand.sink.one_call import write_once

        call = {**settings, "write_mode": "append"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return write_once(handle, data, settings=chosen, epoch=epoch)

    def overwrite(
        self,
        data: Any,
        *,
        where: str | None = None,
        epoch: int | None = None,
        **settings: Unpack[WriteSettings],
    ) -> WriteReport:
        """Put rows in the place of all that is there, or of the part that `where` describes.

        `where` is a condition in SQL that metadata can decide for every file, as those on partition
        columns; all new rows must fulfil it. The other arguments are those of `append`.
        """
        from lakehand.sink.one_call import write_once

        call = {**settings, "write_mode": "overwrite"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return write_once(handle, data, settings=chosen, where=where, epoch=epoch)

    def upsert(
        self,
        data: Any,
        *,
        key: Sequence[str],
        epoch: int | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[WriteSettings],
    ) -> UpsertReport:
        """Bring rows in by their `key`: a row whose key is there takes its place, others are added.

        A column `_op` or `__weight` makes `data` a changelog: rows may go, too, and the changes of
        a key become one. Without it a key comes once, else DuplicateKeyError. Nulls equal each
        other. All in one version; the other arguments are those of `append` and `delete`.
        """
        from lakehand.sink.one_call import UpsertRequest, upsert_once

        request = UpsertRequest(
            key=key, epoch=epoch, spark=self._spark, dry_run=dry_run, on_progress=on_progress
        )
        call = {**settings, "write_mode": "append"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return upsert_once(handle, data, settings=chosen, request=request)

    def delete_keys(
        self,
        data: Any,
        *,
        key: Sequence[str],
        epoch: int | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[WriteSettings],
    ) -> UpsertReport:
        """Delete the rows that have one of the keys in `data`, of which no other column counts.

        The arguments are those of `upsert`.
        """
        from lakehand.sink.one_call import UpsertRequest, delete_keys_once

        request = UpsertRequest(
            key=key, epoch=epoch, spark=self._spark, dry_run=dry_run, on_progress=on_progress
        )
        call = {**settings, "write_mode": "append"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return delete_keys_once(handle, data, settings=chosen, request=request)

    def delete(
        self,
        *,
        where: str,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[DeleteSettings],
    ) -> DeletionReport:
        """Delete the rows for which `where`, a condition in SQL, is true.

        A row for which it is null stays. Where the table has rows hidden rather than files written
        anew, files stay as they are. Further keywords are settings, for this call only.
        """
        from lakehand.rows.delete import delete

        handle, chosen = for_call(self._handle, self._settings, settings)
        return delete(
            handle,
            settings=chosen,
            where=where,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def deduplicate(
        self,
        *,
        key: Sequence[str] | None = None,
        exact: bool = False,
        keep: Keep = "first",
        order_by: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[DeleteSettings],
    ) -> DeduplicationReport:
        """Keep one of several rows with equal `key`, or, with `exact`, of equal rows.

        `keep` says which: the `first` or `last` that came into the table, or the `latest` by
        `order_by`, where a null never wins over a value. Nulls equal each other. Further keywords
        are settings, for this call only.
        """
        from lakehand.rows.deduplicate import DuplicateRequest, deduplicate

        handle, chosen = for_call(self._handle, self._settings, settings)
        return deduplicate(
            handle,
            settings=chosen,
            request=DuplicateRequest(key=key, exact=exact, keep=keep, order_by=order_by),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    # -- repair -------------------------------------------------------------------------------

    def verify(
        self,
        *,
        version: int | None = None,
        every: bool = False,
        proofs: bool = True,
        deep: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[VerifySettings],
    ) -> Verification:
        """Check that the table is whole, and again that a rewrite kept every row. Writes nothing.

        Looked at are all commits and checkpoints, and every file: whether it is there, its size,
        its footer, its number of rows and its deleted rows; with `deep` also its rows, against its
        statistics. A table that cannot be opened by its history is diagnosed, too. Then the files
        of the newest commit that carries a proof are compared with those that they replaced;
        `version` names another commit, `every` takes all, `proofs=False` none. Further keywords
        are settings, for this call only.
        """
        from lakehand.assess.verify import VerifyRequest, verify

        handle, chosen = for_call(self._handle, self._settings, settings)
        return verify(
            handle,
            settings=chosen,
            request=VerifyRequest(version=version, every=every, proofs=proofs, deep=deep),
            spark=self._spark,
            on_progress=on_progress,
        )

    def repair(
        self,
        *,
        accept_data_loss: bool = False,
        accept_changed_files: bool = False,
        restore_deleted_rows: bool = False,
        deep: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[VerifySettings],
    ) -> RepairReport:
        """Repair what `verify` finds wrong, as far as nothing is lost by it, and look again.

        Checkpoints are written again, and the pointer to the newest; what misleads readers is
        moved out of the log, never deleted. The rest asks for a consent: `accept_data_loss` drops
        files that are lost, and goes back to the newest version that can be read;
        `accept_changed_files` takes files, and the log, as they are although they contradict their
        size, statistics or checksum; `restore_deleted_rows` drops deletion vectors that cannot be
        read, so that deleted rows are visible again. What is not repaired is in the report with
        its reason and the consent that it asks for. `deep` decodes the rows of every file, as in
        `verify`. Stop other writers first. Further keywords are settings, for this call only.
        """
        from lakehand.assess.repair import RepairRequest, repair
        from lakehand.model.verification import Consent

        consent = Consent(
            accept_data_loss=accept_data_loss,
            accept_changed_files=accept_changed_files,
            restore_deleted_rows=restore_deleted_rows,
        )
        handle, chosen = for_call(self._handle, self._settings, settings)
        return repair(
            handle,
            settings=chosen,
            request=RepairRequest(consent=consent, deep=deep),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def restore(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        accept_missing: bool = False,
        dry_run: bool = False,
    ) -> RestoreReport:
        """Give the table the content of an earlier version again, in a commit of its own.

        Columns and properties come back as well; versions in between stay in the history. Any
        commit of somebody else meanwhile fails it. Files of that version that storage no longer
        has are a RefusedError, unless `accept_missing`.
        """
        from lakehand.retention.log_maintenance import restore

        return restore(
            self._handle,
            version=version,
            timestamp=one_moment(version, timestamp),
            accept_missing=accept_missing,
            dry_run=dry_run,
        )
