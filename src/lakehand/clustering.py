"""The verb of a table that puts rows in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.order import Curve
    from lakehand.model.reports import ClusterReport
    from lakehand.observe import OnProgress
    from lakehand.planning.plan import Plan
    from lakehand.planning.restriction import FileFilter
    from lakehand.settings import Settings

__all__ = ["OrderingVerbs"]


class OrderingVerbs:
    """What a table can do about the order of its rows."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def cluster(  # noqa: PLR0913  the options of the command
        self,
        *,
        by: str | Sequence[str] = (),
        curve: Curve = "hilbert",
        full: bool = False,
        where: str | None = None,
        file_filter: FileFilter | None = None,
        plan: Plan | None = None,
        automatic: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> ClusterReport:
        """Put rows that are near each other in the columns `by` into the same files.

        Queries with conditions on these columns then skip the other files. Without `by` the
        columns are those that the table declares. Files in order are left alone unless too many lie
        over one another; `full` rewrites all. `curve` is `hilbert`, `zorder` or `linear`: the last
        sorts by one column after the other, and may be told `a DESC NULLS LAST`. The other
        arguments are those of `compact`. After a dry run the report says what is expected, tried
        on a sample of the rows.
        """
        from lakehand.maintain import cluster
        from lakehand.rewrite.prepare import Request

        return cluster(
            self._handle,
            settings=self._settings.with_call(settings),
            request=Request(
                operation="cluster",
                by=by,
                curve=curve,
                full=full,
                where=where,
                file_filter=file_filter,
                plan=plan,
                automatic=automatic,
            ),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )
