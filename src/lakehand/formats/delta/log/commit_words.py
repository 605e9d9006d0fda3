"""What a commit did, in words: every engine spells its metrics differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "file added": (
        "numAddedFiles", "num_added_files", "numFiles", "numFilesAdded", "numTargetFilesAdded",
        "numRestoredFiles",
    ),
    "file removed": (
        "numRemovedFiles", "num_removed_files", "numFilesRemoved", "numTargetFilesRemoved",
    ),
    "row written": ("numOutputRows", "num_added_rows", "num_output_rows"),
    "row deleted": ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted"),
    "row updated": ("numUpdatedRows", "num_updated_rows", "numTargetRowsUpdated"),
    "file deleted": ("numDeletedFiles",),
    "file refreshed": ("numRefreshedFiles",),
}  # fmt: skip


def describe_metrics(metrics: Mapping[str, Any]) -> str:
    """Name what the metrics count, leaving out what is zero.

    >>> describe_metrics({"numRemovedFiles": "12", "numAddedFiles": "1", "numBatches": "3"})
    '1 file added, 12 files removed'
    """
    words = []
    for what, spellings in _SPELLINGS.items():
        count = next((_count(metrics[name]) for name in spellings if name in metrics), 0)
        if count:
            noun, participle = what.split()
            words.append(f"{format_count(count, noun)} {participle}")
    return ", ".join(words)


def _count(value: Any) -> int:
    return int(value) if str(value).isdigit() else 0
