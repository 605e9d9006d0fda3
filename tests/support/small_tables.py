"""Small real tables, written by delta-rs."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

REGIONS = ("eu", "us")


def rows(start: int, count: int) -> pa.Table:
    """Return rows whose every column follows from the id."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "region": pa.array([REGIONS[i % 2] for i in ids], pa.string()),
            "amount": pa.array([i / 4 if i % 7 else None for i in ids], pa.float64()),
        }
    )


def make_table(path: Path, *, commits: int = 6, rows_a_commit: int = 10, **options) -> Path:
    """Make a table of many small files: two a commit, one for each region."""
    for commit in range(commits):
        data = rows(commit * rows_a_commit, rows_a_commit)
        write_deltalake(str(path), data, mode="append", partition_by=["region"], **options)
    return path


def read_sorted(path: Path | str, **options) -> pa.Table:
    """Read a table with delta-rs, in the order of its ids."""
    return DeltaTable(str(path), **options).to_pyarrow_table().sort_by("id")


def commit_by_hand(path: Path, *actions: dict) -> int:
    """Add the next version as JSON lines; returns the version."""
    log = path / "_delta_log"
    version = max((int(file.stem) for file in log.glob("*.json")), default=-1) + 1
    lines = "\n".join(json.dumps(action) for action in actions)
    (log / f"{version:020}.json").write_text(lines + "\n")
    return version


def fingerprint(directory: Path) -> dict[str, str]:
    """Return a hash of every file: two equal ones mean that nothing was written."""
    return {
        file.relative_to(directory).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }
