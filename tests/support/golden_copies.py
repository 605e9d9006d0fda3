"""Copies of golden tables, rewritten in every way that a compaction knows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Literal

from support.forced_compactions import compact_here
from support.golden import GOLDEN, expected_of, read_names
from support.rows import delta_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.model.reports import OperationReport

Way = Literal["merge", "copy", "split"]

#: Golden tables that are not rewritten, with the feature that is named as the reason. The features
#: that lakehand promises to rewrite may not be among them.
REFUSED = {"table-with-icebegCompatV2Enabled": "icebergCompatV2"}


def rewritten_names() -> list[str]:
    """Return the tables with data that must be rewritten."""
    with_rows = [name for name in read_names() if expected_of(name)["rows"]]
    return [name for name in with_rows if name not in REFUSED]


def copy_golden(name: str, directory: Path) -> Path:
    """Return a fresh copy of a golden table."""
    return shutil.copytree(GOLDEN / "tables" / name, directory / "table")


def rewrite(path: Path, way: Way, **settings: Any) -> OperationReport:
    """Merge the files of every partition, by decoding or undecoded; or split every file."""
    if way != "split":
        return compact_here(path, method="copy" if way == "copy" else "recode", **settings)
    sizes = delta_table(path).snapshot().files["bytes"].to_pylist()
    # Every file is then larger than twice the target, and therefore divided.
    limits = {"target_file_bytes": max(1, min(sizes) // 3), "oversized_file_ratio": 2.0}
    return compact_here(path, method="recode", **limits, **settings)
