"""What every operation on rows works with: a run, an exchange for tables, and tasks."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.duckdb_pool import Config, lease
from lakehand.engine import CancelToken, Runner
from lakehand.engine.inline import HERE
from lakehand.formats.base import require_support
from lakehand.formats.optional import SupportsRowChanges
from lakehand.model.batches import gathered
from lakehand.rows.table_exchange import Exchange, open_exchange
from lakehand.runs import Run, earlier_than, living_runs, sweep
from lakehand.runs.operation import INLINE_BYTES, Call, Tasks, open_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import duckdb

    from lakehand.formats.rows import RowChangeWorker
    from lakehand.formats.worker import TaskLimits
    from lakehand.model.snapshot import Snapshot

#: What a query is asked for: each costs as much as some thousand rows.
_ROWS_A_QUERY, _BYTES_A_QUERY = 256 * 1024, 64 * 2**20


@contextmanager
def open_session(
    limits: TaskLimits, *, without_optimizers: str = ""
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a connection whose temporary tables spill, and vanish with the block."""
    config: Config = {
        "threads": limits.threads,
        "memory_limit": f"{limits.memory_bytes // 2}B",
        "max_temp_directory_size": f"{limits.scratch_bytes}B",
        "preserve_insertion_order": False,
        "disabled_optimizers": without_optimizers,
    }
    with lease(config, spill_directory=limits.scratch_directory) as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


def query_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches to tables that are worth a query."""
    many = gathered(batches, rows=_ROWS_A_QUERY, size=_BYTES_A_QUERY)
    return map(pa.Table.from_batches, many)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOperation:
    """One operation on rows under way."""

    call: Call
    table: SupportsRowChanges
    #: What tells the work of the run from other work of the same verb, for its ledger.
    plan: Mapping[str, Any]
    #: Bound to the version that the operation began with.
    worker: RowChangeWorker
    #: None where nothing is written that lasts.
    run: Run | None
    exchange: Exchange
    tasks: Tasks

    @property
    def limits(self) -> TaskLimits:
        return self.call.limits

    def rivals(self) -> tuple[str, ...]:
        """Return the runs at work on the very same that began before this one."""
        if self.run is None:
            return ()
        living = living_runs(
            self.table.store,
            clock=self.call.clock,
            takeover_after=self.call.settings.takeover_after,
            but=self.run.id,
        )
        same = [run for run in living if run.plan == self.plan]
        return tuple(run.id for run in earlier_than(self.run, same))


@contextmanager
def open_row_operation(
    call: Call,
    snapshot: Snapshot,
    *,
    read_bytes: int,
    parameters: Mapping[str, Any] | None = None,
    inline_bytes: int = 0,
) -> Iterator[RowOperation]:
    """Start what has to run for tasks that read so much, and end it with the block.

    What a run wrote and did not commit is deleted at its end. A dry run whose tasks are all here
    writes nothing into the table, not even a ledger. `parameters` tell the work from other work of
    the same verb. Tasks on files of no more than `inline_bytes` together run in this process,
    whatever the engine.
    """
    table = require_support(call.table, SupportsRowChanges, operation=call.operation)
    plan = {"operation": call.operation, "parameters": dict(parameters or {})}
    runner = _runner(call, snapshot, read_bytes)
    is_here = runner.engine == "local"
    with ExitStack() as stack:
        run, cancel = None, CancelToken()
        if not (call.dry_run and is_here):
            sweep(call.table, clock=call.clock, takeover_after=call.settings.takeover_after)
            # Which rows were found depends on the call, so no other run can adopt it.
            started = open_run(call, snapshot, plan, is_adoptable=False)
            run, cancel = stack.enter_context(started)
        place = stack.enter_context(open_exchange(None if is_here else run, call.settings))
        tasks = Tasks(call, runner, run=run, cancel=cancel, inline_bytes=inline_bytes)
        yield RowOperation(
            call=call,
            table=table,
            plan=plan,
            worker=table.worker(snapshot),
            run=run,
            exchange=place,
            tasks=stack.enter_context(tasks),
        )


def _runner(call: Call, snapshot: Snapshot, read_bytes: int) -> Runner:
    """Return who runs the tasks: little work is done before another process has started."""
    runner = call.runner(read_bytes=read_bytes, snapshot=snapshot)
    return HERE if runner.engine == "local" and read_bytes <= INLINE_BYTES else runner
