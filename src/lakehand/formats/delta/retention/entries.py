"""The entries that delta-spark writes into a table's history around every vacuum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.model.work import Change

if TYPE_CHECKING:
    from datetime import timedelta

    from lakehand.model.retention import Deletion, DeletionOutcome
    from lakehand.storage import Store

__all__ = ["ending", "is_wanted", "start"]

#: delta-spark leaves them out where a commit is not atomic without help.
_WITHOUT_ENTRIES = ("s3://", "r2://", "memory://")


def is_wanted(setting: str, store: Store) -> bool:
    """Say whether entries are written, given what the user wants."""
    return setting == "always" or (setting == "auto" and not store.url.startswith(_WITHOUT_ENTRIES))


def start(deletion: Deletion, *, table_retention: timedelta) -> Change:
    """Return the entry that says what is about to be deleted."""
    asked = deletion.asked_retention
    return Change(
        kind="metadata",
        base_version=deletion.version,
        operation="VACUUM START",
        parameters={
            "retentionCheckEnabled": not deletion.allows_short_retention,
            "defaultRetentionMillis": _milliseconds(table_retention),
            "specifiedRetentionMillis": None if asked is None else _milliseconds(asked),
        },
        metrics={"numFilesToDelete": deletion.files, "sizeOfDataToDelete": deletion.bytes},
    )


def ending(deletion: Deletion, outcome: DeletionOutcome) -> Change:
    """Return the entry that says what was deleted."""
    return Change(
        kind="metadata",
        base_version=deletion.version,
        operation="VACUUM END",
        parameters={"status": "COMPLETED" if outcome.is_complete else "FAILED"},
        metrics={
            "numDeletedFiles": outcome.files,
            "numVacuumedDirectories": outcome.directories,
        },
    )


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
