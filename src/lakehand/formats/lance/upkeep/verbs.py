"""What a Lance table does for its own history: check it, and go back in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import RefusedError
from lakehand.formats.lance.files.dropped_columns import hold_dropped_columns
from lakehand.formats.lance.log.snapshot import version_times
from lakehand.formats.lance.retention.old_values import (
    add_version_after_predicate,
    find_old_values,
)
from lakehand.formats.lance.upkeep.indices import update_indices
from lakehand.formats.lance.upkeep.log_findings import check_log
from lakehand.formats.lance.upkeep.log_repair import repair_log
from lakehand.formats.lance.upkeep.restoring import missing_files, restoring_change
from lakehand.model.upkeep import LogCleanup
from lakehand.model.work import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.model.purging import OldValues
    from lakehand.model.repair import Consent, FileRepair, LogRepair
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.upkeep import KeepWishes
    from lakehand.model.verification import Finding, LogCheck
    from lakehand.model.work import DataFile
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = ["LanceUpkeep"]


class LanceUpkeep:
    """The part of a Lance table that looks after its versions."""

    store: Store
    _settings: Settings
    file_repairs: frozenset[FileRepair] = frozenset({"drop_files"})

    def clean_logs(
        self,
        wishes: KeepWishes,  # noqa: ARG002  vacuum takes manifests with it
        *,
        even_if_disabled: bool = False,  # noqa: ARG002
        dry_run: bool = False,  # noqa: ARG002
    ) -> LogCleanup:
        """Delete nothing: manifests go with the files of their versions, by vacuum."""
        times = version_times(self.store)
        oldest = min(times)
        return LogCleanup(
            version=max(times),
            oldest_version=oldest,
            cutoff=times[oldest],
            reason="vacuum deletes versions of Lance tables together with their files",
        )

    def free_history_of_old_values(self) -> bool:
        attempts = self._settings["commit_attempts"]
        return add_version_after_predicate(self.store, attempts=attempts)

    def old_values(self, wishes: KeepWishes) -> OldValues:  # noqa: ARG002  vacuum hears pins
        return find_old_values(self.store)

    def restoring_change(self, snapshot: Snapshot, wanted: Snapshot) -> Change:
        return restoring_change(snapshot, wanted)

    def check_log(self) -> LogCheck:
        return check_log(self.store)

    def check_entries(self, snapshot: Snapshot) -> tuple[Finding, ...]:  # noqa: ARG002
        """Return nothing: Lance opens no manifest that names a fragment twice."""
        return ()

    def repairing_change(
        self, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
    ) -> Change:
        """Drop fragments that are lost; there is nothing else that could be said of one."""
        if repair != "drop_files":
            message = f"{repair} is not for {self.store.url}: it is a Lance table"
            raise RefusedError(message, table=self.store.url, operation="repair")
        return Change(
            kind="delete",
            base_version=snapshot.version,
            table_id=snapshot.table_id,
            operation="REPAIR",
            parameters={"repair": repair, "files": len(files)},
            removes=tuple(files),
        )

    def repair_log(self, consent: Consent, *, dry_run: bool = False) -> LogRepair:
        loses = consent.accept_data_loss
        return repair_log(self.store, accept_data_loss=loses, dry_run=dry_run)

    def hold_dropped_columns(self, snapshot: Snapshot) -> pa.BooleanArray:
        """Say of each fragment whether it still holds columns that the table has dropped."""
        return hold_dropped_columns(self.store, snapshot)

    def update_indices(self, *, since: Snapshot | None = None) -> tuple[str, ...]:
        return update_indices(self.store, since=None if since is None else since.native)

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        return missing_files(self.store, files)
