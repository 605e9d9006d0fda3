"""What a plan will leave behind, tried out on a few of its files.

How small rows become when small files are put together depends on how often values repeat, which no
footer tells. So a little of the work is done beforehand, and the result thrown away: what comes of
it says how far the estimate of the whole plan is off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from lakehand.errors import LakehandError
from lakehand.formats.worker import NotDecodable, TaskLimits, WriteSpec
from lakehand.planning.plan import locate_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.planning.plan import Plan, PlannedGroup
    from lakehand.planning.surveyed import Integers
    from lakehand.rewrite.prepare import Planned

__all__ = ["rehearse"]

#: A file takes a millisecond or more, however small it is.
_MOST_FILES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial:
    """A group that was rewritten, as far as the budget went."""

    group: int
    #: Part of the group's bytes that was rewritten.
    share: float
    #: What the plan expected of this part, and what came of it.
    expected_bytes: float
    found_bytes: int

    @property
    def is_whole(self) -> bool:
        return self.share == 1.0


def rehearse(planned: Planned) -> Planned:
    """Return the same plan with a forecast that was tried out within `rehearsed_bytes`.

    The groups, their files and methods stay as they are.
    """
    trials = list(_trials(planned, budget=planned.settings["rehearsed_bytes"]))
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


def _trials(planned: Planned, *, budget: int) -> Iterator[_Trial]:
    samples = list(_samples(planned, budget=budget))
    # One look into the log for all of them: it costs the same for one file as for many.
    rows = [int(row) for _, rows in samples for row in rows]
    files = iter(planned.table.data_files(planned.snapshot, rows) if rows else ())
    worker = planned.table.worker(planned.snapshot)
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


def _samples(planned: Planned, *, budget: int) -> Iterator[tuple[PlannedGroup, Integers]]:
    """Yield groups with the rows of their files: whole ones that fit, the largest first.

    If the largest does not fit, it comes with as many files as do, and one at least: beside others
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
