"""What a Delta table does for its own history: clean it, check it, repair it, go back in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakehand.formats.delta.upkeep.cleanup import clean_logs
from lakehand.formats.delta.upkeep.entry_check import unreadable_statistics
from lakehand.formats.delta.upkeep.file_check import duplicate_files
from lakehand.formats.delta.upkeep.file_repairs import FILE_REPAIRS, Means, repairing_change
from lakehand.formats.delta.upkeep.log_findings import check_log
from lakehand.formats.delta.upkeep.log_repair import repair_log
from lakehand.formats.delta.upkeep.missing import missing_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.worker import FormatWorker
    from lakehand.model.head import TableHead
    from lakehand.model.repair import Consent, FileRepair, LogRepair
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.upkeep import KeepWishes, LogCleanup
    from lakehand.model.verification import Finding, LogCheck
    from lakehand.model.work import Change, DataFile
    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

__all__ = ["DeltaUpkeep"]


class DeltaUpkeep(ABC):
    """The part of a Delta table that looks after its log."""

    store: Store
    _clock: Clock
    file_repairs = FILE_REPAIRS

    @abstractmethod
    def worker(self, snapshot: Snapshot | TableHead) -> FormatWorker: ...

    def clean_logs(
        self, wishes: KeepWishes, *, even_if_disabled: bool = False, dry_run: bool = False
    ) -> LogCleanup:
        return clean_logs(
            self.store,
            now=self._clock.now(),
            wishes=wishes,
            even_if_disabled=even_if_disabled,
            dry_run=dry_run,
        )

    def check_log(self) -> LogCheck:
        return check_log(self.store, now=self._clock.now())

    def check_entries(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        url, version = self.store.url, snapshot.version
        return (
            *duplicate_files(snapshot.files, table=url, version=version),
            *unreadable_statistics(snapshot.native),
        )

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        return repair_log(self.store, consent, clock=self._clock, dry_run=dry_run)

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        means = Means(self.store, self.worker(snapshot))
        return repairing_change(means, snapshot, repair, files)

    def update_indices(self, *, since: Snapshot | None = None) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: there are no indices."""
        return ()

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        return missing_files(self.store, files)
