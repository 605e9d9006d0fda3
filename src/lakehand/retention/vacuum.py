"""Vacuum: protected files -> listed files -> candidates -> quarantine, delete.

Nothing is deleted that a promised version refers to, that is young, or whose reference cannot be
ruled out. What is left over is written down first and deleted when its grace is over, after every
reference was checked again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Unpack

import pyarrow as pa

from lakehand.errors import LakehandError, RunError, ValidationError
from lakehand.formats.base import FormatTable, support_of
from lakehand.formats.optional import SupportsRemovedFiles
from lakehand.model.retention import Deletion, DeletionOutcome, VacuumReport
from lakehand.observe import Progress, reported
from lakehand.observe.steps import Step, reached
from lakehand.retention import quarantine as quarantines
from lakehand.retention.candidates import Candidates, open_candidates
from lakehand.retention.pinning import drop_expired_tags
from lakehand.retention.protection import (
    OwnObjects,
    Promise,
    hold,
    protect,
    protect_since,
    read_promise,
)
from lakehand.retention.vacuum_tasks import Deleted, Deleter, VacuumTasks
from lakehand.runs import Run, list_runs, sweep
from lakehand.runs.adopt import ADOPTED_WITHIN
from lakehand.runs.ledger_records import started_at
from lakehand.runs.leftovers import noted_files
from lakehand.runs.operation import Call, CallOptions
from lakehand.runs.state import is_idle, log_unreadable
from lakehand.storage.objects import PROBE_PREFIX
from lakehand.storage.scan_columns import batch_of_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.model.reports import Outcome
    from lakehand.retention.quarantine import Quarantine
    from lakehand.settings import Settings
    from lakehand.storage import Store

Mode = Literal["full", "lite"]
#: How often files are handed to tasks that do not get to them in time.
_TIMES = 3
_EVER = datetime(1, 1, 1, tzinfo=UTC)
#: A probe older than this belongs to a process that was killed.
_PROBE_AGE = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class VacuumRequest:
    """What is asked of vacuum."""

    #: `full` lists the files; `lite` looks only at what the table's history says was removed.
    mode: Mode = "full"
    #: Only delete quarantined files whose grace period is over.
    expire: bool = False
    #: Quarantine to call off; nothing else is done then.
    undo: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("full", "lite"):
            raise ValidationError("mode is full or lite", field="mode", value=self.mode)
        if self.undo is not None and (self.expire or self.mode == "lite"):
            raise ValidationError("undo goes with nothing else", field="undo", value=self.undo)


@reported
def vacuum(
    table: FormatTable,
    *,
    settings: Settings,
    request: VacuumRequest | None = None,
    **options: Unpack[CallOptions],
) -> VacuumReport:
    """Quarantine files that no version within the retention needs; delete those quarantined before.

    Where files are many and there is a Spark, its tasks list and delete them. RefusedError if it is
    not known which files those versions need.
    """
    asked = request or VacuumRequest()
    call = Call.begin("vacuum", table, settings, options)
    promise = read_promise(table, settings, call.clock)
    call = replace(call, settings=promise.settings)
    with (
        open_candidates(first_to_go=promise.names.first_to_go) as candidates,
        VacuumTasks(call) as tasks,
    ):
        work = _Vacuum(call, promise, asked, candidates, tasks)
        undone = None
        if asked.undo is None:
            work.run()
        elif not call.dry_run:
            undone = quarantines.undo(table.store, asked.undo)
        return work.report(undone, duration_ms=call.watch.total_milliseconds())


class _Vacuum:
    """One vacuum under way."""

    def __init__(
        self,
        call: Call,
        promise: Promise,
        asked: VacuumRequest,
        candidates: Candidates,
        tasks: VacuumTasks,
    ) -> None:
        self._promise = promise
        self._table = promise.table
        self._own = promise.own
        self._store = promise.table.store
        #: The table, if its history lists what was removed.
        self._removals = support_of(promise.table, SupportsRemovedFiles)
        self._asked = asked
        self._dry_run = call.dry_run
        self._candidates = candidates
        self._tasks = tasks
        self._tell = call.tell
        self._deleter = Deleter(self._store)
        self._due: list[Quarantine] = []
        self._waiting = 0
        self._swept = 0
        self._new: Quarantine | None = None
        self._to_delete = self._to_quarantine = (0, 0)
        self._keys: tuple[str, ...] = ()
        #: What the history says was removed, and until which version it tells.
        self._forgotten: list[str] = []
        self._last_version: int | None = None

    def run(self) -> None:
        """Do what is asked for; in a dry run, only find out what that is."""
        if not self._dry_run:
            takeover_after = self._promise.settings.takeover_after
            drop_expired_tags(self._table, now=self._promise.clock.now())
            if self._own.has_runs:
                swept = sweep(self._table, clock=self._promise.clock, takeover_after=takeover_after)
                self._swept = len(swept.files_deleted)
            _drop_probes(self._store, self._own, now=self._promise.clock.now())
        self._sort_quarantines()
        if self._asked.expire and not self._due:
            return
        self._find()
        self._choose()
        if not self._dry_run:
            self._delete()
            self._quarantine()
            self._note()

    # Finding out.

    def _sort_quarantines(self) -> None:
        """Decide which quarantines are swept now: from here on these cannot be undone."""
        now, clock = self._promise.clock.now(), self._promise.clock
        if not self._dry_run and quarantines.DIRECTORY in self._own.directories:
            quarantines.drop_abandoned(self._store, clock=clock)
        for entry in self._quarantines():
            is_due = entry.sweep_after <= now or not self._promise.grace or entry.fate
            if is_due and self._decide(entry) == "sweeping":
                self._due.append(entry)

    def _quarantines(self) -> list[Quarantine]:
        """Return what is in quarantine, if there was something when that was last looked at."""
        if quarantines.DIRECTORY not in self._own.directories:
            return []
        return quarantines.list_quarantines(self._store)

    def _decide(self, entry: Quarantine) -> quarantines.QuarantineFate | None:
        if self._dry_run:
            return entry.fate or "sweeping"
        fate = quarantines.decide(self._store, entry, "sweeping")
        if fate == "undone":
            quarantines.drop(self._store, entry)
        return fate

    def _find(self) -> None:
        """List the files, and keep all that are or may be needed."""
        if self._asked.mode == "lite":
            self._find_forgotten()
        else:
            self._list()
        self._candidates.keep_protected(self._promise.protection)
        self._candidates.keep_for_clones(self._promise.held.names)
        self._look_again()

    def _list(self) -> None:
        self._tell(Progress(phase="scanning", done=0, unit="files"))
        names, since = self._promise.names, self._promise.since
        for count in self._candidates.scan(self._batches(), names=names, young_since=since):
            self._tell(Progress(phase="scanning", done=count, unit="files"))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Stream all files; if they are too many for this process, tasks list the rest."""
        names, most = self._promise.names, self._tasks.files_without
        scan = self._store.scan(enter=names.may_hold_data, most_objects=most)
        yield from scan
        yield from self._tasks.list(scan.left, names=names)

    def _find_forgotten(self) -> None:
        removed: set[str] = set()
        table = self._removals
        if table is not None:
            forgotten = table.forgotten(before=self._promise.since)
            self._last_version = forgotten.last_version
            removed = set(forgotten.keys.to_pylist())
        set_aside = {
            key
            for entry in self._quarantines()
            for batch in quarantines.read_files(self._store, entry)
            for key in batch["key"].to_pylist()
        }
        self._forgotten = sorted(removed)
        found = self._store.head_all(sorted(removed | set_aside))
        files = pa.Table.from_batches([batch_of_objects(found)])
        self._candidates.add(files, young_since=self._promise.since)
        self._tell(Progress(phase="scanning", done=len(found), total=len(found), unit="files"))

    def _runs_under_way(self) -> list[Run]:
        """Return the runs whose files may still be committed: later than any retention tells.

        A ledger that was not written to within the retention protects nothing any more.
        """
        now, after = self._promise.clock.now(), self._promise.retention
        runs = (Run(store=self._store, id=id_) for id_ in list_runs(self._store))
        return [run for run in runs if not is_idle(run, now=now, takeover_after=after)]

    def _keep_noted(self, run: Run) -> None:
        """Keep the files of a run that do not have its name.

        The table's format has chosen their names, or a dead run has from which they were adopted.
        Where the ledger cannot be read, all that the run can have written or adopted is kept.
        """
        try:
            noted = noted_files(run)
        except RunError as error:
            log_unreadable(run, error)
            started = started_at(run.id)
            self._candidates.keep_since(started - ADOPTED_WITHIN if started else _EVER)
        else:
            self._candidates.keep(pa.chunked_array([sorted(noted)], pa.string()))

    def _look_again(self) -> None:
        """Keep files of running operations, and those added or pinned since the table was read."""
        self._own = OwnObjects.of(self._store)
        runs = self._runs_under_way() if self._own.has_runs else []
        self._candidates.keep_of_runs([run.id for run in runs])
        for run in runs:
            self._keep_noted(run)
        promise, now = self._promise, self._promise.clock.now()
        newest = promise.protection.newest_version
        # They are dropped by now, unless nothing is to change: one of their names is another's tag.
        ignored = promise.held.expired_tags if self._dry_run else ()
        since = protect_since(self._table, version=newest, ignored_tags=ignored)
        self._candidates.keep_protected(since)
        pins = [pin for pin in self._own.pins(self._store) if pin.is_in_force(now)]
        new = [pin for pin in pins if pin not in promise.held.pins]
        if new:
            held = hold(self._table, new)
            self._candidates.keep_protected(protect(self._table, held, since=now))
            self._candidates.keep_for_clones(held.names)

    def _choose(self) -> None:
        """Choose what to delete now; what is quarantined and not due yet is left alone."""
        due = {entry.id for entry in self._due}
        for entry in self._quarantines():
            for batch in quarantines.read_files(self._store, entry):
                if entry.id in due:
                    self._candidates.choose(pa.Table.from_batches([batch]))
                elif entry.fate is None:
                    self._waiting += self._candidates.keep(pa.chunked_array([batch["key"]]))
        if not self._promise.grace and not self._asked.expire:
            self._candidates.choose_all()
        self._to_delete = self._candidates.totals("to_delete")
        self._to_quarantine = (0, 0) if self._asked.expire else self._candidates.totals("listed")
        if self._dry_run:
            tables = ("to_delete",) if self._asked.expire else ("to_delete", "listed")
            batches = (batch for table in tables for batch in self._candidates.batches(table))
            self._keys = tuple(sorted(key for batch in batches for key in batch["key"].to_pylist()))

    # Doing it.

    def _delete(self) -> None:
        """Delete what was chosen, checking every batch against the table as it is by then."""
        deletion = self._deletion()
        if deletion.files:
            self._table.begin_deletion(deletion)
            reached(Step.VACUUM_ANNOUNCED)
            self._delete_candidates(deletion.files)
            reached(Step.VACUUM_DELETED)
        if not self._deleter.errors:
            for entry in self._due:
                quarantines.drop(self._store, entry)
        if deletion.files:
            self._note_end(deletion)

    def _delete_candidates(self, total: int) -> None:
        done = 0
        while self._candidates.are_left:
            self._tell(Progress(phase="deleting", done=done, total=total, unit="files"))
            self._look_again()
            files = self._candidates.next_to_delete()
            if not files.num_rows:
                return
            self._delete_batch(
                files, by=self._tasks.delete if self._tasks.is_needed(total) else None
            )
            reached(Step.VACUUM_DELETING)
            done += files.num_rows
        self._tell(Progress(phase="deleting", done=done, total=total, unit="files"))

    def _delete_batch(self, files: pa.Table, *, by: Callable[[pa.Table], Deleted] | None) -> None:
        """Delete some files; those that no task reached in time are checked again first."""
        for _ in range(_TIMES):
            late = self._deleter.delete(files, beside=self._candidates.checksums_of, by=by)
            if not late.num_rows:
                return
            self._look_again()
            files = self._candidates.still_to_delete(late)
        self._deleter.give_up(files)

    def _deletion(self) -> Deletion:
        files, size = self._to_delete
        settings = self._promise.settings
        return Deletion(
            version=self._promise.protection.newest_version,
            files=files,
            bytes=size,
            asked_retention=settings.retention,
            allows_short_retention=settings.allow_short_retention,
            entries=settings.vacuum_entries,
        )

    def _note_end(self, deletion: Deletion) -> None:
        """Close the entry in the history; that this fails brings no file back."""
        deleter = self._deleter
        outcome = DeletionOutcome(
            files=deleter.files, directories=deleter.directories, is_complete=not deleter.errors
        )
        try:
            self._table.end_deletion(deletion, outcome)
        except LakehandError as error:
            deleter.errors.append(error.to_json())

    def _quarantine(self) -> None:
        if self._to_quarantine[0]:
            self._new = quarantines.start_quarantine(
                self._store,
                self._candidates.batches("listed"),
                grace=self._promise.grace,
                clock=self._promise.clock,
            )

    def _note(self) -> None:
        """Remember for the next `lite` what is certainly gone; a listing makes it start over."""
        table = self._removals
        if self._asked.expire or table is None:
            return
        if self._asked.mode == "full":
            table.note_vacuumed(None)
        elif self._last_version is not None and not self._store.head_all(self._forgotten):
            table.note_vacuumed(self._last_version)

    # Telling.

    def report(self, undone: Quarantine | None, *, duration_ms: float) -> VacuumReport:
        dry_run, deleter = self._dry_run, self._deleter
        deleted = self._to_delete if dry_run else (deleter.files, deleter.bytes)
        new, kept = undone or self._new, self._candidates.kept
        protection = self._promise.protection
        return VacuumReport(
            outcome=self._outcome(undone),
            table=self._store.url,
            version=protection.newest_version,
            oldest_version=protection.oldest_version,
            retention_seconds=self._promise.retention.total_seconds(),
            mode=self._asked.mode,
            files_scanned=self._candidates.files_scanned,
            files_retained=kept.total,
            kept=kept,
            holders=self._promise.held.holders,
            files_ignored=self._candidates.files_ignored,
            files_waiting=self._waiting,
            files_swept=self._swept,
            files_quarantined=self._to_quarantine[0],
            bytes_quarantined=self._to_quarantine[1],
            files_deleted=deleted[0],
            bytes_freed=deleted[1],
            files_undone=undone.files if undone else 0,
            directories_removed=deleter.directories,
            quarantine_id=new.id if new else None,
            dry_run=dry_run,
            files_to_delete=self._keys,
            files_failed=deleter.files_failed,
            errors=tuple(deleter.errors),
            duration_ms=duration_ms,
        )

    def _outcome(self, undone: Quarantine | None) -> Outcome:
        if self._dry_run:
            return "dry_run"
        did_something = undone or self._new or self._deleter.files or self._swept
        return "committed" if did_something else "nothing_to_do"


def _drop_probes(store: Store, own: OwnObjects, *, now: datetime) -> None:
    """Delete what processes left that were killed while they tried conditional puts."""
    store.delete(
        info.key
        for info in own.objects
        if info.key.startswith(PROBE_PREFIX) and info.modified_at < now - _PROBE_AGE
    )
