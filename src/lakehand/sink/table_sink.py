"""Sinks: rows written exactly once or at least once, from synchronous or asynchronous code."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from lakehand.catalogs import open_named_store
from lakehand.errors import NotATableError, SinkStateError
from lakehand.observe.clock import SystemClock
from lakehand.schema.arrow_input import batches_of
from lakehand.settings import Settings, split_storage_options
from lakehand.sink.at_least_once import AtLeastOnce
from lakehand.sink.background import BackgroundMaintenance, WriterThread
from lakehand.sink.changelog import ChangeRows, row_schema
from lakehand.sink.exactly_once import ExactlyOnce
from lakehand.sink.sink_options import SinkContext, SinkMetrics, SinkOptions
from lakehand.sink.staging import Buffer
from lakehand.sink.target import Target
from lakehand.sink.upserting import Upserting, Upserts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa

    from lakehand.model.work import Receipt
    from lakehand.settings.setting_types import WriteSettings
    from lakehand.sink.descriptor import Descriptor
    from lakehand.sink.epochs import EpochState
    from lakehand.storage import Store


class TableSink:
    """Writes Arrow rows into a table, epoch by epoch.

    `write` only takes rows in; a thread of the sink's own writes and commits. To be used by one
    thread at a time.
    """

    def __init__(
        self,
        uri: str | Path | Store,
        *,
        schema: pa.Schema | None = None,
        where: str | None = None,
        pipeline: str | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        spark: Any = None,
        **settings: Unpack[WriteSettings],
    ) -> None:
        """Check what is asked for; nothing is opened yet.

        `writer_id` makes the sink exactly-once: a unique name of the writer, the same after every
        restart. `schema` creates a missing table when the sink is opened; without it
        the first rows do. `properties` are those of the new table. `where` says which part of the
        table an overwrite replaces. `pipeline` is the name of a SinkCommitter that commits for
        this sink, which then only writes: see `pre_commit`. `spark` is a session for maintenance,
        which otherwise runs in processes of this machine. Other keyword arguments are settings.
        """
        given, storage = split_storage_options(settings)
        self._settings = Settings(given)
        self._options = SinkOptions.of(self._settings, where=where, pipeline=pipeline)
        store = open_named_store(uri, {**(storage_options or {}), **storage})
        self._store = store.with_settings(self._settings)
        self._schema = schema
        self._properties = properties
        self._spark = spark
        self._context: SinkContext | None = None
        self._delivery: ExactlyOnce | AtLeastOnce | None = None
        self._is_closed = False

    # Life

    def open(self) -> Self:
        """Find or create the table, and learn what it has of this writer."""
        if self._context is not None or self._is_closed:
            raise self._out_of_order("a sink is opened once")
        target = Target(
            self._store,
            self._settings,
            partition_by=self._options.partition_by,
            properties=self._properties,
            where=self._options.where,
            evolves=not self._options.key,
        )
        if not target.find():
            self._create_or_wait(target)
        elif self._schema is not None:
            target.require(self._schema)
        self._context = self._new_context(target)
        kind = ExactlyOnce if self._options.exactly_once else AtLeastOnce
        self._delivery = kind(self._context)
        if self._options.pipeline is None:
            self._context.background.start()
        return self

    def _create_or_wait(self, target: Target) -> None:
        if self._schema is not None:
            target.create(self._schema)
        elif not self._settings.create_table:
            raise NotATableError(
                f"there is no table at {self._store.url}, and none may be created",
                table=self._store.url,
                hint="give a schema, or set create_table",
            )

    def _new_context(self, target: Target) -> SinkContext:
        options, metrics = self._options, SinkMetrics()
        return SinkContext(
            target=target,
            metrics=metrics,
            background=BackgroundMaintenance(target, metrics, self._settings, spark=self._spark),
            options=options,
            settings=self._settings,
            writer_thread=WriterThread(
                timeout_seconds=options.timeout_seconds,
                table=self._store.url,
                writer_id=options.writer_id,
            ),
            buffer=Buffer(
                max_rows=options.max_waiting_records, max_bytes=options.max_waiting_bytes
            ),
            clock=SystemClock(),
            upserts=self._upserts(target),
        )

    def _upserts(self, target: Target) -> Upserts | None:
        if not self._options.key:
            return None
        # Without a session of the caller's, tasks that are not small run in local processes.
        settings = self._settings.with_call({} if self._spark else {"engine": "local"})
        upserting = Upserting(
            target=target, settings=settings, clock=SystemClock(), spark=self._spark
        )
        return Upserts(ChangeRows(target, self._options.key), upserting)

    def close(self, *, timeout: timedelta | None = None) -> None:
        """End the sink: exactly-once rolls an open epoch back, at-least-once commits what waits.

        Waits for writes and commits that are under way, however long they take, and for
        maintenance; `timeout` stops maintenance after that time where it is safe to.
        """
        if self._is_closed or self._context is None:
            self._is_closed = True
            return
        # The thread is always waited for: a timeout would only hide the result.
        self._context.writer_thread.lift_limit()
        try:
            self._opened.close()
        finally:
            self._is_closed = True
            self._context.writer_thread.close()
            seconds = None if timeout is None else timeout.total_seconds()
            self._context.background.close(timeout_seconds=seconds)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Epochs

    def begin_epoch(self, epoch: int) -> bool:
        """Begin an epoch; False if the table has it, so that its rows will be dropped."""
        return self._opened.begin(epoch)

    def write(self, data: Any) -> int:
        """Take rows of the current epoch in, and return how many: 0 in an epoch that is skipped.

        Rows are an Arrow table or batch, or a pandas frame. SchemaMismatchError if they do not fit
        the table, BackpressureError if too many wait: nothing of them is taken then.
        """
        delivery, batches = self._opened, batches_of(data)
        return delivery.write([self._fit(batch) for batch in batches])

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        context = self._opened_context
        if not context.target.is_known:
            schema = row_schema(batch.schema) if context.upserts else batch.schema
            work = context.writer_thread.start(lambda: context.target.create(schema))
            context.writer_thread.wait(work, operation="creation of the table")
        return context.upserts.rows.fit(batch) if context.upserts else context.target.fit(batch)

    def flush(self) -> None:
        """Wait until the rows taken so far are written; at-least-once commits them, too."""
        self._opened.flush()

    def pre_commit(self) -> Descriptor | None:
        """Write all rows of the epoch, and return their files; readers do not see them yet.

        None if the epoch has no rows, or is skipped. With a `pipeline` send the descriptor, or its
        `to_json()`, to the committer, and call `commit_epoch` when that has committed it.
        """
        return self._opened.describe()

    def commit_epoch(self) -> Receipt | None:
        """Commit the epoch; None if it has no rows, or was in the table before.

        After WriteTimeoutError call it again: it waits for the same commit. After
        CommitUnknownError, too: it finds out, and commits at most once.
        """
        return self._opened.commit()

    def rollback_epoch(self) -> None:
        """Roll the current epoch back: its rows are dropped, and its files deleted."""
        self._opened.rollback()

    # Facts

    @property
    def last_committed_epoch(self) -> int | None:
        """Newest epoch that the table has of this writer; None if none."""
        return self._opened.last_committed

    @property
    def epoch_state(self) -> EpochState | None:
        """How far the current epoch has come; None between epochs."""
        return self._opened.state

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table; NotATableError while there is none."""
        return self._opened_context.target.head.schema

    @property
    def table_id(self) -> str | None:
        """Id of the table. One that is created later at the same place has another."""
        return self._opened_context.target.head.table_id

    @property
    def metrics(self) -> SinkMetrics:
        """What the sink has done so far; after `close`, all that it did."""
        if self._context is None:
            raise self._out_of_order("the sink is not open")
        return self._context.snapshot_of_metrics()

    @property
    def url(self) -> str:
        """Where the table is, without credentials."""
        return self._store.url

    @property
    def _opened(self) -> ExactlyOnce | AtLeastOnce:
        if self._is_closed or self._delivery is None:
            raise self._out_of_order("the sink is not open")
        return self._delivery

    @property
    def _opened_context(self) -> SinkContext:
        if self._is_closed or self._context is None:
            raise self._out_of_order("the sink is not open")
        return self._context

    def _out_of_order(self, message: str) -> SinkStateError:
        return SinkStateError(
            f"{message}: {self._store.url}",
            table=self._store.url,
            writer_id=self._options.writer_id,
            hint="open() or `with` opens a sink, close() ends it for good",
        )


