"""What a commit did, in words: every engine spells its metrics differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "files added": (
        "numAddedFiles", "num_added_files", "numFiles", "numFilesAdded", "numTargetFilesAdded",
    ),
    "files removed": (
        "numRemovedFiles", "num_removed_files", "numFilesRemoved", "numTargetFilesRemoved",
    ),
    "rows written": ("numOutputRows", "num_added_rows", "num_output_rows"),
    "rows deleted": ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted"),
    "rows updated": ("numUpdatedRows", "num_updated_rows", "numTargetRowsUpdated"),
    "files deleted": ("numDeletedFiles",),
}  # fmt: skip


def describe_metrics(metrics: Mapping[str, Any]) -> str:
    """Name what the metrics count, leaving out what is zero.

    >>> describe_metrics({"numRemovedFiles": "12", "numAddedFiles": "1", "numBatches": "3"})
    '1 files added, 12 files removed'
    """
    words = []
    for noun, spellings in _SPELLINGS.items():
        count = next((_count(metrics[name]) for name in spellings if name in metrics), 0)
        if count:
            words.append(f"{count:,} {noun}")
    return ", ".join(words)


def _count(value: Any) -> int:
    return int(value) if str(value).isdigit() else 0
