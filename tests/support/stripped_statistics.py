"""Tables whose log says nothing of the rows of their files, and what it says of them later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.table import DeltaTable
from lakehand.storage import open_store

if TYPE_CHECKING:
    from pathlib import Path


def without_statistics(path: Path, *, only: str = "") -> Path:
    """Take the statistics out of all adds whose path holds `only`."""
    for commit in (path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if only in action.get("add", {}).get("path", ""):
                action.get("add", {}).pop("stats", None)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    # Checksums of the commits as they were, and what delta-spark remembers of files beside them.
    for checksum in (path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    return path


def live_adds(path: Path) -> list[dict[str, Any]]:
    """Return the entries of the live files, as the log has them."""
    table = DeltaTable(open_store(path))
    snapshot = table.snapshot()
    files = table.data_files(snapshot, range(snapshot.file_count))
    return [dict(file.native["add"]) for file in files]


def newest_commit(path: Path) -> list[dict[str, Any]]:
    newest = max((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text().splitlines()]