T = TypeVar("T")


class AsyncTableSink:
    """Writes Arrow rows into a table, epoch by epoch, from an event loop.

    Takes what TableSink takes. Calls are made one after the other, in the order they were awaited;
    one that is cancelled while it waits still runs to its end, so await the next one anyway.
    """

    def __init__(self, uri: Any, **options: Any) -> None:
        self._sink = TableSink(uri, **options)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-async-sink")

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def open(self) -> Self:
        """Find or create the table, and learn what it has of this writer."""
        await self._call(self._sink.open)
        return self

    async def begin_epoch(self, epoch: int) -> bool:
        """Begin an epoch; False if the table has it, so that its rows will be dropped."""
        return await self._call(self._sink.begin_epoch, epoch)

    async def write(self, data: Any) -> int:
        """Take rows of the current epoch in, and return how many."""
        return await self._call(self._sink.write, data)

    async def flush(self) -> None:
        """Wait until the rows taken so far are written; at-least-once commits them, too."""
        await self._call(self._sink.flush)

    async def pre_commit(self) -> Descriptor | None:
        """Write all rows of the epoch, and return their files; readers do not see them yet."""
        return await self._call(self._sink.pre_commit)

    async def commit_epoch(self) -> Receipt | None:
        """Commit the epoch; None if it has no rows, or was in the table before."""
        return await self._call(self._sink.commit_epoch)

    async def rollback_epoch(self) -> None:
        """Roll the current epoch back: its rows are dropped, and its files deleted."""
        await self._call(self._sink.rollback_epoch)

    async def close(self) -> None:
        """End the sink: exactly-once rolls an open epoch back, at-least-once commits what waits."""
        try:
            await self._call(self._sink.close)
        finally:
            self._thread.shutdown(wait=False)

    @property
    def last_committed_epoch(self) -> int | None:
        """Newest epoch that the table has of this writer; None if none."""
        return self._sink.last_committed_epoch

    @property
    def metrics(self) -> SinkMetrics:
        """What the sink has done so far."""
        return self._sink.metrics

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
