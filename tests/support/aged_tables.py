"""Tables on disk whose history lies weeks back."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

from lakehand import open_table

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_DAY_SECONDS = 24 * 60 * 60


def make_aged_table(path: Path, *, versions: int = 10, folded: Collection[int] = (3, 6, 8)) -> Path:
    """Make a table with one row and one version a day, the last of them 41 days ago."""
    for version in range(versions):
        data = pa.table({"id": pa.array([version], pa.int64())})
        write_deltalake(str(path), data, mode="append")
        if version in folded:
            open_table(path).checkpoint()
    for version in commits_in(path):
        at = time.time() - (40 + versions - version) * _DAY_SECONDS
        os.utime(path / "_delta_log" / f"{version:020}.json", (at, at))
    return path


def commits_in(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in (path / "_delta_log").glob("*[0-9].json"))
