"""What every operation on rows works with: a run, an exchange for tables, and a runner."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.duckdb_pool import lease
from lakehand.engine import CancelToken, open_runner
from lakehand.engine.inline import HERE
from lakehand.errors import error_from_json
from lakehand.formats.worker import TaskLimits
from lakehand.observe import Progress
from lakehand.rewrite.statistics import require_true_sizes
from lakehand.rows.exchange import open_exchange
from lakehand.runs import Heartbeat, Run, earlier_than, living_runs, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import duckdb

    from lakehand.duckdb_pool import Config
    from lakehand.engine import Runner
    from lakehand.formats.base import FormatTable
    from lakehand.formats.optional import SupportsRowChanges
    from lakehand.formats.rows import RowChangeWorker
    from lakehand.model.reports import EngineName
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import OnProgress
    from lakehand.observe.stopwatch import Stopwatch
    from lakehand.rows.exchange import Exchange
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = [
    "INLINE_BYTES",
    "Call",
    "Labour",
    "Workshop",
    "gathered",
    "open_session",
    "open_workshop",
]


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


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches to tables that are worth a query."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_A_QUERY or size >= _BYTES_A_QUERY:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


@dataclass(kw_only=True, slots=True)
class Labour:
    """Who runs tasks, and who is told how far they are."""

    runner: Runner
    cancel: CancelToken
    tell: OnProgress
    #: Whose names the tasks write under; None if they write nothing that lasts.
    ledger: Run | None
    #: Tasks on files of no more than this together need no runner.
    inline_bytes: int = 0
    #: Where tasks ran; None if there were none so far.
    ran_on: EngineName | None = None

    def run(
        self, phase: str, task: Callable[..., Any], payloads: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """Run `task` on all payloads; the first failure is raised."""
        done = 0

        def count(_outcome: object) -> None:
            nonlocal done
            done += 1
            self.tell(Progress(phase=phase, done=done, total=len(payloads), unit="tasks"))

        if not payloads:
            return []
        runner: Runner = HERE if _are_small(payloads, self.inline_bytes) else self.runner
        if self.ran_on != "spark":
            self.ran_on = runner.engine
        outcomes = runner.run(task, payloads, run=self.ledger, on_result=count, cancel=self.cancel)
        for outcome in outcomes:
            if outcome.failure is not None:
                raise error_from_json(outcome.failure)
        return [outcome.result or {} for outcome in outcomes]


def _are_small(payloads: Sequence[Mapping[str, Any]], most_bytes: int) -> bool:
    """Say whether tasks read so little; of those that read no files nobody knows."""
    sizes = [int(file["bytes"]) for payload in payloads for file in payload.get("files", ())]
    return bool(sizes) and sum(sizes) <= most_bytes


#: Tasks that read no more than this together run in this process, unless Spark runs them.
INLINE_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """How a verb was called, whatever it is about."""

    operation: str
    settings: Settings
    watch: Stopwatch
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None
    #: Tasks on files of no more than this together run in this process, whatever the engine.
    inline_bytes: int = 0
    #: What tells the work of a run from other work of the same verb.
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> dict[str, Any]:
        """What the run is about, for its ledger."""
        return {"operation": self.operation, "parameters": dict(self.parameters)}

    def tell(self, progress: Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workshop:
    """One operation at work."""

    table: SupportsRowChanges
    #: Bound to the version that the operation began with.
    worker: RowChangeWorker
    call: Call
    #: None where nothing is written that lasts.
    run: Run | None
    exchange: Exchange
    labour: Labour

    @property
    def limits(self) -> TaskLimits:
        return TaskLimits.of(self.call.settings)

    def rivals(self) -> tuple[str, ...]:
        """Return the runs at work on the very same that began before this one."""
        if self.run is None:
            return ()
        after, clock = self.call.settings.takeover_after, self.call.watch.clock
        living = living_runs(self.table.store, clock=clock, takeover_after=after)
        same = [run for run in living if run.plan == self.call.plan]
        return tuple(run.id for run in earlier_than(self.run, same))


@contextmanager
def open_workshop(
    table: SupportsRowChanges, snapshot: Snapshot, call: Call, *, read_bytes: int
) -> Iterator[Workshop]:
    """Start what has to run for tasks that read so much, and end it with the block.

    What a run wrote and did not commit is deleted at its end. A dry run whose tasks are all here
    writes nothing into the table, not even a ledger.
    """
    settings, cancel = call.settings, CancelToken()
    require_true_sizes(table, snapshot, settings, read_bytes=read_bytes, spark=call.spark)
    runner = _runner(call, table.store, read_bytes)
    is_here = runner.engine == "local"
    with ExitStack() as stack:
        run = None
        if not (call.dry_run and is_here):
            run = _start(table, snapshot, call)
            stack.callback(run.finish)
            interval = settings.heartbeat_interval
            stack.enter_context(Heartbeat(run, interval=interval, on_stop=cancel.cancel))
        place = stack.enter_context(open_exchange(None if is_here else run, settings))
        stack.enter_context(runner)
        yield Workshop(
            table=table,
            worker=table.worker(snapshot),
            call=call,
            run=run,
            exchange=place,
            labour=Labour(
                runner=runner,
                cancel=cancel,
                tell=call.tell,
                ledger=run,
                inline_bytes=call.inline_bytes,
            ),
        )


def _runner(call: Call, store: Store, read_bytes: int) -> Runner:
    """Return who runs the tasks: little work is done before another process has started."""
    runner = open_runner(call.settings, read_bytes=read_bytes, spark=call.spark, store=store)
    return HERE if runner.engine == "local" and read_bytes <= INLINE_BYTES else runner


def _start(table: FormatTable, snapshot: Snapshot, call: Call) -> Run:
    sweep(table, clock=call.watch.clock, takeover_after=call.settings.takeover_after)
    return Run.start(
        table.store,
        call.plan,
        snapshot=snapshot,
        # What rows were found depends on the call, which nobody else makes again.
        is_adoptable=False,
        clock=call.watch.clock,
    )
