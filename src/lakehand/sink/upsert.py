"""Changes on their way into a table: gathered on disk, made one a key, and brought in at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehand.engine.cores import usable_cores
from lakehand.formats.worker import TaskLimits
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.rows.incoming import NUMBER, Incoming, KeyColumns
from lakehand.rows.sameness import named_key
from lakehand.rows.session import open_session
from lakehand.rows.upsert import upsert
from lakehand.rows.workshop import Call
from lakehand.sink.changelog import Form, collapse
from lakehand.sink.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.rows.upsert import Mark, Upserted
    from lakehand.settings import Settings
    from lakehand.sink.change_rows import ChangeRows
    from lakehand.sink.target import Target

__all__ = ["Collapsed", "Gathered", "Upserting", "Upserts"]

#: Files that are looked into by the process that upserts, without a runner and its start.
INLINE_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Collapsed:
    """What the changes of an epoch came to."""

    rows_in: int
    upserts_out: int
    deletes_out: int
    duration_ms: float


class Gathered:
    """Changes that wait for the others of their epoch. They fit the table."""

    def __init__(self, rows: ChangeRows, settings: Settings, clock: Clock) -> None:
        self._rows = rows
        self._settings = settings
        self._clock = clock
        self._spool: Spool | None = None
        self._incoming: Incoming | None = None
        self.collapsed: Collapsed | None = None

    @property
    def count(self) -> int:
        """How many changes came."""
        return self._spool.rows if self._spool is not None else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take changes in, as `ChangeRows.fit` returns them."""
        if self._spool is None:
            directory = self._settings["scratch_directory"]
            self._spool = Spool(self._rows.schema, directory=directory)
        self._spool.add(batch)

    def incoming(self, *, is_ordered: bool) -> Incoming:
        """Return one change for each key.

        Changes that say nothing but the rows have an order only if `is_ordered`; else a key that
        comes twice is a DuplicateKeyError.
        """
        if self._incoming is None:
            watch = Stopwatch(self._clock)
            self._incoming = self._collapse(is_ordered=is_ordered)
            live = len(self._incoming.live_numbers)
            self.collapsed = Collapsed(
                rows_in=self.count,
                upserts_out=live,
                deletes_out=self._incoming.winners.num_rows - live,
                duration_ms=watch.total_milliseconds(),
            )
        return self._incoming

    def _collapse(self, *, is_ordered: bool) -> Incoming:
        changes = self._spool.table() if self._spool else _nothing(self._rows)
        form = self._rows.form or Form.ROWS
        if form is Form.ROWS and is_ordered:
            form = Form.CDC
        limits = replace(TaskLimits.of(self._settings), threads=usable_cores())
        compared = self._rows.compared(changes, whole=form is Form.ZSET)
        key = KeyColumns(schema=named_key(self._rows.key.names, compared.schema))
        with open_session(limits) as session:
            winners = collapse(session, compared, key, form=form)
        # By their places: the table may have columns that are called like those two.
        rows = changes.select(list(range(changes.num_columns - 2)))
        return Incoming(key=key, rows=rows, winners=winners, rows_given=changes.num_rows)

    def close(self) -> None:
        """Forget the changes."""
        self._incoming = None
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _nothing(rows: ChangeRows) -> pa.Table:
    return rows.schema.append(pa.field(NUMBER, pa.int64())).empty_table()


@dataclass(frozen=True, kw_only=True, slots=True)
class Upserting:
    """How changes are brought into a table."""

    target: Target
    settings: Settings
    clock: Clock
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None
    operation: str = "upsert"

    def run(
        self,
        incoming: Incoming,
        *,
        parameters: Mapping[str, Any] | None = None,
        mark: Mark | None = None,
        watch: Stopwatch | None = None,
    ) -> Upserted:
        """Bring changes in, in one commit."""
        head = self.target.head
        call = Call(
            operation=self.operation,
            settings=self.target.in_force(self.settings),
            watch=watch or Stopwatch(self.clock),
            spark=self.spark,
            dry_run=self.dry_run,
            on_progress=self.on_progress,
            inline_bytes=INLINE_BYTES,
        )
        done = upsert(
            self.target.handle,
            incoming,
            call=call,
            head=head,
            parameters=parameters,
            mark=mark,
        )
        if done.receipt is not None:
            self.target.base_version = max(self.target.base_version, done.receipt.version)
        return done


class Upserts:
    """The upserts of one sink."""

    def __init__(self, rows: ChangeRows, upserting: Upserting) -> None:
        self.rows = rows
        self.upserting = upserting

    def gather(self) -> Gathered:
        """Return a place for the changes of one epoch."""
        return Gathered(self.rows, self.upserting.settings, self.upserting.clock)
