"""Which files become one: small ones and those with deleted rows, partition by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from lakehand.settings import Settings

__all__ = ["CompactionPlan", "CompactionPolicy", "PlannedGroup", "plan_compaction"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionPolicy:
    """What is worth rewriting."""

    target_file_bytes: int
    #: A file is small below this part of the target.
    small_file_ratio: float
    #: A file is worn when more than this part of its rows is deleted.
    deleted_row_ratio: float
    #: Fewer small files than this are left alone; worn files are rewritten in any number.
    min_files: int

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(
            target_file_bytes=settings["target_file_bytes"],
            small_file_ratio=settings["small_file_ratio"],
            deleted_row_ratio=settings["deleted_row_ratio"],
            min_files=settings["min_files"],
        )

    @property
    def small_file_bytes(self) -> float:
        return self.target_file_bytes * self.small_file_ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedGroup:
    """Files of one partition that fill about one file of the target size."""

    #: Positions in the table of files.
    positions: tuple[int, ...]
    input_bytes: int
    #: Why these files; shown to users.
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionPlan:
    """What is to be rewritten, largest group first, and why the rest is not."""

    groups: tuple[PlannedGroup, ...]
    #: Number of files left alone, by reason.
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Files:
    """The columns that decide, as NumPy arrays."""

    bytes: NDArray[np.int64]
    #: Bytes without the share of deleted rows.
    live_bytes: NDArray[np.float64]
    is_small: NDArray[np.bool_]
    is_worn: NDArray[np.bool_]
    partition: NDArray[np.int64]


def plan_compaction(
    files: pa.Table, partition_keys: pa.Array, policy: CompactionPolicy
) -> CompactionPlan:
    """Plan which of `files` are rewritten together; only files with equal keys ever are.

    Groups are filled in the order of the files, so neighbours stay neighbours.
    """
    facts = _facts(files, partition_keys, policy)
    chosen = np.flatnonzero(facts.is_small | facts.is_worn)
    order = chosen[np.argsort(facts.partition[chosen], kind="stable")]
    packed = [np.array(group) for group in _pack(order, facts, policy.target_file_bytes)]
    kept = [group for group in packed if _is_worthwhile(group, facts, policy)]
    groups = sorted((_planned(group, facts, policy) for group in kept), key=_largest_first)
    too_few = len(chosen) - sum(len(group) for group in kept)
    left = {"large enough": len(facts.bytes) - len(chosen), "too few to merge": too_few}
    return CompactionPlan(
        groups=tuple(groups), left={reason: count for reason, count in left.items() if count}
    )


def _facts(files: pa.Table, partition_keys: pa.Array, policy: CompactionPolicy) -> _Files:
    sizes = files["bytes"].to_numpy()
    rows = pc.fill_null(files["rows"], 0).to_numpy()
    deleted = files["deleted_rows"].to_numpy()
    deleted_share = np.divide(deleted, rows, out=np.zeros(len(rows)), where=rows > 0)
    encoded = pc.dictionary_encode(partition_keys, null_encoding="encode")
    return _Files(
        bytes=sizes,
        live_bytes=sizes * (1 - deleted_share),
        is_small=sizes < policy.small_file_bytes,
        is_worn=deleted_share > policy.deleted_row_ratio,
        partition=encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
    )


def _pack(order: NDArray[np.int64], facts: _Files, target_bytes: int) -> Iterator[list[int]]:
    """Fill groups up to the target, one partition after the other."""
    group: list[int] = []
    filled, current = 0.0, -1
    live_bytes, partitions = facts.live_bytes[order].tolist(), facts.partition[order].tolist()
    for position, size, partition in zip(order.tolist(), live_bytes, partitions, strict=True):
        if group and (partition != current or filled + size > target_bytes):
            yield group
            group, filled = [], 0.0
        group.append(position)
        filled += size
        current = partition
    if group:
        yield group


def _is_worthwhile(group: NDArray[np.int64], facts: _Files, policy: CompactionPolicy) -> bool:
    return len(group) >= policy.min_files or bool(facts.is_worn[group].any())


def _planned(group: NDArray[np.int64], facts: _Files, policy: CompactionPolicy) -> PlannedGroup:
    return PlannedGroup(
        positions=tuple(group.tolist()),
        input_bytes=int(facts.bytes[group].sum()),
        reason=_reason(group, facts, policy),
    )


def _reason(group: NDArray[np.int64], facts: _Files, policy: CompactionPolicy) -> str:
    small, worn = int(facts.is_small[group].sum()), int(facts.is_worn[group].sum())
    reasons = []
    if small:
        limit = format_bytes(policy.small_file_bytes)
        reasons.append(f"{format_count(small, 'file')} below {limit}")
    if worn:
        share = f"{policy.deleted_row_ratio:.0%}"
        reasons.append(f"{format_count(worn, 'file')} with more than {share} of rows deleted")
    return ", ".join(reasons)


def _largest_first(group: PlannedGroup) -> tuple[int, tuple[int, ...]]:
    return -group.input_bytes, group.positions
