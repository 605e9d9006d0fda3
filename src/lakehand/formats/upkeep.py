"""What a format does for its own history: clean it, and go back in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.model.purging import OldValues
    from lakehand.model.repair import Consent, FileRepair, LogRepair
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.upkeep import KeepWishes, LogCleanup
    from lakehand.model.verification import Finding, LogCheck
    from lakehand.model.work import Change, DataFile

__all__ = ["FormatUpkeep"]


class FormatUpkeep(Protocol):
    """The part of a table that looks after its history."""

    #: What `repairing_change` can do.
    file_repairs: frozenset[FileRepair]

    def clean_logs(
        self, wishes: KeepWishes, *, even_if_disabled: bool = False, dry_run: bool = False
    ) -> LogCleanup | None:
        """Delete history that the table no longer asks for; None if the format keeps none apart."""
        ...

    def free_history_of_old_values(self) -> bool:
        """Make it possible to delete what the history holds beyond the newest version, in time.

        Writes a checkpoint, or a version without changes, where one is needed; says whether it did.
        """
        ...

    def old_values(self, wishes: KeepWishes) -> OldValues:
        """Say what the history holds beyond the newest version, and until when."""
        ...

    def restoring_change(self, snapshot: Snapshot, wanted: Snapshot) -> Change:
        """Return the change that gives the table of `snapshot` the content of `wanted` again."""
        ...

    def check_log(self) -> LogCheck:
        """Say what is wrong with the history; also where the table cannot be opened by it."""
        ...

    def check_entries(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        """Say what is wrong with the table of files itself, without looking at the files."""
        ...

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        """Return the change that does `repair` to the entries of `files`, or refuse."""
        ...

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        """Set right what is wrong with the history, as far as nothing is lost by it.

        `accept_data_loss` goes back to the newest version that can be read, and gives up history
        that cannot be. Nothing is deleted for good: what leaves the history is set aside.
        """
        ...

    def hold_dropped_columns(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each file whether it still holds columns that the table has dropped."""
        ...

    def update_indices(self, *, since: Snapshot | None = None) -> tuple[str, ...]:
        """Bring indices up to date with rows that came after them, and return their names.

        With `since` only those that knew rows of that version whose files are gone.

        Empty where there is nothing to do, as in formats without indices. Raises a LakehandError,
        after which searches find what they found before.
        """
        ...

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        """Return what `files` need to be read and storage does not have, by path."""
        ...
