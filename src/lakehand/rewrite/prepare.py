"""From a table and a request to the work: which files are rewritten, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ReplanError, ValidationError, VersionNotFoundError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import (
    SupportsByteCopy,
    SupportsClustering,
    SupportsNativeRewrite,
    SupportsRowChanges,
    clustering_columns,
    read_verdicts,
)
from lakehand.formats.scan import columns_with_bounds, with_bounds
from lakehand.formats.worker import WriteSpec
from lakehand.model.order import CURVE_SYNONYMS, Curve, Order, order_of, parse_terms
from lakehand.model.quantities import format_count
from lakehand.model.work import Group
from lakehand.observe.clock import Clock, SystemClock
from lakehand.planning.clustering_plan import ClusteringRequest, plan_clustering
from lakehand.planning.compaction import Planning, paths_to_survey, plan_compaction
from lakehand.planning.plan import Plan, locate_inputs
from lakehand.planning.policy import CompactionPolicy, Reason, small_file_ratio
from lakehand.planning.restriction import QuietRule, files_outside_filter, files_outside_predicate
from lakehand.runs import Adopted, LivingRun, living_runs
from lakehand.sorting.ordering import order_keys, resolve_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from lakehand.expressions.predicate import Predicate
    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.footer_survey import Flags
    from lakehand.planning.restriction import FileFilter
    from lakehand.settings import Settings


def rivals_at_work(
    table: FormatTable, settings: Settings, clock: Clock, *, but: str | None = None
) -> tuple[LivingRun, ...]:
    """Return the other runs that are rewriting files of the table at this moment."""
    after = settings.takeover_after
    living = living_runs(table.store, clock=clock, takeover_after=after, but=but)
    return tuple(run for run in living if run.inputs)


def flags_of(snapshot: Snapshot, paths: Collection[str]) -> Flags:
    """Say of each file whether it is one of `paths`."""
    found = pa.array(list(paths), pa.string())
    mask = pc.is_in(snapshot.files["path"].combine_chunks(), value_set=found)
    flags: Flags = mask.to_numpy(zero_copy_only=False)
    return flags


def runs_in(snapshot: Snapshot, rivals: Iterable[LivingRun]) -> tuple[str, ...]:
    """Return those of `rivals` that are rewriting files of the snapshot."""
    return tuple(run.id for run in rivals if flags_of(snapshot, run.inputs).any())


def require_free(plan: Plan, rivals: Iterable[LivingRun]) -> None:
    """Raise ReplanError if a run that is at work is rewriting files of the plan."""
    paths = set(plan.paths)
    for run in rivals:
        if not paths.isdisjoint(run.inputs):
            count = format_count(len(paths & run.inputs), "file")
            raise ReplanError(
                f"{count} of the plan of version {plan.version} of {plan.table} being rewritten by"
                f" run {run.id}",
                table=plan.table,
                expected_version=plan.version,
                hint="nothing was written; plan again when that run has ended",
            )


def settings_of_plan(plan: Plan, settings: Settings) -> Settings:
    """Return `settings` with those that the plan was made with; ValidationError if they differ."""
    planned = plan.policy.to_json()
    for name, value in planned.items():
        if settings.sources[name] == "call" and settings[name] != value:
            raise ValidationError(
                f"the plan was made with {name} {value}, and cannot be carried out with "
                f"{settings[name]}",
                field=name,
                value=settings[name],
                hint="plan again with the other value, or leave it out",
            )
    return settings.with_call(planned)


def require_current(plan: Plan, table: FormatTable, snapshot: Snapshot) -> None:
    """Raise ReplanError unless the plan fits `snapshot`, the newest version of the table."""
    if plan.table_id != snapshot.table_id:
        raise _replan(plan, snapshot, "it is for another table, or the table was recreated")
    if plan.version > snapshot.version:
        raise _replan(plan, snapshot, "the table has gone back to an earlier version")
    if plan.version < snapshot.version:
        _require_same_files(plan, table, snapshot)


def _require_same_files(plan: Plan, table: FormatTable, snapshot: Snapshot) -> None:
    try:
        difference = table.diff(plan.version, snapshot.version)
    except VersionNotFoundError as error:
        reason = "the log of its version is gone, so what happened since cannot be told"
        raise _replan(plan, snapshot, reason) from error
    if difference.schema_changed:
        raise _replan(plan, snapshot, "the columns of the table have changed since")
    paths = pa.array(plan.paths, pa.string())
    changed = paths.filter(pc.is_in(paths, difference.removed["path"].combine_chunks()))
    if len(changed):
        count = format_count(len(changed), "file")
        was = "was" if len(changed) == 1 else "were"
        reason = f"{count} of it {was} removed or changed since, for example {changed[0].as_py()}"
        raise _replan(plan, snapshot, reason)


def _replan(plan: Plan, snapshot: Snapshot, reason: str) -> ReplanError:
    return ReplanError(
        f"the plan of version {plan.version} does not fit {snapshot.table}: {reason}",
        table=snapshot.table,
        expected_version=plan.version,
        actual_version=snapshot.version,
        hint="plan again; nothing was written",
    )


if TYPE_CHECKING:
    OnSurvey = Callable[[FormatTable, Snapshot, Settings, Sequence[str]], None]

RewriteOperation = Literal["compact", "cluster"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a call asks for in addition to its settings. Default: all that is worth rewriting."""

    #: Only files whose rows all fulfil this condition.
    where: str | None = None
    #: Only files for which this function over the table of files says so.
    file_filter: FileFilter | None = None
    #: Made earlier, to be carried out unchanged.
    plan: Plan | None = None
    #: The run was started by a schedule.
    automatic: bool = False
    operation: RewriteOperation = "compact"
    #: Columns to sort by, e.g. "a DESC, b" or ("a DESC", "b"); to cluster by none means by the
    #: table's clustering columns.
    by: str | Sequence[str] = ()
    curve: Curve = "linear"
    #: All files are clustered, also those that are clustered already.
    full: bool = False
    #: The commit must not hold values of the files that are replaced.
    erases: bool = False
    #: Compute the statistics of the files that are left, where they have none.
    recompute_statistics: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "curve", CURVE_SYNONYMS.get(self.curve, self.curve))


