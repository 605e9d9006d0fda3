"""How contenders and quantities are called in tables and pictures."""

from __future__ import annotations

LABELS = {
    "lakehand-spark": "lakehand on Spark",
    "lakehand-local": "lakehand without Spark",
    "delta-rs": "delta-rs",
    "delta-spark": "delta-spark OPTIMIZE",
    "duckdb": "DuckDB COPY",
    "bytes": "copied bytes, fsync",
}
OURS = ("lakehand-spark", "lakehand-local")


def label_of(name: str) -> str:
    return LABELS[name]


def seconds_text(seconds: float) -> str:
    """Write seconds with three digits that count."""
    places = 2 if seconds < 10 else 1 if seconds < 100 else 0
    return f"{seconds:.{places}f}"


def times_text(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"
