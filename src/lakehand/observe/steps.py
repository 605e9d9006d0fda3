"""Named crash points: the steps of an operation at which fault tests kill the process.

Code that writes calls `reached` at each of them. In production there is no listener; the fault
tests listen and kill the process, and one test fails if a step has no kill test.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Step(StrEnum):
    """A point between two writes."""

    #: A commit: nothing is written yet.
    COMMIT_PREPARED = "commit-prepared"
    #: A commit through a database: its content is a temporary object, without an entry.
    ENTRY_PREPARED = "entry-prepared"
    #: A commit through a database: its entry is inserted; the log does not have it yet.
    ENTRY_INSERTED = "entry-inserted"
    #: A commit: the log entry is written, its result not yet checked.
    COMMIT_PUT = "commit-put"
    #: A commit: the log entry was read back and is this writer's.
    COMMIT_CONFIRMED = "commit-confirmed"
    #: A checkpoint: its sidecars are written, its top-level file is not.
    CHECKPOINT_SIDECARS = "checkpoint-sidecars"
    #: A checkpoint: its top-level file is written, the pointer to it is not.
    CHECKPOINT_WRITTEN = "checkpoint-written"
    #: A checkpoint: the pointer to it is written.
    CHECKPOINT_POINTED = "checkpoint-pointed"
    #: A log cleanup: some of the files to delete are deleted.
    LOG_STRETCH_DELETED = "log-stretch-deleted"
    #: A log repair: the files to remove are backed up, and still in the log.
    REPAIR_COPIED = "repair-copied"
    #: A log repair: some of the versions to remove are deleted.
    REPAIR_FORGETTING = "repair-forgetting"
    #: A log repair: invalid files are deleted from the log, and not replaced yet.
    REPAIR_SET_ASIDE = "repair-set-aside"
    #: A run: its ledger exists.
    RUN_STARTED = "run-started"
    #: A task: its file names are reserved, nothing is written.
    TASK_RESERVED = "task-reserved"
    #: A run: it has taken over a dead run, and adopted none of its results yet.
    RUN_TOOK_OVER = "run-took-over"
    #: A run: it has adopted matching results of a dead run, whose ledger still exists.
    RUN_ADOPTED = "run-adopted"
    #: A file composed by the store: its upload exists, without any part.
    UPLOAD_CREATED = "upload-created"
    #: A file composed by the store: its upload has all parts, and is not completed.
    UPLOAD_FILLED = "upload-filled"
    #: A task: its files are written and not proved.
    TASK_WRITTEN = "task-written"
    #: A task: its files are proved, its result is not recorded.
    TASK_PROVED = "task-proved"
    #: A task: its result is in the ledger.
    TASK_RECORDED = "task-recorded"
    #: An upsert: its new rows are written and not proved.
    ROWS_ARRIVED = "rows-arrived"
    #: A run: its fate is "committing"; nothing is committed yet.
    RUN_COMMITTING = "run-committing"
    #: A run: its commit succeeded, which its ledger does not record yet.
    RUN_COMMITTED = "run-committed"
    #: A run: its ledger records the result of its commit; there may be more to do.
    RUN_SETTLED = "run-settled"
    #: A run: it is closed for commits; its staged files still exist.
    RUN_CLOSED = "run-closed"
    #: A run: its uncommitted staged files are deleted; its ledger still exists.
    RUN_CLEANED = "run-cleaned"
    #: Vacuum: the list of files to quarantine is written, its manifest is not.
    QUARANTINE_LISTED = "quarantine-listed"
    #: Vacuum: the manifest is written, so the files are quarantined.
    QUARANTINE_STARTED = "quarantine-started"
    #: Vacuum: it is decided whether a quarantine is deleted or undone; neither has begun.
    QUARANTINE_DECIDED = "quarantine-decided"
    #: Vacuum: the manifest of a quarantine is deleted, its list is not.
    QUARANTINE_DROPPED = "quarantine-dropped"
    #: Vacuum: VACUUM START is committed; no file is deleted yet.
    VACUUM_ANNOUNCED = "vacuum-announced"
    #: Vacuum: some files are deleted.
    VACUUM_DELETING = "vacuum-deleting"
    #: Vacuum: all files are deleted; quarantines and the log do not record it yet.
    VACUUM_DELETED = "vacuum-deleted"
    #: A sink: some rows of an epoch are being written to files.
    SINK_WRITING = "sink-writing"
    #: A sink: all rows of an epoch are in files; no commit was attempted.
    SINK_STAGED = "sink-staged"
    #: A sink: an epoch is committed, and its caller not told yet.
    SINK_COMMITTED = "sink-committed"
    #: A hot table: changes are in its log, and not acknowledged yet.
    HOT_LOGGED = "hot-logged"
    #: A hot table: new changes go to the next epoch; nothing of this one is written.
    HOT_FROZEN = "hot-frozen"
    #: A hot table: an epoch is in the cold table, and still in memory and in the log.
    HOT_FLUSHED = "hot-flushed"
    #: A hot table: part of an epoch is deleted from the log.
    HOT_DROPPING = "hot-dropping"
    #: A worker: a job is claimed; no process has been told of it.
    JOB_CLAIMED = "job-claimed"
    #: A worker: the store records a run that the job has begun.
    JOB_RUN_NOTED = "job-run-noted"
    #: A worker: its job has ended, which the store does not record yet.
    JOB_ENDING = "job-ending"
    #: A worker: the store records how its job ended.
    JOB_ENDED = "job-ended"
    #: The process of a job: it was asked to wind down, and its tasks are not told yet.
    JOB_WINDING_DOWN = "job-winding-down"
    #: The process of a job: the verb has returned, and the worker is not told yet.
    JOB_RETURNED = "job-returned"
    #: The process of a job: the worker is told how the job ended.
    JOB_REPORTED = "job-reported"
    #: A budget: an attempt has reserved some of it, and spent nothing.
    BUDGET_RESERVED = "budget-reserved"
    #: The scheduler: jobs whose lease ran out are freed.
    JOBS_FREED = "jobs-freed"
    #: The scheduler: what a source has found is registered.
    TABLES_FOUND = "tables-found"
    #: The scheduler: a job is queued; that the table was looked at is not recorded yet.
    JOB_ENQUEUED = "job-enqueued"
    #: The scheduler: it is recorded that a table was looked at.
    TABLE_LOOKED_AT = "table-looked-at"


_listener: Callable[[Step], None] | None = None


def reached(step: Step) -> None:
    """Report that the operation has reached `step`."""
    if _listener is not None:
        _listener(step)


def listen(listener: Callable[[Step], None] | None) -> None:
    """Call `listener` at every step from now on; None removes the listener."""
    global _listener  # noqa: PLW0603  one process, one listener, used by fault tests only
    _listener = listener
