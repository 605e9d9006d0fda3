"""The verb of a table that does whatever is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakehand.formats.base import FormatTable
    from lakehand.model.maintenance import MaintenanceReport
    from lakehand.observe import OnProgress
    from lakehand.settings import Settings

__all__ = ["MaintenanceVerbs"]


class MaintenanceVerbs:
    """What a table can do about all that it needs."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def maintain(
        self,
        *,
        skip: Collection[str] = (),
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> MaintenanceReport:
        """Do whatever is due, in one call: for schedules.

        The steps are `compact` (or `cluster`, where the table has an order), `vacuum`,
        `checkpoint` and `clean_logs`; `skip` names those that are not wanted. They are taken as
        automatic runs: partitions that are being written to are left alone. A step that fails is
        reported, and the others are taken all the same. Further keywords are settings, for this
        call only.
        """
        from lakehand.due.maintain import maintain

        handle, chosen = for_call(self._handle, self._settings, settings)
        return maintain(
            handle,
            settings=chosen,
            skip=skip,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )
