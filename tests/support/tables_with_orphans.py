"""Tables on disk with many files of last month that no version needs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from support.hand_written_logs import add, field, metadata, protocol
from support.small_tables import commit_by_hand

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORIES, FILES_A_DIRECTORY = 300, 16
_MONTH_SECONDS = 30 * 24 * 3600
_FOREIGN = ("_other/kept.parquet", ".hidden/kept.parquet", "readme.md")


def make_table_with_orphans(path: Path) -> Path:
    """Make empty files; the first of each directory is in the table, the second is of today.

    Files of others are among them, and directories in directories.
    """
    live, past = [], time.time() - _MONTH_SECONDS
    for number in range(DIRECTORIES):
        directory = f"d={number:03} %/deep" if number % 2 else f"d={number:03}"
        (path / directory).mkdir(parents=True)
        for part in range(FILES_A_DIRECTORY):
            file = path / directory / f"part-{part:02}.parquet"
            file.touch()
            if part != 1:
                os.utime(file, (past, past))
        live.append(f"{directory}/part-00.parquet")
    for name in _FOREIGN:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).touch()
        os.utime(path / name, (past, past))
    (path / "_delta_log").mkdir()
    adds = [add(name.replace("%", "%25").replace(" ", "%20"), size=0) for name in live]
    commit_by_hand(path, protocol(), metadata(field("id", "long")), *adds)
    return path


def all_files(path: Path) -> set[str]:
    """Return what is below `path` but its log and what lakehand writes."""
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    return {file for file in files if not file.startswith(("_delta_log/", "_lakehand/"))}


def kept_files(path: Path) -> set[str]:
    """Return what is left after a vacuum of a table as it was made."""
    own = {
        name for name in all_files(path) if name.endswith(("/part-00.parquet", "/part-01.parquet"))
    }
    return own | set(_FOREIGN)
