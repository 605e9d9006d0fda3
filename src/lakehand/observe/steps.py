"""The points at which a crash would hurt most, by name.

Code that writes calls `reached` at each of them. Nothing listens in production; the fault tests
listen and kill the process there, and one test fails when a step has no kill test.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Step(StrEnum):
    """A point between two writes."""

    #: A commit: nothing was put yet.
    COMMIT_PREPARED = "commit-prepared"
    #: A commit: the version was put, its answer not yet looked at.
    COMMIT_PUT = "commit-put"
    #: A commit: the version was read back and is ours.
    COMMIT_CONFIRMED = "commit-confirmed"
    #: A checkpoint: its sidecars are written, its top file is not.
    CHECKPOINT_SIDECARS = "checkpoint-sidecars"
    #: A checkpoint: its top file is written, the pointer to it is not.
    CHECKPOINT_WRITTEN = "checkpoint-written"
    #: A checkpoint: the pointer to it is written.
    CHECKPOINT_POINTED = "checkpoint-pointed"
    #: A cleanup of the log: a part of what goes is gone.
    LOG_STRETCH_DELETED = "log-stretch-deleted"
    #: A repair of the log: what leaves it is copied, and still in its place.
    REPAIR_COPIED = "repair-copied"
    #: A repair of the log: a part of the versions that go is gone.
    REPAIR_FORGETTING = "repair-forgetting"
    #: A repair of the log: what misleads readers is gone, and nothing took its place yet.
    REPAIR_SET_ASIDE = "repair-set-aside"
    #: A run: its ledger exists.
    RUN_STARTED = "run-started"
    #: A task: its names are reserved, no byte of them written.
    TASK_RESERVED = "task-reserved"
    #: A run: it has taken over a dead one, and adopted nothing of it yet.
    RUN_TOOK_OVER = "run-took-over"
    #: A run: it has adopted what fits of a dead one, whose ledger is still there.
    RUN_ADOPTED = "run-adopted"
    #: A task: its files are written and not proved.
    TASK_WRITTEN = "task-written"
    #: A task: its files are proved, its result is not recorded.
    TASK_PROVED = "task-proved"
    #: A task: its result is in the ledger.
    TASK_RECORDED = "task-recorded"
    #: An upsert: its new rows are written and not proved.
    ROWS_ARRIVED = "rows-arrived"
    #: A run: its fate says that it commits; nothing was put yet.
    RUN_COMMITTING = "run-committing"
    #: A run: its commit landed, which its ledger does not say yet.
    RUN_COMMITTED = "run-committed"
    #: A run: its ledger says what came of its commit; there may be more to do.
    RUN_SETTLED = "run-settled"
    #: A run: it has declared that it commits nothing more; what it staged is still there.
    RUN_CLOSED = "run-closed"
    #: A run: what it staged and did not commit is deleted; its ledger is still there.
    RUN_CLEANED = "run-cleaned"
    #: Vacuum: the list of files to set aside is written, its manifest is not.
    QUARANTINE_LISTED = "quarantine-listed"
    #: Vacuum: the manifest is written, so the files are set aside.
    QUARANTINE_STARTED = "quarantine-started"
    #: Vacuum: it is decided whether a quarantine is swept or undone; neither has begun.
    QUARANTINE_DECIDED = "quarantine-decided"
    #: Vacuum: the manifest of a quarantine is gone, its list is not.
    QUARANTINE_DROPPED = "quarantine-dropped"
    #: Vacuum: the history says that files will be deleted; none is yet.
    VACUUM_ANNOUNCED = "vacuum-announced"
    #: Vacuum: some files are deleted.
    VACUUM_DELETING = "vacuum-deleting"
    #: Vacuum: all files are deleted; quarantines and history do not say so yet.
    VACUUM_DELETED = "vacuum-deleted"
    #: A sink: some rows of an epoch are on their way into files.
    SINK_WRITING = "sink-writing"
    #: A sink: all rows of an epoch are in files; no commit was tried.
    SINK_STAGED = "sink-staged"
    #: A sink: an epoch is in the table, which its caller does not know yet.
    SINK_COMMITTED = "sink-committed"
    #: A hot table: changes are in its log, which their callers do not know yet.
    HOT_LOGGED = "hot-logged"
    #: A hot table: changes go to the next epoch from now on; nothing of this one is written.
    HOT_FROZEN = "hot-frozen"
    #: A hot table: an epoch is in the cold table, and still in memory and in the log.
    HOT_FLUSHED = "hot-flushed"
    #: A hot table: a part of what an epoch had in the log is gone.
    HOT_DROPPING = "hot-dropping"


_listener: Callable[[Step], None] | None = None


def reached(step: Step) -> None:
    """Say that the work has come to `step`."""
    if _listener is not None:
        _listener(step)


def listen(listener: Callable[[Step], None] | None) -> None:
    """Call `listener` at every step from now on; None stops listening."""
    global _listener  # noqa: PLW0603  one process, one listener, used by fault tests only
    _listener = listener
