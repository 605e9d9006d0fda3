"""Modules in a directory from which nothing may be imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Of the standard library, of dependencies, and lakehand's own.
NAMES = (
    "base64", "bisect", "decimal", "heapq", "json", "queue", "random", "secrets", "selectors",
    "signal", "socket", "statistics", "struct", "tempfile", "threading", "uuid", "zlib",
    "click", "duckdb", "lance", "numpy", "obstore", "pandas", "py4j", "pyarrow", "pyspark", "rich",
    "sqlglot", "lakehand",
)  # fmt: skip


def plant(place: Path, names: Sequence[str] = NAMES) -> Path:
    """Put a module of each name there; return the file in which an imported one says its name."""
    trace = place / "imported"
    for name in names:
        (place / f"{name}.py").write_text(
            f"open({str(trace)!r}, 'a').write(__name__ + ' ')\nraise SystemExit(9)\n"
        )
    return trace
