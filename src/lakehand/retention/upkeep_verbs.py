"""The verbs of a table that look after its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call
from lakehand.model.moments import one_moment

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from lakehand.formats.base import FormatTable
    from lakehand.model.upkeep import LogCleanupReport, RestoreReport
    from lakehand.settings import Settings

__all__ = ["UpkeepVerbs"]


class UpkeepVerbs:
    """What a table can do about its history."""

    _handle: FormatTable
    _settings: Settings

    def orphans(self, **settings: Any) -> pa.Table:
        """Return the files in the table's root that no version within the retention needs.

        The columns are `path`, `bytes`, `modified_at`, `age_seconds` and `is_due`: old enough for
        `vacuum`. A young orphan may be on its way into the table. Keywords are settings, for this
        call only.
        """
        from lakehand.retention.orphans import list_orphans

        handle, chosen = for_call(self._handle, self._settings, settings)
        return list_orphans(handle, settings=chosen)

    def clean_logs(
        self,
        *,
        dry_run: bool = False,
        keep_versions: int = 0,
        keep_checkpoints: int = 0,
        even_if_disabled: bool = False,
    ) -> LogCleanupReport:
        """Delete history that is older than the table's log retention.

        What goes lies below a checkpoint that was read and compared first, so every version from
        there on stays readable; pinned versions do, too. `keep_versions` and `keep_checkpoints`
        keep more than the retention does, never less. A table that forbids the cleaning of its log
        is left alone, unless `even_if_disabled`.
        """
        from lakehand.retention.log_upkeep import clean_logs

        return clean_logs(
            self._handle,
            dry_run=dry_run,
            keep_versions=keep_versions,
            keep_checkpoints=keep_checkpoints,
            even_if_disabled=even_if_disabled,
        )

    def restore(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        accept_missing: bool = False,
        dry_run: bool = False,
    ) -> RestoreReport:
        """Give the table the content of an earlier version again, in a commit of its own.

        Columns and properties come back as well; versions in between stay in the history. Any
        commit of somebody else meanwhile fails it. Files of that version that storage no longer
        has are a RefusedError, unless `accept_missing`.
        """
        from lakehand.retention.restoring import restore

        return restore(
            self._handle,
            version=version,
            timestamp=one_moment(version, timestamp),
            accept_missing=accept_missing,
            dry_run=dry_run,
        )
