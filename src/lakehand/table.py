"""The public API of a table: read, maintain, write and repair.

Every call reads the latest version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from lakehand.catalogs import catalog_hint, locate
from lakehand.errors import NotATableError, NotInstalledError, ValidationError
from lakehand.formats.base import FormatTable, for_call, require_support, support_of
from lakehand.formats.optional import SupportsAppends, SupportsCheckpoints
from lakehand.formats.registry import detect_format, load_creating_format
from lakehand.model.order import Curve, column_names
from lakehand.model.quantities import check_version, resolve_timestamp
from lakehand.model.work import PropertyWish
from lakehand.observe import OnProgress, emit
from lakehand.observe.clock import SystemClock
from lakehand.settings import Settings, split_storage_options
from lakehand.storage import Store, parse_location
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path

    import pyarrow as pa

    from lakehand.assess.clustering_advice import Advice
    from lakehand.assess.health_check import HealthReport
    from lakehand.assess.inspection import Inspection
    from lakehand.formats.base import Format
    from lakehand.model.maintenance import (
        LogCleanupReport,
        MaintenanceReport,
        PurgeReport,
        RestoreReport,
    )
    from lakehand.model.reports import (
        CheckpointEntry,
        CheckpointReport,
        ClusterReport,
        DeduplicationReport,
        DeletionReport,
        Difference,
        HistoryEntry,
        OperationReport,
        PropertiesReport,
        StatisticsReport,
        UpsertReport,
        WriteReport,
    )
    from lakehand.model.retention import VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import RepairReport, Verification
    from lakehand.planning.plan import Plan
    from lakehand.planning.restriction import FileFilter
    from lakehand.retention.pins import Pin
    from lakehand.retention.vacuum import Mode
    from lakehand.rewrite.prepare import Request, RewriteOperation, Work
    from lakehand.rows.key_equality import Keep
    from lakehand.settings.setting_types import (
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
    from lakehand.sink.merging import MergeBuilder


def open_table(
    uri: str | Path | Store,
    *,
    spark: Any = None,
    storage_options: Mapping[str, str] | None = None,
    **settings: Unpack[OpenSettings],
) -> Table:
    """Open the table at a path, URL or store. Raises NotATableError if there is none.

    `spark` is the SparkSession that operations use to run tasks. Without one, tasks run in local
    processes, and a session is started only for more than `spark_above_bytes` of data.
    `storage_options` are credentials and endpoints that the environment does not provide; those
    that the session has (`fs.s3a.*`) need not be repeated. Other keyword arguments are settings,
    by name or alias.
    """
    given, storage = split_storage_options(settings)
    options = {**(storage_options or {}), **storage} or None
    return open_with(Settings(given), uri, storage_options=options, spark=spark)


def open_with(
    chosen: Settings,
    uri: str | Path | Store,
    *,
    storage_options: Mapping[str, str] | None = None,
    spark: Any = None,
) -> Table:
    """Open a table with settings, which may hold those of a policy."""
    store = _store(uri, storage_options, spark).with_settings(chosen)
    table_format = _format_of(store, uri)
    chosen = chosen.with_defaults(table_format.defaults)
    handle = table_format.open(store, settings=chosen)
    return Table(handle, format_name=table_format.name, settings=chosen, spark=spark)


def create_table(
    uri: str | Path | Store,
    schema: Any,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    format: str = "delta",  # noqa: A002  the word that users of tables know
    storage_options: Mapping[str, str] | None = None,
    **settings: Unpack[CreateSettings],
) -> Table:
    """Create an empty table at a path or URL. Raises TableExistsError if a table exists there.

    `schema` is an Arrow schema, a Spark schema, or a data frame of pandas, Polars, DuckDB or Spark,
    of which only the columns are used. `format` is `delta` or `lance`; `properties` are table
    properties. `storage_options` are credentials and endpoints that the environment does not
    provide. Other keyword arguments are settings.
    """
    given, storage = split_storage_options(settings)
    store = _store(uri, {**(storage_options or {}), **storage} or None, is_new=True)
    table_format = load_creating_format(format)
    chosen = Settings(given).with_defaults(table_format.defaults)
    handle = table_format.create(
        store.with_settings(chosen),
        _arrow_schema(schema),
        partition_by=partition_by,
        properties=properties or {},
        settings=chosen,
    )
    return Table(handle, format_name=table_format.name, settings=chosen)


def _store(
    uri: str | Path | Store,
    storage_options: Mapping[str, str] | None,
    spark: Any = None,
    *,
    is_new: bool = False,
) -> Store:
    if isinstance(uri, Store):
        return uri
    place = locate(uri, is_new=is_new)
    if spark is not None:
        from lakehand.engine.hadoop_options import session_options

        of_session = session_options(spark, parse_location(place.uri))
        storage_options = {**of_session, **(storage_options or {})}
    return place.open(storage_options)


def _format_of(store: Store, uri: str | Path | Store) -> Format:
    try:
        return detect_format(store)
    except NotATableError as error:
        if not isinstance(uri, Store):
            error.hint = catalog_hint(uri) or error.hint
        raise


def _import(name: str) -> Any:
    """Import a library that lakehand itself does not need."""
    try:
        return import_module(name)
    except ImportError as error:
        message = f"{name} is not installed"
        raise NotInstalledError(message, hint=f"pip install {name}") from error


def _arrow_schema(schema: Any) -> pa.Schema:
    if type(schema).__module__.partition(".")[0] == "pyspark":
        from lakehand.spark.source import arrow_schema

        # Of a DataFrame, or the schema itself.
        return arrow_schema(getattr(schema, "schema", schema))
    from lakehand.schema.arrow_input import schema_of

    return schema_of(schema)


def check_health(
    uri: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    orphans: bool = False,
    **settings: Unpack[OpenSettings],
) -> HealthReport:
    """Check the health of the table at `uri`. A table that cannot be read is unhealthy, no error.

    The arguments are those of `open_table` and `Table.health`.
    """
    from lakehand.assess.health_check import UNREADABLE, report_unreadable

    clock = SystemClock()
    started = clock.monotonic()
    try:
        table = open_table(uri, storage_options=storage_options, **settings)
    except UNREADABLE as error:
        report = report_unreadable(path_to_url(uri), error, started=started, clock=clock)
        emit(report)
        return report
    return table.health(orphans=orphans)


class Table:
    """A Delta or Lance table. Each method reads the latest version unless given another."""

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
        """The table's URL, without credentials."""
        return self._handle.store.url

    def __repr__(self) -> str:
        return f"<Table {self.url} ({self.format})>"

    def _repr_html_(self) -> str:
        from lakehand.model.notebook_view import facts_as_html

        report = self.inspect()
        facts = {
            "files": report.file_count,
            "bytes": report.total_bytes,
            "rows": report.row_count,
            "health": f"{report.health.score} of 100",
            "partitioned_by": ", ".join(report.partition_columns),
            "columns": [{"name": one.name, "type": str(one.type)} for one in self.schema()],
        }
        place = {"table": self.url, "format": self.format, "version": report.version}
        return facts_as_html("Table", {**place, **facts})

    def settings(self) -> Settings:
        """Return the value of every setting for this table, and in `sources` where it is from."""
        return self._settings.with_properties(self.snapshot().properties)

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        statistics: Sequence[str] = (),
    ) -> Snapshot:
        """Return the table's schema, properties and files: latest, or at a version or timestamp.

        `statistics` names the columns whose minimum, maximum and null count to include per file.
        """
        moment = resolve_timestamp(version, timestamp)
        return self._handle.snapshot(version=version, timestamp=moment, statistics=statistics)

    def version(self) -> int:
        """Return the latest version."""
        supported = support_of(self._handle, SupportsAppends)
        # Without the files, if the format can.
        return supported.head().version if supported else self.snapshot().version

    def schema(self) -> pa.Schema:
        """Return the Arrow schema, including partition columns."""
        return self.snapshot().schema

    def clustering_columns(self) -> tuple[str, ...]:
        """Return the clustering columns that the table declares; empty if it declares none."""
        from lakehand.formats.optional import clustering_columns

        return clustering_columns(self._handle, self.snapshot())

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Read rows into an Arrow table, without deleted rows, with current names and types.

        `columns` selects columns. `where` is an SQL predicate; files and row groups that cannot
        match are skipped. `version` or `timestamp` reads an earlier version.
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
        """Read rows as a stream of record batches, for results larger than memory.

        The arguments are those of `to_arrow`.
        """
        from lakehand.formats.scan import scan

        moment = resolve_timestamp(version, timestamp)
        return scan(self._handle, columns=columns, where=where, version=version, timestamp=moment)

    def to_pandas(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        arrow_types: bool = False,
    ) -> Any:
        """Read rows into a pandas DataFrame.

        `arrow_types` keeps the types of the table (`pandas.ArrowDtype`); otherwise they are pandas'
        own, for example floats for integers with nulls. The other arguments are those of
        `to_arrow`.
        """
        pandas = _import("pandas")
        found = self.to_arrow(columns=columns, where=where, version=version, timestamp=timestamp)
        return found.to_pandas(types_mapper=pandas.ArrowDtype if arrow_types else None)

    def to_polars(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Any:
        """Read rows into a Polars DataFrame. The arguments are those of `to_arrow`."""
        polars = _import("polars")
        return polars.from_arrow(
            self.to_arrow(columns=columns, where=where, version=version, timestamp=timestamp)
        )

    def to_duckdb(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        connection: Any = None,
    ) -> Any:
        """Read rows into a DuckDB relation, which can be queried any number of times.

        `connection` is the DuckDB connection to use; by default DuckDB's own. The other arguments
        are those of `to_arrow`.
        """
        import duckdb

        found = self.to_arrow(columns=columns, where=where, version=version, timestamp=timestamp)
        return (connection or duckdb).from_arrow(found)

    def to_spark(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        spark: Any = None,
    ) -> Any:
        """Read rows as a Spark DataFrame. No Delta or Lance jar is needed.

        The version is resolved now; executors read its files when the DataFrame is evaluated. Pass
        `columns` and `where` here: filters and selections on the DataFrame are not pushed down.
        `spark` is the session to use. Default: the table's session, else the active session, else
        a new one. The other arguments are those of `to_arrow`.
        """
        from lakehand.engine.runner_contract import require_pyspark
        from lakehand.engine.session import open_session
        from lakehand.formats.scan import plan_scan

        require_pyspark()
        from lakehand.spark.source import frame_of

        scan = plan_scan(
            self._handle,
            columns=columns,
            where=where,
            version=version,
            timestamp=resolve_timestamp(version, timestamp),
        )
        session = spark or self._spark
        if session is None:
            session, _ = open_session(self._settings, is_kept=True)
        return frame_of(scan, session)

    def changes(
        self,
        *,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp: datetime | str | None = None,
        to_timestamp: datetime | str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Read the change data feed as a stream of record batches, one version after another.

        Each row has the table's columns, then `_change_type` (`insert`, `delete`,
        `update_preimage` or `update_postimage`), `_commit_version` and `_commit_timestamp`. The
        range includes both ends and ends with the latest version by default. A start is required:
        `from_timestamp` is the first version at that time or later, `to_timestamp` the last until
        then. Raises ChangeFeedError where the feed is off or its files were deleted.
        """
        from lakehand.formats.scan import plan_changes

        plan = plan_changes(
            self._handle,
            from_version=from_version,
            to_version=to_version,
            from_timestamp=from_timestamp,
            to_timestamp=to_timestamp,
            columns=columns,
        )
        return plan.read()

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        """Return the table's commits, newest first, at most `limit`."""
        if limit is not None and limit < 1:
            raise ValidationError("limit must be at least 1", field="limit", value=limit)
        return self._handle.history(limit=limit)

    def diff(self, from_version: int, to_version: int) -> Difference:
        """Return the files that were added and removed between two versions."""
        check_version(from_version, field="from_version")
        check_version(to_version, field="to_version")
        return self._handle.diff(from_version, to_version)

    def transactions(self) -> Mapping[str, int]:
        """Return the latest transaction version of every exactly-once writer, by application id."""
        table = require_support(self._handle, SupportsAppends, operation="transactions")
        return table.transactions()

    def inspect(
        self,
        *,
        by: str | Sequence[str] = (),
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Inspection:
        """Report the table's file sizes, deleted rows, statistics and log. Reads metadata only.

        `by` names columns: the report then includes how well files are clustered by them.
        `version` or `timestamp` inspects an earlier version.
        """
        columns = column_names(by)
        snapshot = self.snapshot(version=version, timestamp=timestamp, statistics=columns)
        return self.inspect_snapshot(snapshot, by=columns)

    def inspect_snapshot(self, snapshot: Snapshot, *, by: Sequence[str] = ()) -> Inspection:
        """Inspect a snapshot of this table that was read with `statistics=by`."""
        from lakehand.assess.inspection import inspect_snapshot

        settings = self._settings.with_properties(snapshot.properties)
        return inspect_snapshot(snapshot, format_name=self.format, settings=settings, by=by)

    def health(self, *, orphans: bool = False, **settings: Unpack[CheckupSettings]) -> HealthReport:
        """Compare the latest version with thresholds. A table that cannot be read is unhealthy.

        `orphans` also lists storage for files that no version references. Other keyword arguments
        are settings for this call.
        """
        from lakehand.assess.health_check import check_health

        handle, chosen = for_call(self._handle, self._settings, settings)
        return check_health(handle, settings=chosen, orphans=orphans)

    def advise(self, *, queries: str | None = None, **settings: Unpack[VerifySettings]) -> Advice:
        """Recommend columns and a curve for `cluster`, measured on a sample of rows.

        `queries` is a workload in SQL: statements separated by semicolons, or one per line. A
        predicate that occurs more often has more weight. Without `queries`, a fixed set of
        predicates on all columns is measured. Writes nothing. Other keyword arguments are settings
        for this call.
        """
        from lakehand.assess.clustering_advice import advise

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
        """Return what `compact` would rewrite, why, and the estimated cost. Writes nothing.

        With `by`, `full` or `operation="cluster"`, plans `cluster` instead, and estimates the data
        skipping that it gives. The arguments are those of `compact` and `cluster`, which accept the
        plan as `plan=`, now or later.
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

    def planned(self, request: Request, **settings: Unpack[CompactSettings]) -> Work:
        """Return a plan together with its snapshot and the reason for every file."""
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

        Every group of output files is proved to hold the same rows as its input before the commit.

        `where` is an SQL predicate on partition columns or statistics that selects whole files.
        `file_filter` is a function that takes the Arrow table of files and returns one boolean per
        file. `plan` is a plan from `plan`, executed unchanged. `automatic` is for scheduled runs:
        partitions with recent writes are skipped. `sort_by` sorts the rows within each group, for
        example "a DESC, b". `recompute_statistics` runs `statistics` afterwards, in its own commit.
        `dry_run` writes nothing. `on_progress` is called with a `Progress`; an exception that it
        raises cancels the operation and leaves the table unchanged. Other keyword arguments are
        settings for this call.
        """
        from lakehand.rewrite.prepare import Request
        from lakehand.rewrite.run import compact

        handle, chosen = for_call(self._handle, self._settings, settings)
        return compact(
            handle,
            settings=chosen,
            request=Request(
                where=where,
                file_filter=file_filter,
                plan=plan,
                automatic=automatic,
                by=sort_by,
                recompute_statistics=recompute_statistics,
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
        """Co-locate rows with similar values of the columns `by`, so that queries skip files.

        `by` defaults to the table's clustering columns. Files that are already clustered are kept
        unless too many of them overlap; `full` rewrites all files. `curve` is `hilbert`, `zorder`
        or `linear`: `linear` sorts by one column after the other and accepts
        `a DESC NULLS LAST`. With `dry_run` the report has estimates, measured on a sample of rows.
        The other arguments are those of `compact`.
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
        """Recompute missing or incomplete column statistics of files, which data skipping uses.

        No data file is rewritten: the commit updates the metadata of the same files. `full`
        recomputes the statistics of all files. `where` is an SQL predicate on partition columns or
        statistics that selects whole files. Other keyword arguments are settings for this call.
        """
        from lakehand.rewrite.recompute_statistics import StatisticsRequest, recompute_statistics

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
        """Run every maintenance step that is due. Meant for scheduled runs.

        The steps are `compact` (or `cluster`, if the table has clustering columns), `vacuum`,
        `checkpoint` and `clean_logs`; `skip` names steps to leave out. Steps run as automatic:
        partitions with recent writes are skipped. A failed step is reported and does not stop the
        others. Other keyword arguments are settings for this call.
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
        """Quarantine files that no retained version references, and delete expired quarantines.

        Quarantined files keep their paths until the `grace` period ends: until then,
        `undo=QUARANTINE_ID` releases them. `grace=0` deletes at once. `expire` only deletes
        quarantines past their grace period. `mode="lite"` does not list storage: it considers only
        files that commits removed. Other keyword arguments are settings for this call, for example
        `retention` and `grace`.
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
        """Return the files under the table's root that no retained version references.

        The columns are `path`, `bytes`, `modified_at`, `age_seconds` and `is_due`: true if the file
        is old enough for `vacuum`. A recent orphan may belong to a commit in progress. Keyword
        arguments are settings for this call.
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
        """Protect a version, a stream or a clone from vacuum and log cleanup, whatever its age.

        `version` defaults to the latest. `stream` is the checkpoint directory of a Spark stream
        that reads this table; `clone` is the root of a shallow clone of it. `expires` is the
        lifetime of the pin; without it the pin stays until `unpin`.
        """
        from lakehand.retention.pinning import make_pin

        check_version(version)
        wanted = {"version": version, "stream": stream, "clone": clone}
        return make_pin(self._handle, name, wanted, expires=expires)

    def unpin(self, name: str) -> Pin:
        """Remove a pin and return it."""
        from lakehand.retention.pinning import remove_pin

        return remove_pin(self._handle, name)

    def pins(self) -> list[Pin]:
        """Return all pins, sorted by name, including expired ones."""
        from lakehand.retention.pins import list_pins

        return list_pins(self._handle.store)

    def checkpoint(self, *, version: int | None = None) -> CheckpointReport:
        """Write a checkpoint of the latest version (or `version`), so that the table opens fast.

        Nothing is written if a complete checkpoint of that version exists.
        """
        from lakehand.retention.log_maintenance import checkpoint

        check_version(version)
        return checkpoint(self._handle, version=version)

    def checkpoints(self) -> list[CheckpointEntry]:
        """Return the complete checkpoints of the log, newest first."""
        return list(self._with_checkpoints().checkpoints())

    def read_checkpoint(self, *, version: int | None = None) -> pa.Table:
        """Read the latest checkpoint, or that of `version`, as the log stores it.

        One row per action; each kind of action is a column. Raises VersionNotFoundError if there is
        no such checkpoint, CorruptFileError if it cannot be read.
        """
        check_version(version)
        return self._with_checkpoints().read_checkpoint(version)

    def should_checkpoint(self) -> bool:
        """Return whether a checkpoint is due: `checkpoint_interval` or more commits have none."""
        return self._with_checkpoints().is_checkpoint_due()

    def _with_checkpoints(self) -> SupportsCheckpoints:
        return require_support(self._handle, SupportsCheckpoints, operation="checkpoint")

    def clean_logs(
        self,
        *,
        dry_run: bool = False,
        keep_versions: int = 0,
        keep_checkpoints: int = 0,
        even_if_disabled: bool = False,
    ) -> LogCleanupReport:
        """Delete log entries that are older than the table's log retention.

        Only entries before a verified checkpoint are deleted, so every later version stays
        readable, and so do pinned versions. `keep_versions` and `keep_checkpoints` can only extend
        the retention. A table whose properties disable log cleanup is skipped unless
        `even_if_disabled`.
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
        """Physically remove deleted rows and dropped columns: rewrite, vacuum and clean the log.

        For erasure requests. The report lists every location that still holds the data and until
        when; run purge again at those times. Other keyword arguments are settings for this call.
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

    def set_properties(
        self, properties: Mapping[str, object], *, dry_run: bool = False
    ) -> PropertiesReport:
        """Set table properties in one commit; the protocol gets the features that they need.

        Names that start with `delta.` must be known to Delta and valid for an existing table; other
        names are free. `delta.feature.NAME` set to `supported` adds a feature. Raises ReplanError
        if another writer changes the metadata at the same time.
        """
        return self._change_properties("set_properties", PropertyWish(set=properties), dry_run)

    def unset_properties(
        self, names: Sequence[str], *, if_exists: bool = False, dry_run: bool = False
    ) -> PropertiesReport:
        """Remove table properties in one commit, so that their defaults apply again.

        Raises ValidationError for a property that is not set, unless `if_exists`. Features stay in
        the protocol.
        """
        wish = PropertyWish(unset=tuple(names), if_exists=if_exists)
        return self._change_properties("unset_properties", wish, dry_run)

    def enable_feature(self, name: str, *, dry_run: bool = False) -> PropertiesReport:
        """Add a table feature, and the features it depends on, to the protocol.

        Engines that do not support the feature can then no longer write the table, and for some
        features no longer read it. Most features are used only once a property enables them.
        """
        wish = PropertyWish(features=(name,))
        return self._change_properties("enable_feature", wish, dry_run)

    def cluster_by(
        self, columns: str | Sequence[str] | None, *, dry_run: bool = False
    ) -> PropertiesReport:
        """Declare the clustering columns of the table; None declares that there are none.

        Files are not rewritten: `cluster` and engines with liquid clustering use the columns from
        then on.
        """
        wish = PropertyWish(cluster_by=column_names(columns or ()))
        return self._change_properties("cluster_by", wish, dry_run)

    def _change_properties(
        self,
        operation: str,
        wish: PropertyWish,
        dry_run: bool,  # noqa: FBT001
    ) -> PropertiesReport:
        from lakehand.maintenance.change_properties import change_properties

        return change_properties(self._handle, wish, operation=operation, dry_run=dry_run)

    # -- write --------------------------------------------------------------------------------

    def append(
        self, data: Any, *, epoch: int | None = None, **settings: Unpack[WriteSettings]
    ) -> WriteReport:
        """Append rows in one atomic commit.

        `data` is an Arrow table, record batch or reader, another object that exports Arrow data, or
        a pandas DataFrame. A reader may be larger than memory. With `writer_id` and `epoch` the
        append is idempotent: repeated calls add the rows once. Other keyword arguments are settings
        for this call.
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
        """Replace all rows, or the rows that match `where`, in one atomic commit.

        `where` is an SQL predicate that selects whole files, for example on partition columns; all
        new rows must match it. The other arguments are those of `append`.
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
        """Update rows whose `key` is in the table and insert the others, in one atomic commit.

        A column `_op` or `__weight` makes `data` a changelog: it may also delete rows, and several
        changes of one key are merged. Otherwise a repeated key raises DuplicateKeyError. Null keys
        are equal to each other. The other arguments are those of `append` and `delete`.
        """
        from lakehand.sink.one_call import UpsertCall, upsert_once

        call = UpsertCall(
            key=key, epoch=epoch, spark=self._spark, dry_run=dry_run, on_progress=on_progress
        )
        chosen = {**settings, "write_mode": "append"}
        handle, in_force = for_call(self._handle, self._settings, chosen)
        return upsert_once(handle, data, settings=in_force, call=call)

    def merge(
        self,
        source: Any,
        *,
        on: str | Sequence[str],
        target_alias: str = "t",
        source_alias: str = "s",
        epoch: int | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[WriteSettings],
    ) -> MergeBuilder:
        """Begin a merge, as MERGE INTO of Delta: add clauses, then call `execute`.

        `on` is a condition such as `t.id = s.id`, or columns that are equal in both; nulls match
        nothing unless it says `<=>`. `source` is rows in any form that `append` takes, or a Table.
        The other arguments are those of `upsert`.
        """
        from lakehand.rows.merge_clauses import MergeSpec
        from lakehand.sink.merging import GivenRows, MergeBuilder, MergeCall

        call = MergeCall(
            spec=MergeSpec.of(on, target=target_alias, source=source_alias),
            epoch=epoch,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )
        chosen = {**settings, "write_mode": "append"}
        handle, in_force = for_call(self._handle, self._settings, chosen)
        rows = GivenRows(data=source.to_batches if isinstance(source, Table) else source)
        return MergeBuilder(handle=handle, source=rows, settings=in_force, call=call)

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
        """Delete the rows whose key is in `data`; other columns of `data` are ignored.

        The arguments are those of `upsert`.
        """
        from lakehand.sink.one_call import UpsertCall, delete_keys_once

        call = UpsertCall(
            key=key, epoch=epoch, spark=self._spark, dry_run=dry_run, on_progress=on_progress
        )
        chosen = {**settings, "write_mode": "append"}
        handle, in_force = for_call(self._handle, self._settings, chosen)
        return delete_keys_once(handle, data, settings=in_force, call=call)

    def delete(
        self,
        *,
        where: str,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Unpack[DeleteSettings],
    ) -> DeletionReport:
        """Delete the rows that match `where`, an SQL predicate, in one atomic commit.

        Rows for which it is null are kept. Uses deletion vectors if the table enables them;
        otherwise the affected files are rewritten. `dry_run` writes nothing. Other keyword
        arguments are settings for this call.
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
        """Keep one row per `key`, or, with `exact`, one of each group of identical rows.

        `keep` is `first` or `last` by the time a row was added to the table, or `latest` by the
        column `order_by`, in which nulls sort lowest. Null keys are equal to each other. Other
        keyword arguments are settings for this call.
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
        """Check the log and all files, and prove again that a rewrite kept every row. Read-only.

        Checks all commits and checkpoints, and for every file its existence, size, footer, row
        count and deletion vector; `deep` also decodes the rows and compares them with the
        statistics. A table whose log cannot be replayed is diagnosed as well. Then compares the
        files of the latest commit with a proof with the files that they replaced: `version` selects
        another commit, `every` all of them, `proofs=False` none. Other keyword arguments are
        settings for this call.
        """
        from lakehand.assess.table_verification import VerifyRequest, verify

        check_version(version)

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
        """Fix what `verify` finds, as far as no data is lost, and verify again.

        Stop other writers first. Checkpoints and the pointer to the last one are rewritten; invalid
        log files are backed up and moved out of the log. Everything else needs an option:
        `accept_data_loss` removes missing files from the table and returns to the latest readable
        version; `accept_changed_files` accepts files and log entries that do not match their
        recorded size, statistics or checksum; `restore_deleted_rows` removes unreadable deletion
        vectors, which makes deleted rows visible again. The report lists what was not repaired, why
        and which option it needs. `deep` decodes the rows of every file, as in `verify`. Other
        keyword arguments are settings for this call.
        """
        from lakehand.assess.table_repair import RepairRequest, repair
        from lakehand.model.remedies import Consent

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
        """Restore the rows, schema and properties of an earlier version, in a new commit.

        The versions in between stay in the history. Fails if another writer commits at the same
        time. Raises RefusedError if files of that version no longer exist, unless `accept_missing`.
        """
        from lakehand.retention.log_maintenance import restore

        return restore(
            self._handle,
            version=version,
            timestamp=resolve_timestamp(version, timestamp),
            accept_missing=accept_missing,
            dry_run=dry_run,
        )