def plan_request(
    operation: RewriteOperation | None, *, by: str | Sequence[str], full: bool, **others: Any
) -> Request:
    """Return what is asked for: to cluster where columns or all files are named, else to compact.

    ValidationError if an order is named for a compaction.
    """
    wish = operation or ("cluster" if by or full else "compact")
    if wish == "cluster":
        return Request(operation=wish, by=by, full=full, **others)
    if by or full:
        field = "by" if by else "full"
        message = f"{field} says what to cluster, and the plan is for compact"
        raise ValidationError(message, field=field, hint="plan with operation=cluster")
    return Request(**{**others, "curve": "linear"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A plan, what it was made from, and its groups once they are prepared."""

    table: FormatTable
    request: Request
    snapshot: Snapshot
    #: The settings in force: those of the call, and the table's own below them.
    settings: Settings
    plan: Plan
    #: The reason of every file, in the order of the snapshot's; None for a plan made earlier.
    reasons: pa.DictionaryArray | None
    #: What is sent to tasks; none before `prepare`.
    groups: tuple[Group, ...] = ()
    #: What a run that died has rewritten already; its files are in none of the groups.
    adopted: tuple[Adopted, ...] = ()

    @property
    def read_bytes(self) -> int:
        """What tasks decode."""
        return sum(group.input_bytes for group in self.groups) - self.moved_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes that they copy."""
        return sum(group.moved_bytes for group in self.groups)


def make_plan(
    table: FormatTable,
    settings: Settings,
    request: Request,
    *,
    clock: Clock | None = None,
    snapshot: Snapshot | None = None,
    on_survey: OnSurvey | None = None,
) -> Work:
    """Choose what to rewrite in the newest version, which may be given. Writes nothing.

    `on_survey` is told which files may be rewritten, before their footers are read.
    """
    snapshot = snapshot or table.snapshot()
    table.require("rewrite", snapshot)
    clock = clock or SystemClock()
    rivals = rivals_at_work(table, settings.with_properties(snapshot.properties), clock)
    if request.plan is None:
        planner = _Planner(table, settings, request, clock, rivals=rivals, on_survey=on_survey)
        return planner.plan(snapshot)
    require_free(request.plan, rivals)
    return _take_stored(request.plan, table, settings, request, snapshot)


def _take_stored(
    plan: Plan, table: FormatTable, settings: Settings, request: Request, snapshot: Snapshot
) -> Work:
    if request.where is not None or request.file_filter is not None:
        field = "where" if request.where is not None else "file_filter"
        message = f"a plan names its files: {field} has nothing to choose from"
        raise ValidationError(message, field=field, hint=f"give {field} when you plan")
    if plan.operation != request.operation:
        raise ValidationError(
            f"this is a plan for `{plan.operation}`, not for `{request.operation}`",
            field="plan",
            hint=f"carry it out with `{plan.operation}`",
        )
    if plan.order:
        require_support(table, SupportsClustering, operation=plan.operation)
    if plan.operation == "cluster":
        columns = order_of(plan.order, plan.curve or "linear").columns
        snapshot = table.snapshot(version=snapshot.version, statistics=columns)
    chosen = settings_of_plan(plan, settings).with_properties(snapshot.properties)
    require_current(plan, table, snapshot)
    return Work(
        table=table,
        request=replace(request, by=plan.order, curve=plan.curve or "linear"),
        snapshot=snapshot,
        settings=chosen,
        plan=plan,
        reasons=None,
    )


def plan_again(
    work: Work, *, without: Collection[str], rivals: Sequence[LivingRun], clock: Clock
) -> Work:
    """Plan on the same snapshot, leaving out files that are rewritten already, or by `rivals`."""
    planner = _Planner(work.table, work.settings, work.request, clock, tuple(without), rivals)
    return planner.plan(work.snapshot)


def prepare(work: Work) -> Work:
    """Turn the files of a plan into groups, values that can be sent to tasks."""
    plan, table = work.plan, work.table
    rows = locate_inputs(plan, work.snapshot.files)
    # One look into the log for all groups: it costs the same for one file as for all of them.
    positions = [int(row) for group in rows for row in group]
    files = iter(table.data_files(work.snapshot, positions))
    groups = (
        Group(
            id=group.id,
            inputs=tuple(islice(files, len(group.paths))),
            method=group.method,
            recoded=group.recoded,
            reason=group.reason,
            target_file_bytes=group.target_file_bytes,
            order=plan.order,
            curve=plan.curve or "linear",
        )
        for group in plan.groups
    )
    return replace(work, groups=_with_native(work, tuple(groups)))


def _with_native(work: Work, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Note how the format itself rewrites each group, if it does."""
    table = work.table
    if not isinstance(table, SupportsNativeRewrite):
        return groups
    return tuple(
        replace(group, native=table.native_group(work.snapshot, group)) for group in groups
    )


@dataclass(frozen=True, slots=True)
class _Planner:
    """Asks the table for what the planner needs, and for no more."""

    table: FormatTable
    settings: Settings
    request: Request
    clock: Clock
    #: Files that are rewritten already.
    without: Collection[str] = ()
    #: Runs that are rewriting files of the table.
    rivals: Sequence[LivingRun] = ()
    on_survey: OnSurvey | None = None

    def plan(self, snapshot: Snapshot) -> Work:
        settings = self.settings.with_properties(snapshot.properties)
        policy = CompactionPolicy.from_settings(settings, automatic=self.request.automatic)
        predicate = self._predicate(snapshot)
        order = self._order(snapshot)
        if self.request.operation == "cluster" and order is not None:
            snapshot = self._with_bounds(snapshot, predicate, order.columns)
            planning = self._cluster(snapshot, predicate, settings, policy, order)
        else:
            declared = clustering_columns(self.table, snapshot)
            snapshot = self._with_bounds(snapshot, predicate, declared)
            planning = self._compact(snapshot, predicate, settings, policy, declared)
        plan = replace(
            planning.plan,
            operation=self.request.operation,
            where=predicate.text if predicate else None,
            order=order.texts if order else (),
            curve=order.curve if order else None,
            left_to_runs=runs_in(snapshot, self.rivals),
        )
        return Work(
            table=self.table,
            request=self.request,
            snapshot=snapshot,
            settings=settings,
            plan=plan,
            reasons=planning.reasons,
        )

    def _order(self, snapshot: Snapshot) -> Order | None:
        """Return the sort order of rows; None: they keep their order."""
        operation, wish = self.request.operation, self.request.by
        if operation == "compact" and not wish:
            return None
        require_support(self.table, SupportsClustering, operation=operation)
        if not wish:
            wish = clustering_columns(self.table, snapshot)
            if not wish:
                raise ValidationError(
                    f"{snapshot.table} declares no columns to be clustered by",
                    field="by",
                    hint="name them: --by a,b",
                )
        self.table.require("order", snapshot)
        return resolve_order(
            parse_terms(wish),
            self.request.curve,
            snapshot.schema,
            partition_columns=snapshot.partition_columns,
        )

    def _cluster(
        self,
        snapshot: Snapshot,
        predicate: Predicate | None,
        settings: Settings,
        policy: CompactionPolicy,
        order: Order,
    ) -> Planning:
        table = require_support(self.table, SupportsClustering, operation="cluster")
        keys = table.partition_keys(snapshot, keeps_order=False)
        is_patient = self.request.automatic
        return plan_clustering(
            snapshot,
            keys,
            policy,
            ClusteringRequest(
                columns=order.columns,
                full=self.request.full,
                min_new_files=policy.min_files if is_patient else 1,
            ),
            marks=table.order_marks(snapshot, order),
            exclusions=self._exclusions(snapshot, predicate, keys, settings),
        )

    def _compact(
        self,
        snapshot: Snapshot,
        predicate: Predicate | None,
        settings: Settings,
        policy: CompactionPolicy,
        declared: tuple[str, ...],
    ) -> Planning:
        keys = self.table.partition_keys(snapshot)
        exclusions = self._exclusions(snapshot, predicate, keys, settings)
        return plan_compaction(
            snapshot,
            keys,
            policy,
            survey=self._survey(snapshot, keys, settings, policy, exclusions),
            order_keys=order_keys(snapshot, declared),
            exclusions=exclusions,
            sorts=bool(self.request.by),
        )

    def _survey(
        self,
        snapshot: Snapshot,
        keys: pa.Array,
        settings: Settings,
        policy: CompactionPolicy,
        exclusions: dict[Reason, Flags],
    ) -> pa.Table | None:
        """Read footers of files whose row groups may be worth copying."""
        table = self.table
        if not isinstance(table, SupportsByteCopy):
            return None
        limit = settings.max_surveyed_files
        paths = paths_to_survey(snapshot, keys, policy, limit=limit, exclusions=exclusions)
        if not paths:
            return None
        if self.on_survey is not None and not self.request.by:
            self.on_survey(table, snapshot, settings, paths)
        return table.survey(snapshot, paths, WriteSpec.of_tasks(settings))

    def _predicate(self, snapshot: Snapshot) -> Predicate | None:
        if self.request.where is None:
            return None
        from lakehand.expressions.predicate import parse_predicate  # SQL takes long to import

        return parse_predicate(self.request.where, snapshot.schema, clock=self.clock)

    def _with_bounds(
        self, snapshot: Snapshot, predicate: Predicate | None, order: tuple[str, ...]
    ) -> Snapshot:
        """Return the same version with the bounds that are needed: most tables need none."""
        names = columns_with_bounds(predicate, snapshot) if predicate else []
        wanted = list(dict.fromkeys([*names, *order]))
        return with_bounds(self.table, snapshot, wanted)

    def _exclusions(
        self, snapshot: Snapshot, predicate: Predicate | None, keys: pa.Array, settings: Settings
    ) -> dict[Reason, Flags]:
        masks: dict[Reason, Flags] = {}
        if self.without:
            masks[Reason.ADOPTED] = flags_of(snapshot, self.without)
        if self.rivals:
            taken = {path for run in self.rivals for path in run.inputs}
            masks[Reason.BEING_REWRITTEN] = flags_of(snapshot, taken)
        if predicate is not None:
            masks[Reason.OUTSIDE_PREDICATE] = files_outside_predicate(
                predicate, snapshot.files, verdicts=read_verdicts(self.table, snapshot, predicate)
            )
        if self.request.file_filter is not None:
            mask = files_outside_filter(self.request.file_filter, snapshot.files)
            masks[Reason.OUTSIDE_FILTER] = mask
        return masks | self._caution(snapshot, keys, settings)

    def _caution(
        self, snapshot: Snapshot, keys: pa.Array, settings: Settings
    ) -> dict[Reason, Flags]:
        """Return which files a run that was started by a schedule leaves alone."""
        masks: dict[Reason, Flags] = {}
        if self.request.automatic and not settings.auto_compact:
            masks[Reason.DISABLED] = np.ones(snapshot.file_count, np.bool_)
        # A call by hand does the work now, unless it says otherwise.
        if self.request.automatic or settings.sources["quiet_period"] == "call":
            rule = self._quiet_rule(snapshot, settings)
            masks[Reason.RECENTLY_WRITTEN] = rule.left_alone(snapshot.files, keys)
        return masks

    def _quiet_rule(self, snapshot: Snapshot, settings: Settings) -> QuietRule:
        now, quiet = self.clock.now(), settings.quiet_period
        since, newest = now - quiet, pc.max(snapshot.files["modified_at"]).as_py()
        return QuietRule(
            written_after=since,
            waiting_since=now - max(settings.quiet_period_max, quiet),
            small_file_bytes=settings.target_file_bytes * small_file_ratio(settings),
            rows_change=bool(newest and newest > since) and self._rows_changed_since(since),
        )

    def _rows_changed_since(self, moment: datetime) -> bool:
        table = self.table
        # Where the format cannot tell, rows may have been changed.
        return not isinstance(table, SupportsRowChanges) or table.rows_changed_since(moment)
