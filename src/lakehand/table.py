"""A table and its verbs. Every call reads the newest version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.assess.advice_verbs import AdviceVerbs
from lakehand.assess.inspect import Inspection, inspect_snapshot
from lakehand.assess.verbs import SoundnessVerbs
from lakehand.due.verbs import MaintenanceVerbs
from lakehand.errors import ValidationError
from lakehand.formats.base import for_call
from lakehand.formats.registry import detect_format, load_format
from lakehand.model.moments import one_moment
from lakehand.model.order import column_names
from lakehand.observe.clock import SystemClock
from lakehand.retention.upkeep_verbs import UpkeepVerbs
from lakehand.retention.verbs import RetentionVerbs
from lakehand.rewriting_verbs import RewritingVerbs
from lakehand.rows.verbs import RowVerbs
from lakehand.settings import Settings
from lakehand.sink.spark_verbs import SparkVerbs
from lakehand.sink.verbs import WriteVerbs
from lakehand.storage import open_store
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

    from lakehand.assess.checkup import HealthReport
    from lakehand.formats.base import FormatTable
    from lakehand.model.history import Difference, HistoryEntry
    from lakehand.model.reports import CheckpointReport
    from lakehand.model.snapshot import Snapshot

__all__ = ["Table", "check_health", "create_table", "open_table"]


def open_table(
    uri: str | Path,
    *,
    spark: Any = None,
    storage_options: Mapping[str, str] | None = None,
    **settings: Any,
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
    **settings: Any,
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
    **settings: Any,
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


class Table(
    AdviceVerbs,
    MaintenanceVerbs,
    RetentionVerbs,
    RewritingVerbs,
    RowVerbs,
    UpkeepVerbs,
    SoundnessVerbs,
    SparkVerbs,
    WriteVerbs,
):
    """A table. It holds no version: each method reads the newest one, unless told another."""

    def __init__(
        self, handle: FormatTable, *, format_name: str, settings: Settings, spark: Any = None
    ) -> None:
        self._handle = handle
        self._settings = settings
        self._spark = spark
        #: Name of the table's format.
        self.format = format_name

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

    def health(self, *, orphans: bool = False, **settings: Any) -> HealthReport:
        """Hold the newest version against thresholds; a table that cannot be read is unhealthy.

        `orphans` lists storage for files that no version needs. Further keywords are settings, for
        this call only.
        """
        from lakehand.assess.checkup import check_health

        handle, chosen = for_call(self._handle, self._settings, settings)
        return check_health(handle, settings=chosen, orphans=orphans)

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        """Return the commits, newest first."""
        if limit is not None and limit < 1:
            raise ValidationError("limit must be at least 1", field="limit", value=limit)
        return self._handle.history(limit=limit)

    def diff(self, from_version: int, to_version: int) -> Difference:
        """Return the files that came and went between two versions."""
        return self._handle.diff(from_version, to_version)

    def checkpoint(self, *, version: int | None = None) -> CheckpointReport:
        """Fold the log up to the newest version (or `version`), so that the table opens fast.

        Nothing is written if a complete checkpoint of that version is there.
        """
        from lakehand.retention.log_upkeep import checkpoint

        return checkpoint(self._handle, version=version)

    def transactions(self) -> Mapping[str, int]:
        """Return the newest version of every application that writes exactly once."""
        return self._handle.transactions()
