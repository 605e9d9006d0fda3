"""What every operation on rows works with: a run, a place to exchange tables, and who does it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.engine import CancelToken, open_runner
from lakehand.engine.here import HERE
from lakehand.formats.worker import TaskLimits
from lakehand.rewrite.portions import require_true_sizes
from lakehand.rows.exchange import open_exchange
from lakehand.rows.labour import Labour
from lakehand.runs import Heartbeat, Run, earlier_than, living_runs, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.engine import Runner
    from lakehand.formats.base import FormatTable
    from lakehand.formats.worker import FormatWorker
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import OnProgress, Progress
    from lakehand.rewrite.stopwatch import Stopwatch
    from lakehand.rows.exchange import Exchange
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = ["INLINE_BYTES", "Call", "Workshop", "open_workshop"]

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

    table: FormatTable
    #: Bound to the version that the operation began with.
    worker: FormatWorker
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
        after, clock = self.call.settings["takeover_after"], self.call.watch.clock
        living = living_runs(self.table.store, clock=clock, takeover_after=after)
        same = [run for run in living if run.plan == self.call.plan]
        return tuple(run.id for run in earlier_than(self.run, same))


@contextmanager
def open_workshop(
    table: FormatTable, snapshot: Snapshot, call: Call, *, read_bytes: int
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
            interval = settings["heartbeat_interval"]
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
    sweep(table, clock=call.watch.clock, takeover_after=call.settings["takeover_after"])
    return Run.start(
        table.store,
        call.plan,
        snapshot=snapshot,
        # What rows were found depends on the call, which nobody else makes again.
        is_adoptable=False,
        clock=call.watch.clock,
    )
