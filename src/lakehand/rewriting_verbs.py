"""The verbs of a table that rewrite its files, or what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.order import Curve
    from lakehand.model.purging import PurgeReport
    from lakehand.model.reports import ClusterReport, OperationReport, StatisticsReport
    from lakehand.observe import OnProgress
    from lakehand.planning.plan import Plan
    from lakehand.planning.restriction import FileFilter
    from lakehand.rewrite.prepare import Planned, Request, RewriteOperation
    from lakehand.settings import Settings

__all__ = ["RewritingVerbs"]


class RewritingVerbs:
    """What a table can do about its files."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def plan(
        self,
        *,
        operation: RewriteOperation | None = None,
        by: str | Sequence[str] = (),
        curve: Curve = "hilbert",
        full: bool = False,
        where: str | None = None,
        file_filter: FileFilter | None = None,
        automatic: bool = False,
        **settings: Any,
    ) -> Plan:
        """Say what `compact` would rewrite, why, and what it would cost. Writes nothing.

        With `by`, `full` or `operation="cluster"` it says that of `cluster`, and what queries would
        have of it. The arguments are those of the verb, which takes the plan as `plan=`, at once or
        later.
        """
        from lakehand.rewrite.prepare import plan_request

        request = plan_request(
            operation,
            by=by,
            curve=curve,
            full=full,
            where=where,
            file_filter=file_filter,
            automatic=automatic,
        )
        return self.planned(request, **settings).plan

    def planned(self, request: Request, **settings: Any) -> Planned:
        """Return a plan with the snapshot it was made from and the reason of every file."""
        from lakehand.rewrite.layout_forecast import forecast_layout
        from lakehand.rewrite.prepare import make_plan
        from lakehand.rewrite.rehearsal import rehearse

        handle, chosen = for_call(self._handle, self._settings, settings)
        planned = make_plan(handle, chosen, request)
        return forecast_layout(rehearse(planned))

    def compact(
        self,
        *,
        where: str | None = None,
        file_filter: FileFilter | None = None,
        plan: Plan | None = None,
        automatic: bool = False,
        sort_by: str | Sequence[str] = (),
        recompute_statistics: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> OperationReport:
        """Rewrite small files, and files with deleted rows, into files of the target size.

        Every group of files is proved to hold the same rows before anything is committed.

        `where` is a condition in SQL that metadata can decide for every file; `file_filter` is a
        function from the table of files to one boolean a file; `plan` is what `plan` returned,
        to be carried out as it is. `automatic` is for schedules: partitions that are being written
        to are left alone. `sort_by` puts the rows of every group in order, for example
        "a DESC, b". `recompute_statistics` then does what `statistics` does, in a commit of
        its own. Raising from `on_progress` stops the work; the table is then as it was. Further
        keywords are settings, for this call only.
        """
        from lakehand.maintain import compact, compact_and_refresh
        from lakehand.rewrite.prepare import Request

        verb = compact_and_refresh if recompute_statistics else compact
        handle, chosen = for_call(self._handle, self._settings, settings)
        return verb(
            handle,
            settings=chosen,
            request=Request(
                where=where,
                file_filter=file_filter,
                plan=plan,
                automatic=automatic,
                by=sort_by,
            ),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

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

        handle, chosen = for_call(self._handle, self._settings, settings)
        return cluster(
            handle,
            settings=chosen,
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

    def purge(
        self, *, dry_run: bool = False, on_progress: OnProgress | None = None, **settings: Any
    ) -> PurgeReport:
        """Remove deleted rows and dropped columns from the files, vacuum, and clean the log.

        For requests to erase. The report lists every place that still holds them, and until when:
        purge again at those times. Further keywords are settings, for this call only.
        """
        from lakehand.purge import purge

        handle, chosen = for_call(self._handle, self._settings, settings)
        return purge(
            handle,
            settings=chosen,
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def statistics(
        self,
        *,
        where: str | None = None,
        full: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> StatisticsReport:
        """Compute the statistics of files anew where they are missing or incomplete.

        No file is written: the table gets another entry for the same files, with which readers skip
        those that cannot hold what they look for. `full` does it for all files; `where` is a
        condition in SQL that metadata can decide for every file. Further keywords are settings, for
        this call only.
        """
        from lakehand.rewrite.statistics import StatisticsRequest, recompute_statistics

        handle, chosen = for_call(self._handle, self._settings, settings)
        return recompute_statistics(
            handle,
            settings=chosen,
            request=StatisticsRequest(where=where, full=full),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )
