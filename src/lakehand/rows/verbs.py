"""The verbs of a table that take single rows out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.row_reports import DeduplicationReport, DeletionReport
    from lakehand.observe import OnProgress
    from lakehand.rows.sameness import Keep
    from lakehand.settings import Settings

__all__ = ["RowVerbs"]


class RowVerbs:
    """What a table can do about single rows."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def delete(
        self,
        *,
        where: str,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> DeletionReport:
        """Delete the rows for which `where`, a condition in SQL, is true.

        A row for which it is null stays. Where the table has rows hidden rather than files written
        anew, files stay as they are. Further keywords are settings, for this call only.
        """
        from lakehand.rows.delete import delete

        handle, chosen = for_call(self._handle, self._settings, settings)
        return delete(
            handle,
            settings=chosen,
            where=where,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def deduplicate(
        self,
        *,
        key: Sequence[str] | None = None,
        exact: bool = False,
        keep: Keep = "first",
        order_by: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> DeduplicationReport:
        """Keep one of several rows with equal `key`, or, with `exact`, of equal rows.

        `keep` says which: the `first` or `last` that came into the table, or the `latest` by
        `order_by`, where a null never wins over a value. Nulls equal each other. Further keywords
        are settings, for this call only.
        """
        from lakehand.rows.deduplicate import DuplicateRequest, deduplicate

        handle, chosen = for_call(self._handle, self._settings, settings)
        return deduplicate(
            handle,
            settings=chosen,
            request=DuplicateRequest(key=key, exact=exact, keep=keep, order_by=order_by),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )
