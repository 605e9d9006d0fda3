"""Deduplication: of rows that count as one, one stays.

Keys are hashed and compared in tasks; only files that hold a duplicate are touched. Nothing is
committed before what is left of them is proved, nor if somebody added rows that were not compared.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.engine import CancelToken
from lakehand.formats.worker import TaskLimits
from lakehand.observe.clock import SystemClock
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.rows.duplicates import Searching
from lakehand.rows.exchange import open_exchange
from lakehand.rows.labour import open_labour
from lakehand.rows.report import deduplication_report
from lakehand.rows.sameness import Sameness
from lakehand.rows.search import Search, partitions_for
from lakehand.rows.withdrawal import Request, Withdrawal
from lakehand.runs import Heartbeat, Run, sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import Outcome
    from lakehand.model.row_reports import DeduplicationReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import OnProgress, Progress
    from lakehand.observe.clock import Clock
    from lakehand.rows.places import Places
    from lakehand.rows.search import Found
    from lakehand.settings import Settings

__all__ = ["DuplicateRequest", "deduplicate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateRequest:
    """What a call asks for beside its settings."""

    #: Rows with equal values in all of these columns are duplicates.
    key: Sequence[str] | None = None
    #: Rows that are equal in all columns are duplicates.
    exact: bool = False
    #: Which one stays: `first`, `last` or `latest`.
    keep: str = "first"
    #: Whose greatest value `latest` keeps.
    order_by: str | None = None


def deduplicate(
    table: FormatTable,
    *,
    settings: Settings,
    request: DuplicateRequest,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> DeduplicationReport:
    """Remove rows of which an equal one stays. Without duplicates nothing is committed."""
    watch = Stopwatch(clock or SystemClock())
    snapshot = table.snapshot()
    sameness = _sameness(table, snapshot, request)
    chosen = settings.with_properties(snapshot.properties)
    with ExitStack() as stack:
        work = _Work(table, chosen, sameness, watch, tell=on_progress or _tell_nobody)
        work.open(stack, snapshot, spark=spark, dry_run=dry_run)
        if dry_run:
            work.find(snapshot)
            return deduplication_report(work.found, sameness, watch, outcome="dry_run")
        withdrawn = work.withdrawal().commit(snapshot, work.find)
    outcome: Outcome = "committed" if withdrawn else "nothing_to_do"
    return deduplication_report(work.found, sameness, watch, outcome=outcome, done=withdrawn)


def _sameness(table: FormatTable, snapshot: Snapshot, request: DuplicateRequest) -> Sameness:
    sameness = Sameness.of(
        snapshot.schema,
        key=request.key,
        exact=request.exact,
        keep=request.keep,
        order_by=request.order_by,
    )
    keys = () if sameness.exact else sameness.columns
    order = (sameness.order_by,) if sameness.order_by else ()
    table.require_deletion(snapshot, keys=(*keys, *order))
    return sameness


class _Work:
    """One call: who does the work, and what was found last."""

    found: Found

    def __init__(
        self,
        table: FormatTable,
        settings: Settings,
        sameness: Sameness,
        watch: Stopwatch,
        *,
        tell: OnProgress,
    ) -> None:
        self._table = table
        self._settings = settings
        self._sameness = sameness
        self._watch = watch
        self._tell = tell
        self._run: Run | None = None

    def open(self, stack: ExitStack, snapshot: Snapshot, *, spark: Any, dry_run: bool) -> None:
        """Start what has to run; `stack` ends it."""
        cancel = CancelToken()
        is_here = spark is None and self._settings["engine"] == "local"
        if not (dry_run and is_here):
            self._run = self._start_run(stack, cancel)
        self._exchange = stack.enter_context(
            open_exchange(None if is_here else self._run, self._settings)
        )
        self._labour = stack.enter_context(
            open_labour(
                self._settings, spark=spark, ledger=self._run, cancel=cancel, tell=self._tell
            )
        )
        self._worker = self._table.worker(snapshot)
        limits = TaskLimits.of(self._settings)
        searching = Searching(
            worker=self._worker,
            exchange=self._exchange,
            sameness=self._sameness,
            limits=limits,
            partitions=partitions_for(snapshot, memory_bytes=limits.memory_bytes),
        )
        self._search = Search(self._table, searching, self._labour)

    def _start_run(self, stack: ExitStack, cancel: CancelToken) -> Run:
        takeover_after = self._settings["takeover_after"]
        sweep(self._table, clock=self._watch.clock, takeover_after=takeover_after)
        run = Run.start(self._table.store, {"operation": "deduplicate"}, clock=self._watch.clock)
        stack.callback(run.finish)
        interval = self._settings["heartbeat_interval"]
        stack.enter_context(Heartbeat(run, interval=interval, on_stop=cancel.cancel))
        return run

    def find(self, snapshot: Snapshot) -> Places:
        with self._watch.measure("plan"):
            self.found = self._search.find(snapshot)
        return self.found.places

    def withdrawal(self) -> Withdrawal:
        assert self._run is not None  # noqa: S101  only a dry run has none
        sameness = self._sameness
        parameters = {
            "key": list(sameness.columns) if not sameness.exact else None,
            "exact": sameness.exact,
            "keep": sameness.keep,
            "orderBy": sameness.order_by,
        }
        return Withdrawal(
            self._table,
            self._worker,
            run=self._run,
            exchange=self._exchange,
            labour=self._labour,
            settings=self._settings,
            request=Request(operation="deduplicate", parameters=parameters),
        )


def _tell_nobody(_progress: Progress) -> None:
    pass
