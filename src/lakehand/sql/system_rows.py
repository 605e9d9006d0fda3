"""The rows of the system tables, and of a table as DESCRIBE shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.sql.results import plain_value, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.service.client import ServiceClient
    from lakehand.table import Table

#: System tables of the job store. The store itself is imported when one of them is read.
STORED = (
    "jobs", "compaction_jobs", "attempts", "tables", "scores", "measurements", "budgets",
    "workers", "events", "policies",
)  # fmt: skip
#: Those that need no service as well.
SYSTEM_TABLES = (*STORED, "settings")
#: Columns of `Snapshot.files` that only the format interprets.
_NATIVE = {"native", "bounds"}


def system_rows(name: str, client: ServiceClient | None, *, max_rows: int) -> pa.Table:
    """Return the rows of a system table."""
    if name == "settings":
        return _settings()
    assert client is not None  # noqa: S101  the caller has checked it
    return _policies(client) if name == "policies" else client.system_table(name, max_rows=max_rows)


def _settings() -> pa.Table:
    from lakehand.settings import SETTINGS, Settings

    chosen = Settings()
    rows = [
        {
            "name": setting.name,
            "value": _shown(getattr(chosen, setting.name)),
            "source": chosen.sources[setting.name],
            "default": _shown(setting.default),
            "spellings": list(setting.spellings[2:]),
            "table_property": setting.table_property,
            "help": setting.help,
        }
        for setting in SETTINGS
    ]
    return table_of(rows)


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(plain_value(value))


def _policies(client: ServiceClient) -> pa.Table:
    counts = client.policies.check().tables or {}
    rows = [
        {
            "name": policy.name,
            "match": list(policy.match),
            "enabled": policy.enabled,
            "steps": list(policy.steps),
            "pool": policy.pool,
            "schedule": _shown({verb: at.expression for verb, at in policy.schedule.items()}),
            "settings": _shown(policy.settings),
            "tables": counts.get(policy.name),
        }
        for policy in client.config.policies
    ]
    return table_of(rows)


def _files(table: Table) -> pa.Table:
    files = table.snapshot().files
    wanted = [name for name in files.column_names if name not in _NATIVE]
    return _with_json_partition(files.select(wanted))


def _with_json_partition(files: pa.Table) -> pa.Table:
    """Return files with their partition as JSON: its columns differ between tables."""
    place = files.column_names.index("partition")
    values = [json.dumps(plain_value(one or {})) for one in files["partition"].to_pylist()]
    return files.set_column(place, "partition", pa.array(values, pa.string()))


def _partitions(table: Table) -> pa.Table:
    snapshot = table.snapshot()
    small_bytes = table.inspect_snapshot(snapshot).small_file_bytes
    files = _with_json_partition(snapshot.files)
    is_small = pc.cast(pc.less(files["bytes"], small_bytes), pa.int64())
    columns = files.select(["partition", "bytes", "rows", "deleted_rows"])
    grouped = columns.append_column("small_files", is_small).group_by("partition")
    sums = [(name, "sum") for name in ("bytes", "rows", "deleted_rows", "small_files")]
    found = grouped.aggregate([("bytes", "count"), *sums])
    names = {"bytes_count": "files", **{f"{name}_sum": name for name, _ in sums}}
    renamed = found.rename_columns([names.get(name, name) for name in found.column_names])
    order = ("partition", "files", "bytes", "rows", "deleted_rows", "small_files")
    return renamed.select(order).sort_by("partition")


def _history(table: Table) -> pa.Table:
    return table_of(history_rows(table))


def history_rows(table: Table, limit: int | None = None) -> list[dict[str, Any]]:
    """Return commits with the names of DESCRIBE HISTORY, and what lakehand knows of them."""
    return [
        {
            "version": entry.version,
            "timestamp": entry.at,
            "operation": entry.operation,
            "operationParameters": _strings(entry.parameters),
            "operationMetrics": _strings(entry.metrics),
            "engineInfo": entry.engine,
            "summary": entry.summary,
            "proof": None if entry.proof is None else dict(entry.proof),
        }
        for entry in table.history(limit=limit)
    ]


def _strings(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Return values as Delta has them: all of them strings."""
    return {
        name: value if value is None or isinstance(value, str) else json.dumps(plain_value(value))
        for name, value in values.items()
    }


def detail_row(table: Table) -> dict[str, Any]:
    """Return the columns of DESCRIBE DETAIL."""
    snapshot = table.snapshot()
    own = dict(snapshot.details)
    return {
        "format": table.format,
        **{name: own.pop(name, None) for name in ("id", "name", "description")},
        "location": table.url,
        "createdAt": own.pop("createdAt", None),
        "lastModified": snapshot.at,
        "partitionColumns": list(snapshot.partition_columns),
        "clusteringColumns": list(table.clustering_columns()),
        "numFiles": snapshot.file_count,
        "sizeInBytes": snapshot.total_bytes,
        "properties": dict(snapshot.properties),
        **own,
        "version": snapshot.version,
    }


#: Functions of a table that make rows: `system.files('t')`.
_FUNCTIONS: Mapping[str, Callable[[Table], pa.Table]] = {
    "files": _files,
    "partitions": _partitions,
    "history": _history,
}
TABLE_FUNCTIONS = tuple(_FUNCTIONS)


def function_rows(name: str, table: Table) -> pa.Table:
    """Return the rows of a function of a table."""
    return _FUNCTIONS[name](table)
