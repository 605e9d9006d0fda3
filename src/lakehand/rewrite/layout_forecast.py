"""What queries will have of a plan that puts rows in order, tried on a few of its rows.

Rows of the files that are to be rewritten are put in the order, cut into the files that the plan
expects, and these stand in for the files that will be. What they skip is then measured in the way
in which it is measured afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import LakehandError
from lakehand.expressions.facts import comparable_bounds
from lakehand.formats.worker import NotDecodable
from lakehand.model.order import order_of
from lakehand.planning.plan import LayoutForecast, locate_inputs
from lakehand.rewrite.cluster_report import measure_change
from lakehand.rewrite.sampling import sample_rows
from lakehand.rewrite.virtual_files import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.model.order import Order
    from lakehand.planning.plan import PlannedGroup
    from lakehand.planning.surveyed import Integers
    from lakehand.rewrite.prepare import Planned

__all__ = ["expected_files", "forecast_layout"]

_SEED = 5
#: Rows that stand for all, and files that they are read from at most, of all groups together.
_SAMPLED_ROWS, _READ_FILES = 128 * 1024, 256
#: With fewer rows a file of the sample looks narrower than a real one.
_ROWS_PER_FILE = 32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Trial:
    """A group whose rows were put in order, as far as the sample goes."""

    group: PlannedGroup
    #: Its files in the snapshot.
    rows: Integers
    files: pa.Table
    sampled_rows: int


def forecast_layout(planned: Planned) -> Planned:
    """Return the same plan with what queries are expected to have of it, if it is an order."""
    plan = planned.plan
    if plan.operation != "cluster":
        return planned
    order = order_of(plan.order, plan.curve or "linear")
    after, sampled_rows = expected_files(planned, order)
    skipped, depth = measure_change(order, before=planned.snapshot.files, after=after)
    layout = LayoutForecast(skip_rate=skipped, overlap_depth=depth, sampled_rows=sampled_rows)
    return replace(planned, plan=replace(plan, layout=layout))


def expected_files(planned: Planned, order: Order) -> tuple[pa.Table, int]:
    """Return the files that the table would have, and how many rows were tried.

    Groups beyond those that are tried, and files that cannot be read, count as they are: then the
    effect will rather be greater.
    """
    before = _described(planned.snapshot.files, order)
    trials = list(_trials(planned, order)) if planned.settings["rehearsed_bytes"] else []
    is_kept = np.ones(before.num_rows, np.bool_)
    for trial in trials:
        is_kept[trial.rows] = False
    made = [_described(trial.files, order).cast(before.schema) for trial in trials]
    after = pa.concat_tables([before.filter(pa.array(is_kept)), *made])
    return after, sum(trial.sampled_rows for trial in trials)


def _trials(planned: Planned, order: Order) -> Iterator[_Trial]:
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
            yield _Trial(group=group, rows=every, files=made, sampled_rows=sample.num_rows)


def _chosen(planned: Planned) -> Iterator[tuple[PlannedGroup, Integers, Integers]]:
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
    """Return sizes and bounds alone, of files that are there and of others in the same form."""
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
