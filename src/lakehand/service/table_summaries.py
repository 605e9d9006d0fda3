"""What the numbers of a table mean for its maintenance, from its summary and its settings."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lakehand.assess.health_score import assess_health
from lakehand.assess.inspection import FileFigures, measure_figures
from lakehand.planning.policy import TINY_GROUP_ROWS, CompactionPolicy, automatic_min_files
from lakehand.service.scores import TableNumbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.table_summary import TableSummary
    from lakehand.settings import Settings

#: Partitions that are named of a table.
_MOST_PARTITIONS = 10
#: Sizes of files as fractions of the target, from which on each class of sizes begins.
_CLASSES = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 1.0, 2.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Assessment:
    """A summary under the settings of its table."""

    version: int
    numbers: TableNumbers
    health_score: int
    health_reasons: tuple[str, ...]
    #: Numbers that are shown, and kept for the curve over time.
    shown: Mapping[str, Any]
    #: Whether a run has to tell whether rows are to be clustered.
    is_clustered: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Assessment:
        numbers = TableNumbers(**document["numbers"])
        reasons = tuple(document["health_reasons"])
        return cls(**{**document, "numbers": numbers, "health_reasons": reasons})


def assess_summary(summary: TableSummary, settings: Settings) -> Assessment:
    """Compute what is measured of a table; `settings` are those of its policy."""
    in_force = settings.with_properties(summary.properties)
    figures = FileFigures.of_summary(summary)
    return assess_figures(figures, summary, in_force, summary.files.partition_names)


def assess_figures(
    figures: FileFigures,
    summary: TableSummary,
    settings: Settings,
    partition_names: tuple[str, ...] = (),
) -> Assessment:
    """Compute the same of the numbers of files; `settings` are those in force."""
    commits = summary.commits_since_checkpoint
    measures = measure_figures(figures, commits_since_checkpoint=commits, settings=settings)
    health = assess_health(measures)
    candidates = _Candidates(figures, settings)
    shown = {
        "file_count": measures.file_count,
        "total_bytes": measures.total_bytes,
        "small_file_count": measures.small_file_count,
        "excess_file_count": measures.excess_file_count,
        "deleted_rows": measures.deleted_rows,
        "deleted_row_ratio": measures.deleted_row_ratio,
        "commits_since_checkpoint": commits,
        "removed_bytes": summary.removed_bytes,
        "file_sizes": _size_classes(figures.sizes, settings.target_file_bytes),
        "partitions": candidates.partitions(partition_names, summary.partition_columns),
    }
    return Assessment(
        version=summary.version,
        numbers=candidates.numbers(summary),
        health_score=health.score,
        health_reasons=tuple(reason.message for reason in health.reasons),
        shown=shown,
        is_clustered=summary.is_clustered or bool(settings.cluster_by),
    )


def _size_classes(sizes: np.ndarray, target_bytes: int) -> list[dict[str, int]]:
    """Count the files of each class of sizes; the last one has no upper limit."""
    edges = [int(target_bytes * share) for share in _CLASSES]
    slots = np.searchsorted(edges, sizes, side="right") - 1
    counts = np.bincount(slots, minlength=len(edges)).tolist()
    return [
        {"from_bytes": edge, "file_count": count} for edge, count in zip(edges, counts, strict=True)
    ]


class _Candidates:
    """The files that an automatic compaction would choose, as far as the log tells."""

    def __init__(self, figures: FileFigures, settings: Settings) -> None:
        self._figures, self._target = figures, settings.target_file_bytes
        sizes, rows = figures.sizes, figures.rows
        small = sizes < int(self._target * settings.small_file_ratio)
        self._counts = np.bincount(figures.partitions[small], minlength=1)
        self._filled = np.bincount(figures.partitions[small], sizes[small], minlength=1)
        needed = np.maximum(np.ceil(self._filled / self._target), self._counts > 0)
        excess = np.maximum(self._counts - needed, 0).astype(np.int64)
        enough = (self._counts >= automatic_min_files(settings)) & (excess > 0)
        self._excess = np.where(enough, excess, 0)
        self._deleted_share = np.where(rows > 0, figures.deleted / np.maximum(rows, 1), 0.0)
        self._small = small & enough[figures.partitions]
        self._worn = (self._deleted_share > settings.deleted_row_ratio) & ~self._small
        tiny_bytes = CompactionPolicy.from_settings(settings).tiny_group_bytes
        is_tiny = (sizes < tiny_bytes) & (rows < TINY_GROUP_ROWS)
        self._copied = self._small & ~is_tiny & (figures.deleted == 0)
        oversized = sizes > self._target * settings.oversized_file_ratio
        self._oversized = oversized & ~self._worn
        self._auto_compact: bool = settings.auto_compact

    def numbers(self, summary: TableSummary) -> TableNumbers:
        sizes = self._figures.sizes
        common = {
            "file_count": len(sizes),
            "total_bytes": int(sizes.sum()),
            "commits_since_checkpoint": summary.commits_since_checkpoint,
            "removed_file_count": summary.removed_file_count,
            "removed_bytes": summary.removed_bytes,
        }
        if not self._auto_compact:
            return TableNumbers(**common)
        rewritten = self._small | self._worn
        return TableNumbers(
            **common,
            small_file_count=int(np.count_nonzero(self._small)),
            small_bytes=int(sizes[self._small].sum()),
            copied_bytes=int(sizes[self._copied].sum()),
            excess_file_count=int(self._excess.sum()),
            most_in_partition=int(np.where(self._excess > 0, self._counts, 0).max(initial=0)),
            worn_file_count=int(np.count_nonzero(self._worn)),
            worn_bytes=int(sizes[self._worn].sum()),
            dead_bytes=int((sizes * self._deleted_share)[rewritten].sum()),
            most_deleted_ratio=float(self._deleted_share[self._worn].max(initial=0.0)),
            oversized_file_count=int(np.count_nonzero(self._oversized)),
            oversized_bytes=int(sizes[self._oversized].sum()),
        )

    def partitions(self, names: tuple[str, ...], columns: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return the partitions in which compaction would save most files."""
        most = np.argsort(-self._excess, kind="stable")[:_MOST_PARTITIONS].tolist()
        return [
            {
                "partition": _described(names[number] if number < len(names) else "", columns),
                "small_file_count": int(self._counts[number]),
                "small_bytes": int(self._filled[number]),
                "excess_file_count": int(self._excess[number]),
            }
            for number in most
            if self._excess[number]
        ]


def _described(name: str, columns: tuple[str, ...]) -> dict[str, str | None]:
    values = json.loads(name) if name else []
    return dict(zip(columns, values, strict=False))
