"""Hot tables for tests, writers that are killed, and what must be in a table after that."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from lakehand.hot import HotTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])


def rows(ids: Iterable[int], value: str = "a") -> pa.RecordBatch:
    """Return rows with these ids, all of one value."""
    chosen = list(ids)
    return pa.RecordBatch.from_pydict({"id": chosen, "value": [value] * len(chosen)}, schema=SCHEMA)


def hot_table(folder: Path | str, **options: Any) -> HotTable:
    """Return a hot table below `folder` that flushes nothing by itself; it is not open yet."""
    options.setdefault("hot_refresh_interval", "0s")
    options.setdefault("schema", SCHEMA)
    return HotTable(Path(folder) / "table", log=Path(folder) / "log", **options)


def wait_until(condition: Callable[[], object], seconds: float = 100.0) -> None:
    """Return when something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def pairs(table: pa.Table) -> list[tuple[int, str]]:
    """Return the rows in order, each as often as it is there."""
    return sorted(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))


def cold_pairs(folder: Path | str) -> list[tuple[int, str]]:
    """Return what is in the cold table."""
    return pairs(lakehand.open_table(Path(folder) / "table").to_arrow())


def segments(folder: Path | str) -> list[Path]:
    """Return the files of the log, the oldest first."""
    return sorted((Path(folder) / "log").glob("*.wal"))


def acknowledge(folder: Path | str, number: int) -> None:
    with (Path(folder) / "acknowledged").open("a") as file:
        file.write(f"{number}\n")


def acknowledged(folder: Path | str) -> list[int]:
    path = Path(folder) / "acknowledged"
    return [int(line) for line in path.read_text().split()] if path.exists() else []
