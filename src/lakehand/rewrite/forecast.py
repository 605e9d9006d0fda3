"""What a plan will leave behind, estimated by rewriting a few of its files and sorting a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import LakehandError
from lakehand.expressions.column_facts import comparable_bounds
from lakehand.formats.worker import NotDecodable, SizeEstimateWorker, TaskLimits, WriteSpec
from lakehand.model.order import Order, order_of
from lakehand.planning.plan import LayoutForecast, Plan, PlannedGroup, locate_inputs
from lakehand.rewrite.report import measure_change
from lakehand.sorting.virtual_files import Sample, sample_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.planning.footer_survey import Rows
    from lakehand.rewrite.prepare import Work

#: A file takes a millisecond or more, however small it is.
_MOST_FILES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial:
    """A group that was rewritten, as far as the budget went."""

    group: int
    #: Part of the group's bytes that was rewritten.
    share: float
    #: Bytes that the plan expected of this part, and that it got.
    expected_bytes: float
    found_bytes: int

    @property
    def is_whole(self) -> bool:
        return self.share == 1.0


def rehearse(planned: Work) -> Work:
    """Return the same plan with a forecast from a sample of up to `rehearsed_bytes`.

    The groups, their files and methods do not change.
    """
    trials = list(_trials(planned, budget=planned.settings.rehearsed_bytes))
    expected = sum(trial.expected_bytes for trial in trials)
    if not expected:
        return planned
    correction = sum(trial.found_bytes for trial in trials) / expected
    found = {trial.group: trial.found_bytes for trial in trials if trial.is_whole}
    groups = tuple(
        replace(group, expected_bytes=found.get(group.id, round(group.expected_bytes * correction)))
        if group.method == "recode"
        else group
        for group in planned.plan.groups
    )
    return replace(planned, plan=_with_groups(planned.plan, groups))


def _with_groups(plan: Plan, groups: tuple[PlannedGroup, ...]) -> Plan:
    written = sum(group.expected_bytes for group in groups)
    before, read = plan.forecast.bytes_before, plan.forecast.bytes_read
    forecast = replace(plan.forecast, bytes_written=written, bytes_after=before - read + written)
    return replace(plan, groups=groups, forecast=forecast)


def _trials(planned: Work, *, budget: int) -> Iterator[_Trial]:
    samples = list(_samples(planned, budget=budget))
    # One look into the log for all of them: it costs the same for one file as for many.
    rows = [int(row) for _, rows in samples for row in rows]
    files = iter(planned.table.data_files(planned.snapshot, rows) if rows else ())
    worker = planned.table.worker(planned.snapshot)
    if not isinstance(worker, SizeEstimateWorker):
        return
    spec, limits = WriteSpec.of_tasks(planned.settings), TaskLimits.of(planned.settings)
    for group, chosen in samples:
        inputs = tuple(islice(files, len(chosen)))
        share = sum(file.bytes for file in inputs) / group.input_bytes
        aimed = replace(spec, target_file_bytes=group.target_file_bytes)
        try:
            found = worker.rehearse(inputs, aimed, limits=limits)
        except (LakehandError, NotDecodable):
            # The task that has to read these files will say what is wrong with them.
            continue
        expected = group.expected_bytes * share
        yield _Trial(group=group.id, share=share, expected_bytes=expected, found_bytes=found)


def _samples(planned: Work, *, budget: int) -> Iterator[tuple[PlannedGroup, Rows]]:
    """Yield groups with the rows of their files: whole ones that fit, the largest first.

    If the largest does not fit, it comes with as many files as do, and one at least: with others
    that fit, within half of the budget.
    """
    groups = [g for g in planned.plan.groups if g.method == "recode" and g.expected_bytes]
    if not groups or not budget:
        return
    rows, files = locate_inputs(planned.plan, planned.snapshot.files), _MOST_FILES
    fitting = [g for g in groups if g.input_bytes <= budget and len(rows[g.id]) <= files]
    if groups[0] not in fitting[:1]:
        budget, files = (budget // 2, files // 2) if fitting else (budget, files)
        sizes = planned.snapshot.files["bytes"].take(rows[groups[0].id]).to_numpy()
        count = min(files, int(np.searchsorted(np.cumsum(sizes), budget, "right")))
        yield groups[0], rows[groups[0].id][: max(1, count)]
    for group in fitting:
        if group.input_bytes <= budget and len(rows[group.id]) <= files:
            budget -= group.input_bytes
            files -= len(rows[group.id])
            yield group, rows[group.id]


_SEED = 5
#: Rows that stand for all, and files that they are read from at most, of all groups together.
_SAMPLED_ROWS, _READ_FILES = 128 * 1024, 256
#: With fewer rows, the bounds of a sampled file are narrower than those of a real one.
_ROWS_PER_FILE = 32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _LayoutForecastTrial:
    """A group of which a sample of the rows was sorted."""

    group: PlannedGroup
    #: Its files in the snapshot.
    rows: Rows
    files: pa.Table
    sampled_rows: int


def forecast_layout(planned: Work) -> Work:
    """Return the same plan with what queries are expected to have of it, if it is an order."""
    plan = planned.plan
    if plan.operation != "cluster":
        return planned
    order = order_of(plan.order, plan.curve or "linear")
    after, sampled_rows = expected_files(planned, order)
    skipped, depth = measure_change(order, before=planned.snapshot.files, after=after)
    layout = LayoutForecast(skip_rate=skipped, overlap_depth=depth, sampled_rows=sampled_rows)
    return replace(planned, plan=replace(plan, layout=layout))


def expected_files(planned: Work, order: Order) -> tuple[pa.Table, int]:
    """Return the files that the table would have, and how many rows were tried.

    Groups that are not sampled, and files that cannot be read, count with their current layout: so
    the effect is rather underestimated.
    """
    before = _described(planned.snapshot.files, order)
    trials = (
        list(_layout_forecast_trials(planned, order)) if planned.settings.rehearsed_bytes else []
    )
    is_kept = np.ones(before.num_rows, np.bool_)
    for trial in trials:
        is_kept[trial.rows] = False
    made = [_described(trial.files, order).cast(before.schema) for trial in trials]
    after = pa.concat_tables([before.filter(pa.array(is_kept)), *made])
    return after, sum(trial.sampled_rows for trial in trials)


def _layout_forecast_trials(planned: Work, order: Order) -> Iterator[_LayoutForecastTrial]:
    chosen = list(_chosen(planned))
    # One look into the log for all of them: it costs the same for one file as for many.
    rows = [int(row) for _, _, some in chosen for row in some]
    files = iter(planned.table.data_files(planned.snapshot, rows) if rows else ())
    worker = planned.table.worker(planned.snapshot)
    total = sum(group.input_bytes for group, _, _ in chosen)
    for group, every, some in chosen:
        inputs = tuple(islice(files, len(some)))
        wanted = max(_ROWS_PER_FILE, _SAMPLED_ROWS * group.input_bytes // max(1, total))
        try:
            sample = sample_rows(worker, inputs, order, rows=wanted)
        except (LakehandError, NotDecodable):
            # The task that has to read these files will say what is wrong with them.
            continue
        if sample.num_rows:
            made = _cut(sample, order, group)
            yield _LayoutForecastTrial(
                group=group, rows=every, files=made, sampled_rows=sample.num_rows
            )


def _chosen(planned: Work) -> Iterator[tuple[PlannedGroup, Rows, Rows]]:
    """Yield groups, the largest first, with all of their files and those to look into."""
    lot = np.random.default_rng(_SEED)
    left = _READ_FILES
    inputs = locate_inputs(planned.plan, planned.snapshot.files)
    for group, rows in zip(planned.plan.groups, inputs, strict=True):
        share = -(-_READ_FILES * group.input_bytes // max(1, planned.plan.forecast.bytes_read))
        count = min(len(rows), share, left)
        if not count:
            return
        left -= count
        yield group, rows, np.sort(lot.choice(rows, count, replace=False))


def _cut(sample: pa.Table, order: Order, group: PlannedGroup) -> pa.Table:
    """Return the files that the sample is cut into, with about the rows and bytes of real ones."""
    most = max(1, sample.num_rows // _ROWS_PER_FILE)
    count = max(1, min(group.expected_files, most))
    paths = {term.column: term.path for term in order.terms}
    made = Sample.of(sample, paths, ()).files(order, count)
    sizes = pa.array(np.full(count, group.expected_bytes // count))
    return made.set_column(made.schema.get_field_index("bytes"), "bytes", sizes)


def _described(files: pa.Table, order: Order) -> pa.Table:
    """Return sizes and bounds alone, in the same form for existing and for expected files."""
    bounds = [_plain_bounds(files, column) for column in order.columns]
    return pa.table(
        {
            "bytes": files["bytes"].cast(pa.int64()),
            "rows": files["rows"].cast(pa.int64()),
            "bounds": pa.StructArray.from_arrays(bounds, list(order.columns)),
        }
    )


def _plain_bounds(files: pa.Table, column: str) -> pa.StructArray:
    known = pc.struct_field(files["bounds"].combine_chunks(), [column])
    low, high = comparable_bounds(known)
    nulls = pc.struct_field(known, "nulls").cast(pa.int64())
    return pa.StructArray.from_arrays([low, high.cast(low.type), nulls], ["min", "max", "nulls"])
