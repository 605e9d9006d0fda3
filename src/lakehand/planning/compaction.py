"""The planner: which files become which files, read from top to bottom.

Pure: no I/O, no clock, no format. The same files and policy give the same plan, and a plan over
what a plan leaves behind is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.model.reports import Forecast, Remaining
from lakehand.planning.candidates import find_candidates, read_files
from lakehand.planning.caps import cut_to_caps
from lakehand.planning.copy_rule import are_tiny, copy_affinity
from lakehand.planning.drafts import draft_groups, split_at_caps
from lakehand.planning.packing import Items, Limits, pack
from lakehand.planning.plan import Plan, partition_text
from lakehand.planning.reasons import CHOSEN, LEFT, Reason, code_of, count_reasons, reason_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.candidates import Candidates, Files
    from lakehand.planning.drafts import Drafts
    from lakehand.planning.plan import PlannedGroup
    from lakehand.planning.policy import CompactionPolicy
    from lakehand.planning.reasons import ReasonCodes
    from lakehand.planning.surveyed import Flags, Integers

__all__ = ["Planning", "paths_to_survey", "plan_compaction", "plan_drafts"]

#: Files too small to be copied that are looked at, to know how much of them is footer.
_SAMPLED_FILES = 32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Planning:
    """A plan, and beside it the reason of every file of the table, in the order of its files."""

    plan: Plan
    reasons: pa.DictionaryArray


def plan_compaction(
    snapshot: Snapshot,
    partition_keys: pa.Array,
    policy: CompactionPolicy,
    *,
    survey: pa.Table | None = None,
    order_keys: pa.Table | None = None,
    exclusions: Mapping[Reason, Flags] | None = None,
    sorts: bool = False,
) -> Planning:
    """Plan which files of `snapshot` are rewritten, which together, how, and what comes of it.

    Only files with equal `partition_keys` ever become one. `survey` adds what footers say (see
    `surveyed`). Where `order_keys` holds the place of each file in the order of the table, only
    neighbours are put together, whatever the strategy. `exclusions` has a mask for each reason to
    leave files alone. `sorts` puts the rows of every group in order.
    """
    files = read_files(snapshot.files, partition_keys, policy, survey)
    candidates = find_candidates(files, policy, exclusions=exclusions or {})
    ranks = _ranks(files, order_keys)
    in_force = policy if order_keys is None else replace(policy, strategy="greedy")
    cut = cut_to_caps(
        files,
        _groups(candidates, in_force, ranks),
        in_force,
        must=candidates.must,
        ranks=None if order_keys is None else ranks,
    )
    drafts = draft_groups(
        files, candidates.reasons, cut.group_of_file, ranks, in_force, sorts=sorts
    )
    reasons = _without_single_files(candidates, drafts)
    reasons[cut.is_above] = code_of(Reason.ABOVE_CAP)
    return plan_drafts(snapshot, files, drafts, reasons, in_force)


def plan_drafts(
    snapshot: Snapshot,
    files: Files,
    drafts: Drafts,
    reasons: ReasonCodes,
    policy: CompactionPolicy,
) -> Planning:
    """Make a plan of the groups that the caps of a run allow; the others are left for later."""
    kept, later = split_at_caps(drafts, policy)
    reasons[later.positions] = code_of(Reason.LATER_RUN)
    plan = Plan(
        table=snapshot.table,
        table_id=snapshot.table_id,
        version=snapshot.version,
        policy=policy,
        groups=_named_groups(kept, snapshot.files),
        chosen=count_reasons(reasons, CHOSEN),
        left=count_reasons(reasons, LEFT),
        remaining=Remaining(
            groups=len(later), files=later.file_count, bytes=int(later.input_bytes.sum())
        ),
        forecast=_forecast(files, kept),
    )
    return Planning(plan=plan, reasons=reason_column(reasons))


def paths_to_survey(
    snapshot: Snapshot,
    partition_keys: pa.Array,
    policy: CompactionPolicy,
    *,
    limit: int,
    exclusions: Mapping[Reason, Flags] | None = None,
    with_healthy: bool = False,
) -> list[str]:
    """Return the files whose footers tell most: candidates, the largest first, at most `limit`.

    Files too small for a healthy row group are recoded whatever their footers say; a few of them
    stand for all. `with_healthy` adds files that are fine by size, to find bad row groups.
    """
    files = read_files(snapshot.files, partition_keys, policy, None)
    candidates = find_candidates(files, policy, exclusions=exclusions or {})
    healthy = candidates.reasons == code_of(Reason.LARGE_ENOUGH)
    wanted = candidates.chosen | healthy if with_healthy else candidates.chosen
    order = np.lexsort((-files.bytes, ~candidates.chosen))
    order = order[wanted[order]]
    is_tiny = are_tiny(files)[order]
    tiny = order[is_tiny]
    sample = tiny[:: max(1, len(tiny) // _SAMPLED_FILES)][:_SAMPLED_FILES]
    rows = np.concatenate((order[~is_tiny], sample))[:limit]
    paths: list[str] = snapshot.files["path"].take(pa.array(rows)).to_pylist()
    return paths


def _ranks(files: Files, order_keys: pa.Table | None) -> Integers:
    ranks = np.arange(len(files))
    if order_keys is not None:
        keys = [(name, "ascending") for name in order_keys.column_names]
        order = pc.sort_indices(order_keys, sort_keys=keys).to_numpy().astype(np.int64)
        ranks[order] = np.arange(len(files))
    return ranks


def _groups(candidates: Candidates, policy: CompactionPolicy, ranks: Integers) -> Integers:
    """Return the group of every file; -1 for files in none."""
    files, chosen = candidates.files, np.flatnonzero(candidates.chosen)
    items = Items(
        sizes=files.live_bytes[chosen],
        expected=files.expected_bytes[chosen],
        partition=files.partition[chosen],
        affinity=copy_affinity(files)[chosen],
        rank=ranks[chosen],
    )
    limits = Limits(
        capacity=policy.target_file_bytes,
        small_bytes=policy.nearly_small_bytes,
        fullest=policy.fullest_group_bytes,
    )
    bins = pack(items, policy.strategy, limits)
    sizes = np.bincount(bins, minlength=len(chosen))
    has_must = np.bincount(bins, weights=candidates.must[chosen], minlength=len(chosen)) > 0
    # One healthy file would be rewritten into itself.
    worthwhile = (sizes > 1) | has_must
    numbers = np.cumsum(worthwhile & (sizes > 0)) - 1
    group_of_file = np.full(len(files), -1, np.int64)
    group_of_file[chosen] = np.where(worthwhile[bins], numbers[bins], -1)
    return group_of_file


def _without_single_files(candidates: Candidates, drafts: Drafts) -> ReasonCodes:
    reasons = candidates.reasons.copy()
    alone = candidates.chosen.copy()
    alone[drafts.positions] = False
    reasons[alone] = code_of(Reason.SINGLE_FILE)
    return reasons


def _named_groups(kept: Drafts, files: pa.Table) -> tuple[PlannedGroup, ...]:
    """Turn the groups into values that name files and partition."""
    first = files["partition"].take(pa.array(kept.positions[kept.bounds[:-1]])).to_pylist()
    groups = kept.to_groups(files["path"])
    return tuple(
        replace(group, partition=partition_text(values))
        for group, values in zip(groups, first, strict=True)
    )


def _forecast(files: Files, kept: Drafts) -> Forecast:
    read, written = int(kept.input_bytes.sum()), int(kept.expected_bytes.sum())
    total = int(files.bytes.sum())
    return Forecast(
        files_before=len(files),
        files_after=len(files) - kept.file_count + int(kept.expected_files.sum()),
        bytes_before=total,
        bytes_after=total - read + written,
        bytes_read=read,
        bytes_written=written,
        task_seconds=float(kept.task_seconds.sum()),
    )
