"""Verbs on Lance tables, on the session of a runner's host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.table import open_table

if TYPE_CHECKING:
    from lakehand.engine.spark import SparkRunner


def call(runner: SparkRunner, path: str, verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """Call a verb of the table with the host's session and return the report as JSON."""
    settings = {"target_file_bytes": options.pop("target_file_bytes", 2**30)}
    table = open_table(path, spark=runner._session(), **settings)
    report: dict[str, Any] = getattr(table, verb)(**options).to_json()
    return report
